"""Measures the peaks of this machine: the operations of its multiply-add units and the bytes of its memory in a second.

Reports divide by them, so that a share of the peak means the same on every machine, frequency and load.
"""

import ctypes
import time
from dataclasses import dataclass
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
_BLOCK = 4096
"""Elements that a unit of the reading kernel sums."""
_LEAST_BYTES = 64 << 20
"""What the reading kernel reads at least; four times the last cache when that is more."""


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


def emit_reading(payload: dict[str, Any]) -> EmittedKernel:
    """Emit the kernel that reads, in a worker: unit i stores the sum of block i of the first buffer.

    Args:
        payload: `lanes`, the float32 elements of a vector.
    """
    lanes = payload["lanes"]
    builder, signature = Builder(), Signature(("f32", "f32"))
    data, sums = signature.buffer(0), signature.buffer(1)
    kind = vector_type(lanes, "f32")
    step = _CHAINS // 3 * lanes
    with builder.loop(signature.begin, signature.end) as unit:
        start = builder.mul(unit, _BLOCK)
        zero = builder.float_constant(0.0, "f32", lanes)

        def add(position: Index, chains: list[Value]) -> list[Value]:
            at = builder.add(start, position)
            parts = [
                builder.load(data, builder.add(at, i * lanes), lanes) for i in range(len(chains))
            ]
            return [
                builder.binary("arith.addf", c, p, lanes)
                for c, p in zip(chains, parts, strict=True)
            ]

        totals = builder.reduce(
            0, _BLOCK, step, [zero] * (step // lanes), [kind] * (step // lanes), add
        )
        total = totals[0]
        for other in totals[1:]:
            total = builder.binary("arith.addf", total, other, lanes)
        scalar = builder.op(f"vector.reduction <add>, {total} : {kind} into f32")
        builder.store(scalar, sums, unit)
    return EmittedKernel(builder.function(_SYMBOL, signature), _SYMBOL, buffers=2, sizes=0)


@dataclass(frozen=True)
class Peak:
    """What this machine can do.

    Attributes:
        flops: float32 operations a second, a multiplication and an addition counted as two.
        bandwidth: bytes that can be read from memory, beyond the caches, in a second.
    """

    flops: float
    bandwidth: float


def measure_peak(target: Target, threads: int = 1, pool: WorkerPool | None = None) -> Peak:
    """The peaks of this machine: the best of some tries.

    Args:
        target: this machine.
        threads: how many threads compute.
        pool: workers to use; by default one is started.

    Raises:
        CompileError: a kernel cannot be compiled.
    """
    lanes, machine = target.lanes(32), MachineSpec.of(target)
    jobs = [
        Job(f"xcompile.compiler.peak:{name}", {"lanes": lanes}, machine, "peak")
        for name in ("emit", "emit_reading")
    ]
    if pool is not None:
        results = pool.map(jobs)
    else:
        with WorkerPool(1) as started:
            results = started.map(jobs)
    factors = np.linspace(0.25, 0.75, 2 + _CHAINS, dtype=np.float32)
    sums = np.zeros(_UNITS * threads, np.float32)
    seconds = _fastest(results[0].code, factors, sums, threads, _REPEATS)
    flops = 2.0 * lanes * _CHAINS * _ROUNDS * len(sums) / seconds
    blocks = max(4 * target.l3, _LEAST_BYTES) // (4 * _BLOCK)
    data = np.ones(blocks * _BLOCK, np.float32)
    seconds = _fastest(results[1].code, data, np.zeros(blocks, np.float32), threads, _REPEATS // 4)
    return Peak(flops, data.nbytes / seconds)


def _fastest(
    code: bytes, read: np.ndarray, written: np.ndarray, threads: int, repeats: int
) -> float:
    """Seconds of the fastest launch of a kernel that gives one element a unit."""
    runtime = native_library.symbols()
    loaded = LoadedObjects([code], runtime, [f"{_SYMBOL}_task"])
    record = (ctypes.c_int64 * 2)(read.ctypes.data, written.ctypes.data)
    context = Context(
        size=ctypes.sizeof(Context), pool=native_library.default_pool(), threads=threads
    )
    arguments = [
        ctypes.c_void_p(ctypes.addressof(context)),
        ctypes.c_void_p(loaded.address(f"{_SYMBOL}_task")),
        ctypes.c_void_p(ctypes.addressof(record)),
        *(ctypes.c_int64(n) for n in (len(written), 1, 0)),
    ]
    run = ctypes.CFUNCTYPE(None, *map(type, arguments))(runtime["xc_parallel_for"])
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        run(*arguments)
        best = min(best, time.perf_counter() - start)
    return best
