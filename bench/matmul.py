"""Contractions as callables over numpy arrays; for tests and benchmarks."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from bench.native import NativeKernel, aligned
from xcompile.compiler.codegen.cpu import math
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Signature, Value
from xcompile.compiler.codegen.cpu.contraction import emit_contraction
from xcompile.compiler.codegen.cpu.windows import index_of
from xcompile.compiler.schedule import contraction
from xcompile.compiler.schedule.contraction import ContractionProblem, ContractionSchedule
from xcompile.compiler.schedule.window import resolve
from xcompile.compiler.target.target import Target

DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32}


class Store:
    """A sink that adds a bias along n, applies relu to floats and stores C contiguously."""

    def __init__(self, c: Buffer, bias: Buffer | None, shape: Sequence[Index], relu: bool) -> None:
        self.c, self.bias, self.shape, self.relu = c, bias, shape, relu

    def __call__(
        self, b: Builder, value: Value, at: Sequence[Index], lanes: int, mask: Value | None
    ) -> None:
        if self.bias is not None:
            bias = b.load(self.bias, at[-1], lanes, mask)
            add = "arith.addi" if self.c.dtype == "i32" else "arith.addf"
            value = b.binary(add, value, bias, lanes, self.c.dtype)
        if self.relu and self.c.dtype != "i32":
            value = math.relu(b, value, lanes, self.c.dtype)
        place: Index = 0
        for index, size in zip(at, self.shape, strict=True):
            place = b.add(b.mul(place, size), index)
        b.store(value, self.c, place, lanes, mask)


class CompiledContraction:
    """A contraction with bias and relu, compiled once and called at any sizes of its symbols."""

    def __init__(
        self,
        problem: ContractionProblem,
        target: Target,
        schedule: ContractionSchedule | None = None,
        epilogue: bool = True,
    ) -> None:
        self.problem, self.target = problem, target
        self.schedule = schedule or contraction.heuristic(problem, target)
        self.epilogue = epilogue
        self.symbols = _symbols(problem)
        bytes_needed = contraction.scratch_bytes(problem, self.schedule, target)
        dtype = problem.dtype
        operands = problem.operands or (dtype, dtype)
        buffers = (*(each.removeprefix("u") for each in operands), dtype, dtype, "i8")
        signature = Signature(buffers, len(self.symbols), scratch=True)
        b = Builder()
        sizes = {name: signature.size(i) for i, name in enumerate(self.symbols)}
        shape = [index_of(b, s, sizes) for s in (*problem.batch, problem.m, problem.n)]
        bias = signature.buffer(2) if epilogue else None
        emit_contraction(
            b, problem, self.schedule, target, signature.buffer(0), signature.buffer(1),
            Store(signature.buffer(3), bias, shape, epilogue), signature.begin, signature.end, sizes,
            signature.buffer(4) if bytes_needed else None,
        )  # fmt: skip
        self.kernel = NativeKernel(b, signature, target)
        self.scratch = aligned((bytes_needed + 64,), np.uint8)
        self.scratch[:] = 255

    def prepare(self, right: np.ndarray) -> np.ndarray:
        """B as the kernel wants it."""
        if not self.problem.constant_b:
            return right
        packed = contraction.pack(right, self.problem, self.schedule, self.target)
        out = aligned(packed.shape, packed.dtype)
        out[:] = packed
        return out

    def bind(
        self,
        left: np.ndarray,
        right: np.ndarray,
        bias: np.ndarray,
        out: np.ndarray,
        sizes: Mapping[str, int] | None = None,
    ) -> Callable[[], None]:
        """The call over all units; `right` comes from `prepare`."""
        extent = contraction.extent(self.problem, self.schedule, self.target, sizes)
        values = [(sizes or {})[name] for name in self.symbols]
        return self.kernel.bind(left, right, bias, out, self.scratch, *values, 0, extent)

    def __call__(
        self,
        left: np.ndarray,
        right: np.ndarray,
        bias: np.ndarray,
        sizes: Mapping[str, int] | None = None,
        threads: int = 1,
    ) -> np.ndarray:
        """C of arrays whose memory is as the problem's strides say; units are done in `threads` parts."""
        sizes = sizes or {}
        shape = [resolve(s, sizes) for s in (*self.problem.batch, self.problem.m, self.problem.n)]
        dtype = DTYPES[self.problem.dtype]
        guard = 64
        never = np.nan if dtype != np.int32 else -(2**31) + 12345
        flat = np.full(int(np.prod(shape)) + 2 * guard, never, dtype)
        out = flat[guard : len(flat) - guard]
        right = self.prepare(right)
        extent = contraction.extent(self.problem, self.schedule, self.target, sizes)
        cuts = [extent * i // threads for i in range(threads + 1)]
        values = [sizes[name] for name in self.symbols]
        for begin, end in pairwise(cuts):
            self.kernel(left, right, bias, out, self.scratch, *values, begin, end)
        around = np.concatenate([flat[:guard], flat[len(flat) - guard :]])
        np.testing.assert_array_equal(around, np.full(2 * guard, never, dtype))
        return out.reshape(shape)


def _symbols(problem: ContractionProblem) -> list[str]:
    sizes = (*problem.batch, problem.m, problem.n, problem.k)
    strides = (*problem.strides("a"), *problem.strides("b"))
    names = [n for s in (*sizes, *strides) for n in re.findall(r"[a-z]\w*", str(s))]
    return list(dict.fromkeys(names))
