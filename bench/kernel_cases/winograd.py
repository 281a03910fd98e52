"""Winograd convolutions: a kernel as tests and benchmarks run it, and the rows of the benchmark.

    python -m bench.kernel_cases.winograd [filter]

prints, for each shape and target, effective GFLOP/s (counting the direct algorithm's operations) and how that
relates to the peak of multiply-adds measured in the same process. Layers with few pixels stream their weights
from memory in a network, so they rotate over copies of them that no cache holds.
"""

import ctypes
import itertools
import math
import mmap
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from bench.blocked import BlockedStore
from bench.native import NativeKernel, aligned, runnable_targets
from xcompile.compiler.codegen.cpu.builder import Builder, Index, Signature, vector_type
from xcompile.compiler.codegen.cpu.winograd import emit_winograd
from xcompile.compiler.codegen.cpu.winograd_pack import pack, transform_weights
from xcompile.compiler.codegen.cpu.winograd_transforms import emit_winograd_weights
from xcompile.compiler.schedule.winograd import (
    WinogradProblem,
    WinogradSchedule,
    ceildiv,
    extent,
    heuristic,
    scratch_bytes,
    transformed_shape,
)
from xcompile.compiler.support.dims import evaluate, parse
from xcompile.compiler.target.target import Target

SHAPES = (
    (64, 56, 64), (128, 28, 128), (256, 14, 256), (512, 7, 512), (64, 224, 64), (256, 56, 256),
    (512, 28, 512), (512, 14, 512), (16, 55, 64), (32, 27, 128), (48, 13, 192), (64, 13, 256),
    (96, 35, 96), (160, 17, 192), (112, 14, 224),
)  # fmt: skip
"""Input channels, rows and columns, output channels: ResNet, VGG, SqueezeNet, Inception."""

COLD_PIXELS = 28 * 28
COLD_BYTES = 96 << 20


class Convolution:
    """A Winograd convolution with bias and ReLU, whose output is in blocked layout too."""

    def __init__(
        self, problem: WinogradProblem, schedule: WinogradSchedule, target: Target
    ) -> None:
        self.problem, self.schedule = problem, schedule
        sizes = (problem.n, problem.h, problem.w)
        self.symbols = [s for s in dict.fromkeys(sizes) if isinstance(s, str)]
        signature = Signature(("f32", "f32", "f32", "f32", "i8"), len(self.symbols), scratch=True)
        x, u, bias, y, memory = (signature.buffer(i) for i in range(5))
        b = Builder()
        known = {name: signature.size(i) for i, name in enumerate(self.symbols)}

        def grown(size: int | str, pads: int) -> Index:
            return b.add(known[size] if isinstance(size, str) else size, pads - 2)

        top, left, bottom, right = problem.pads
        rows, columns = grown(problem.h, top + bottom), grown(problem.w, left + right)
        blocks = ceildiv(problem.oc, problem.block)

        sink = BlockedStore(y, bias, blocks, (rows, columns), relu=True)
        emit_winograd(
            b, problem, schedule, target, x, u, sink, signature.begin, signature.end, known, memory
        )
        self.kernel = NativeKernel(b, signature, target)

    def units(self, sizes: dict[str, int]) -> int:
        return evaluate(extent(self.problem, self.schedule), sizes)

    def __call__(
        self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, parts: int = 1
    ) -> np.ndarray:
        """The output [n][channels with padding][rows][columns] for an input [n][c][h][w].

        Scratch and output hold NaN before; see `blocked` for what surrounds the input.
        """
        problem, lanes = self.problem, self.problem.block
        n, _, h, w = x.shape
        sizes = dict(zip((problem.n, problem.h, problem.w), (n, h, w), strict=True))
        values = {s: v for s, v in sizes.items() if isinstance(s, str)}
        top, left, bottom, right = problem.pads
        shape = (n, ceildiv(problem.oc, lanes), h + top + bottom - 2, w + left + right - 2, lanes)
        y = aligned(shape)
        y[:] = np.nan
        packed = pack(weight, problem, self.schedule)
        u = aligned(transformed_shape(problem, self.schedule))
        u[:] = transform_weights(packed, problem, self.schedule)
        padded_bias = aligned((shape[1] * lanes,))
        padded_bias[: problem.oc] = bias
        memory = aligned((scratch_bytes(problem, self.schedule) // 4,))
        memory[:] = np.nan
        source = blocked(x, lanes)
        units = self.units(values)
        for part in range(parts):
            begin, end = units * part // parts, units * (part + 1) // parts
            arrays = (source, u, padded_bias, y, memory)
            self.kernel(*arrays, *(values[s] for s in self.symbols), begin, end)
        return y.transpose(0, 1, 4, 2, 3).reshape(n, -1, shape[2], shape[3])


def blocked(x: np.ndarray, lanes: int) -> np.ndarray:
    """`x` [n][c][h][w] in blocked layout: NaN before it, and after it a page that cannot be read."""
    n, c, h, w = x.shape
    shape = (n, ceildiv(c, lanes), h, w, lanes)
    padded = np.zeros((n, shape[1] * lanes, h, w), np.float32)
    padded[:, :c] = x
    size = 4 * padded.size
    pages = ceildiv(size, mmap.PAGESIZE) + 1
    memory = np.frombuffer(mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE), np.float32)
    protect = ctypes.CDLL(None).mprotect
    if protect(ctypes.c_void_p(memory.ctypes.data + pages * mmap.PAGESIZE), mmap.PAGESIZE, 0):
        raise OSError("mprotect failed")
    usable = memory[: pages * mmap.PAGESIZE // 4]
    usable[:] = np.nan
    inner = usable[usable.size - padded.size :].reshape(shape)
    inner[:] = padded.reshape(n, shape[1], lanes, h, w).transpose(0, 1, 3, 4, 2)
    return inner


def weight_kernel(
    problem: WinogradProblem, schedule: WinogradSchedule, target: Target
) -> NativeKernel:
    """The kernel that transforms weights: packed weights, transformed weights, begin, end."""
    signature, b = Signature(("f32", "f32")), Builder()
    w, u = signature.buffer(0), signature.buffer(1)
    emit_winograd_weights(b, problem, schedule, target, w, u, signature.begin, signature.end)
    return NativeKernel(b, signature, target)


@dataclass
class Row:
    """One line of the benchmark: prepared calls, one for each copy of the weights."""

    name: str
    calls: Iterator[Callable[[], None]]
    flops: int
    best: float = math.inf

    def step(self) -> None:
        """Call once and keep the time if it is the best."""
        call = next(self.calls)
        start = time.thread_time()
        call()
        self.best = min(self.best, time.thread_time() - start)

    @property
    def gflops(self) -> float:
        return self.flops / self.best / 1e9


def row(problem: WinogradProblem, schedule: WinogradSchedule, target: Target) -> Row:
    """The benchmark of one problem of static sizes."""
    n, h, w, rows, columns = (
        evaluate(parse(str(size)), {})
        for size in (problem.n, problem.h, problem.w, *problem.output)
    )
    lanes = problem.block
    convolution = Convolution(problem, schedule, target)
    x = aligned((n, ceildiv(problem.c, lanes), h, w, lanes))
    x[:] = np.random.default_rng(0).standard_normal(x.shape, np.float32)
    shape = transformed_shape(problem, schedule)
    copies = 1
    if rows * columns <= COLD_PIXELS:
        copies = COLD_BYTES // (4 * math.prod(shape)) + 1
    weights = [aligned(shape) for _ in range(copies)]
    for u in weights:
        u[:] = 0.01
    blocks = ceildiv(problem.oc, lanes)
    bias, y = aligned((blocks * lanes,)), aligned((n, blocks, rows, columns, lanes))
    memory = aligned((scratch_bytes(problem, schedule),), np.uint8)
    units = convolution.units({})
    calls = [convolution.kernel.bind(x, u, bias, y, memory, 0, units) for u in weights]
    name = f"winograd{lanes} {problem.c}x{h}x{w} -> {problem.oc}"
    flops = 18 * n * problem.c * problem.oc * rows * columns
    return Row(name, itertools.cycle(calls), flops)


def multiply_add_peak(target: Target) -> Row:
    """Twelve independent chains of multiply-adds, as fast as the machine does them."""
    lanes, chains, trips = target.lanes(32), 12, 20_000
    signature, b = Signature(("f32",)), Builder()
    half = b.float_constant(0.5, lanes=lanes)
    sums = b.reduce(
        signature.begin,
        signature.end,
        1,
        [half] * chains,
        [vector_type(lanes, "f32")] * chains,
        lambda _, carried: [b.fma(v, half, half, lanes) for v in carried],
    )
    for i, value in enumerate(sums):
        b.store(value, signature.buffer(0), i * lanes, lanes)
    call = NativeKernel(b, signature, target).bind(aligned((chains * lanes,)), 0, trips)
    return Row(f"peak{lanes}", itertools.repeat(call), 2 * trips * chains * lanes)


def main(pattern: str = "") -> None:
    """Print the rows whose name contains `pattern`, the best of many interleaved rounds."""
    for target in runnable_targets():
        peak = multiply_add_peak(target)
        rows: list[Row] = []
        for c, h, oc in SHAPES:
            problem = WinogradProblem(1, c, h, h, oc, target.lanes(32))
            if pattern in f"winograd{problem.block} {c}x{h}x{h} -> {oc}":
                rows.append(row(problem, heuristic(problem, target), target))
        for _ in range(40):
            for each in [peak, *rows]:
                for _ in range(4):  # the first finds its caches filled by others
                    each.step()
        for each in rows:
            print(
                f"{each.name:30} {each.best * 1e3:8.3f} ms {each.gflops:7.0f} GFLOP/s"
                f" {each.gflops / peak.gflops:5.2f} of peak"
            )


if __name__ == "__main__":
    main(*sys.argv[1:2])
