"""Measures the peak of this machine: how many floating-point operations its multiply-add units do in a second.

Reports divide by it, so that a share of the peak means the same on every machine, frequency and load.
"""

import ctypes
import time
from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.builder import (
    Buffer,
    Builder,
    Index,
    Signature,
    Value,
    vector_type,
)
from xcompile.compiler.codegen.job import EmittedKernel, Job, MachineSpec
from xcompile.compiler.codegen.loader import LoadedObjects
from xcompile.compiler.target.target import Target
from xcompile.compiler.worker.pool import WorkerPool
from xcompile.runtime import native_library
from xcompile.runtime.abi import Context

_SYMBOL = "xk_peak"
_CHAINS = 12
"""Sums that are independent of each other: more than latency times units, fewer than registers."""
_ROUNDS = 64
"""Additions to each sum in a unit of the parallel axis."""
_UNITS = 2000
"""Units a thread: about a millisecond."""
_REPEATS = 20


def emit(payload: dict[str, Any]) -> EmittedKernel:
    """Emit the kernel, in a worker: unit i refines `_CHAINS` vectors by multiply-adds and stores their sum at i.

    Every vector starts from another number, or the compiler would keep but one of them.

    Args:
        payload: `lanes`, the float32 elements of a vector.
    """
    lanes = payload["lanes"]
    builder, signature = Builder(), Signature(("f32", "f32"))
    factors, sums = signature.buffer(0), signature.buffer(1)
    kind = vector_type(lanes, "f32")

    def splat(buffer: Buffer, position: Index) -> Value:
        return builder.broadcast(builder.load(buffer, position), "f32", lanes)

    a, b = splat(factors, 0), splat(factors, 1)
    starts = [splat(factors, 2 + chain) for chain in range(1, _CHAINS)]
    with builder.loop(signature.begin, signature.end) as unit:
        totals = builder.reduce(
            0, _ROUNDS, 1, [splat(sums, unit), *starts], [kind] * _CHAINS,
            lambda _, chains: [builder.fma(a, chain, b, lanes) for chain in chains],
        )  # fmt: skip
        total = totals[0]
        for other in totals[1:]:
            total = builder.binary("arith.addf", total, other, lanes)
        scalar = builder.op(f"vector.reduction <add>, {total} : {kind} into f32")
        builder.store(scalar, sums, unit)
    return EmittedKernel(builder.function(_SYMBOL, signature), _SYMBOL, buffers=2, sizes=0)


def measure_peak(target: Target, threads: int = 1, pool: WorkerPool | None = None) -> float:
    """The float32 operations a second, a multiplication and an addition counted as two: the best of some tries.

    Args:
        target: this machine.
        threads: how many threads compute.
        pool: workers to use; by default one is started.

    Raises:
        CompileError: the kernel cannot be compiled.
    """
    lanes = target.lanes(32)
    job = Job("xcompile.compiler.peak:emit", {"lanes": lanes}, MachineSpec.of(target), "peak")
    if pool is not None:
        result = pool.map([job])[0]
    else:
        with WorkerPool(1) as started:
            result = started.map([job])[0]
    runtime = native_library.symbols()
    loaded = LoadedObjects([result.code], runtime, [f"{_SYMBOL}_task"])
    factors = np.linspace(0.25, 0.75, 2 + _CHAINS, dtype=np.float32)
    sums = np.zeros(_UNITS * threads, np.float32)
    record = (ctypes.c_int64 * 2)(factors.ctypes.data, sums.ctypes.data)
    context = Context(
        size=ctypes.sizeof(Context), pool=native_library.default_pool(), threads=threads
    )
    arguments = [
        ctypes.c_void_p(ctypes.addressof(context)),
        ctypes.c_void_p(loaded.address(f"{_SYMBOL}_task")),
        ctypes.c_void_p(ctypes.addressof(record)),
        *(ctypes.c_int64(n) for n in (len(sums), 1, 0)),
    ]
    run = ctypes.CFUNCTYPE(None, *map(type, arguments))(runtime["xc_parallel_for"])
    best = float("inf")
    for _ in range(_REPEATS):
        start = time.perf_counter()
        run(*arguments)
        best = min(best, time.perf_counter() - start)
    return 2.0 * lanes * _CHAINS * _ROUNDS * len(sums) / best
