"""What a compiled model spends its time on: one row a launch.

The launches are run one by one from Python, through the same tasks and the same `parallel_for` as in a real run, so a
model carries nothing for it. FLOPs count a multiplication and an addition as two; bytes are those of operands and
results, once.
"""

import ctypes
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcompile.compiler.artifact import Artifact
from xcompile.compiler.codegen.loader import LoadedObjects
from xcompile.compiler.codegen.program.program import Place, Step
from xcompile.compiler.support.dims import Dim, evaluate
from xcompile.runtime import native_library
from xcompile.runtime.abi import Context
from xcompile.runtime.arena import AlignedMemory

_PARALLEL_FOR = ctypes.CFUNCTYPE(
    None,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int64,
    ctypes.c_int64,
    ctypes.c_int64,
)


@dataclass(frozen=True)
class Row:
    """One launch.

    Attributes:
        node: the model nodes that it computes.
        family: the kernel's family.
        symbol: the kernel.
        seconds: median time of a run; CPU time of the thread when there is one, so that neighbours matter less.
        flops: floating-point operations.
        bytes: bytes of operands and results.
    """

    node: str
    family: str
    symbol: str
    seconds: float
    flops: int
    bytes: int

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.seconds if self.seconds else 0.0


def measure(
    artifact: Artifact, inputs: Sequence[np.ndarray], *, threads: int = 1, repeats: int = 9
) -> list[Row]:
    """Run a model launch by launch.

    Args:
        artifact: a model for this machine.
        inputs: one array an input, in order.
        threads: the most parts of a launch.
        repeats: runs of each launch; the median counts.
    """
    return _Measurement(artifact, inputs, threads).rows(repeats)


class _Measurement:
    def __init__(self, artifact: Artifact, inputs: Sequence[np.ndarray], threads: int) -> None:
        self._artifact = artifact
        self._clock = time.thread_time if threads == 1 else time.perf_counter
        program = artifact.program
        self._inputs = [np.ascontiguousarray(x) for x in inputs]
        self._env = program.bindings([x.shape for x in self._inputs])
        steps = (*program.setup, *program.steps)
        symbols = [f"{s.symbol}_task" for s in steps]
        self._code = LoadedObjects(
            list(artifact.objects.values()), native_library.symbols(), symbols
        )
        self._weights = AlignedMemory(max(len(artifact.weights), 1))
        self._weights.array[: len(artifact.weights)] = np.frombuffer(artifact.weights, np.uint8)
        self._memory = {
            "arena": AlignedMemory(max(self._size(program.arena), 1)),
            "prepared": AlignedMemory(max(program.prepared, 1)),
            "weights": self._weights,
        }
        self._scratch = AlignedMemory(max(program.scratch * threads, 1))
        specs = artifact.manifest.outputs
        self._outputs = [
            np.empty([self._size(d) for d in shape], spec.dtype)
            for shape, spec in zip(program.outputs, specs, strict=True)
        ]
        self._context = Context(size=ctypes.sizeof(Context), threads=threads)
        self._context.scratch = self._scratch.address
        self._context.pool = native_library.default_pool()
        self._parallel_for = _PARALLEL_FOR(native_library.symbols()["xc_parallel_for"])
        for step in program.setup:
            self._run(step)
        for step in program.steps:
            self._run(step)

    def rows(self, repeats: int) -> list[Row]:
        return [self._row(step, repeats) for step in self._artifact.program.steps]

    def _row(self, step: Step, repeats: int) -> Row:
        times: list[float] = []
        arguments = self._arguments(step)
        for _ in range(repeats):
            start = self._clock()
            self._parallel_for(*arguments)
            times.append(self._clock() - start)
        family = step.symbol.removeprefix("xk_").rpartition("_")[0]
        return Row(
            step.node,
            family,
            step.symbol,
            statistics.median(times),
            self._size(step.flops),
            self._size(step.bytes),
        )

    def _run(self, step: Step) -> None:
        self._parallel_for(*self._arguments(step))

    def _arguments(self, step: Step) -> tuple[Any, ...]:
        """The arguments of `xc_parallel_for`."""
        slots = [self._address(p) for p in step.places] + [self._size(d) for d in step.sizes]
        record = (ctypes.c_int64 * max(len(slots), 1))(*slots)
        task = self._code.address(f"{step.symbol}_task")
        context = ctypes.byref(self._context)
        return context, task, record, self._size(step.extent), step.grain, step.scratch

    def _size(self, dim: Dim) -> int:
        return evaluate(dim, self._env)

    def _address(self, place: Place) -> int:
        offset = self._size(place.offset)
        if place.space == "input":
            return self._inputs[offset].ctypes.data
        if place.space == "output":
            return self._outputs[offset].ctypes.data
        return self._memory[place.space].address + offset


def table(rows: Sequence[Row], peak: float) -> str:
    """The rows as text, the slowest first, with each one's share of the time and of the peak rate in FLOP/s."""
    total = sum(r.seconds for r in rows)
    lines = [f"{'ms':>9} {'share':>6} {'GFLOP/s':>8} {'of peak':>7} {'FLOP/B':>7}  kernel"]
    for row in sorted(rows, key=lambda r: -r.seconds):
        intensity = row.flops / row.bytes if row.bytes else 0.0
        lines.append(
            f"{row.seconds * 1e3:9.4f} {row.seconds / total:6.1%} {row.rate / 1e9:8.1f} {row.rate / peak:7.1%} "
            f"{intensity:7.1f}  {row.family}: {row.node[:80]}"
        )
    generic = sum(r.seconds for r in rows if r.family == "fallback")
    lines.append(f"{total * 1e3:9.4f} total; {generic / total:.1%} of it in fallback kernels")
    return "\n".join(lines)
