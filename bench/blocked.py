"""Convolutions and pools as callables over NCHW and NCDHW arrays; for tests and benchmarks."""

import ctypes
import math
import mmap
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from typing import Any, TypeGuard

import numpy as np

from bench.native import NativeKernel, aligned
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Signature, Value
from xcompile.compiler.codegen.cpu.conv import emit_conv
from xcompile.compiler.codegen.cpu.depthwise import emit_depthwise
from xcompile.compiler.codegen.cpu.integer_depthwise import emit_integer_depthwise
from xcompile.compiler.codegen.cpu.pool import emit_global_pool, emit_pool
from xcompile.compiler.codegen.cpu.windows import WindowSizes
from xcompile.compiler.schedule import conv, depthwise, pool
from xcompile.compiler.schedule.conv import ConvProblem, ConvSchedule
from xcompile.compiler.schedule.depthwise import DepthwiseProblem
from xcompile.compiler.schedule.phases import Phases
from xcompile.compiler.schedule.pool import GlobalPoolProblem, GlobalPoolSchedule, PoolProblem
from xcompile.compiler.schedule.window import Window, WindowSchedule, resolve
from xcompile.compiler.target.target import Target

SYMBOLS = ("d0", "d1", "d2", "d3")


def guarded(shape: Sequence[int], dtype: Any = np.float32) -> np.ndarray:
    """An array of NaN, or 85 in integers, with that before it, and behind it a page that faults when it is read."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    pages = -(-size // mmap.PAGESIZE) + 1
    memory = np.frombuffer(mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE), np.uint8)
    fence = ctypes.c_void_p(memory.ctypes.data + pages * mmap.PAGESIZE)
    if ctypes.CDLL(None).mprotect(fence, ctypes.c_size_t(mmap.PAGESIZE), 0):
        raise OSError("mprotect failed")
    usable = memory[: pages * mmap.PAGESIZE]
    usable.view(dtype)[:] = np.nan if np.dtype(dtype).kind == "f" else 85
    return np.ndarray(shape, dtype, memory, usable.size - size)  # if empty, at the fence too


def to_blocked(x: np.ndarray, lanes: int, guard: bool = False) -> np.ndarray:
    """[n][c][spatial…] as [n][ceil(c / lanes)][spatial…][lanes], zeros in the lanes past c."""
    n, c, *spatial = x.shape
    blocks = -(-c // lanes)
    padded = np.zeros((n, blocks * lanes, *spatial), x.dtype)
    padded[:, :c] = x
    out = (guarded if guard else aligned)((n, blocks, *spatial, lanes), x.dtype)
    out[:] = np.moveaxis(padded.reshape(n, blocks, lanes, *spatial), 2, -1)
    return out


def from_blocked(y: np.ndarray, channels: int) -> np.ndarray:
    """The inverse of `to_blocked`."""
    n, blocks, *spatial, lanes = y.shape
    return np.moveaxis(y, -1, 2).reshape(n, blocks * lanes, *spatial)[:, :channels]


class BlockedStore:
    """A sink that adds a bias, applies relu and stores in the blocked layout."""

    def __init__(
        self, y: Buffer, bias: Buffer | None, blocks: int, sizes: Sequence[Index], relu: bool
    ) -> None:
        self.y, self.bias, self.blocks, self.sizes, self.relu = y, bias, blocks, sizes, relu
        self.add = "arith.addf" if y.dtype == "f32" else "arith.addi"

    def __call__(
        self, b: Builder, value: Value, at: Sequence[Index], lanes: int, mask: Value | None
    ) -> None:
        if self.bias is not None:
            bias = b.load(self.bias, at[1], lanes)
            value = b.binary(self.add, value, bias, lanes, self.y.dtype)
        if self.relu:
            zero = b.float_constant(0.0, "f32", lanes)
            kind = f"vector<{lanes}xf32>"
            positive = b.op(f"arith.cmpf ogt, {zero}, {value} : {kind}")
            value = b.op(f"arith.select {positive}, {zero}, {value} : vector<{lanes}xi1>, {kind}")
        self.put(b, value, at, lanes, mask)

    def put(
        self, b: Builder, value: Value, at: Sequence[Index], lanes: int, mask: Value | None
    ) -> None:
        """Store a vector, zeros in the lanes that do not exist."""
        n, channel, *places = at
        if mask is not None:
            kind = f"vector<{lanes}x{self.y.dtype}>"
            zero = b.constant("0.0" if self.y.dtype == "f32" else "0", self.y.dtype, lanes)
            value = b.op(f"arith.select {mask}, {value}, {zero} : vector<{lanes}xi1>, {kind}")
        block = b.add(b.mul(n, self.blocks), b.div(channel, lanes))
        strides: list[Index] = [1]
        for size in reversed(self.sizes):
            strides.append(b.mul(strides[-1], size))
        *inner, whole = strides
        plane = b.mul(b.mul(block, whole), lanes)  # loop invariant
        places = [0] * (len(inner) - len(places)) + places
        pixel = b.flatten(places, inner[::-1])  # shared by the vectors of a pixel
        b.store(value, self.y, b.add(plane, b.mul(pixel, lanes)), lanes)


class RequantizedStore(BlockedStore):
    """A sink that requantizes sums with a bias and one scale to unsigned bytes and stores these."""

    def __call__(
        self, b: Builder, value: Value, at: Sequence[Index], lanes: int, mask: Value | None
    ) -> None:
        assert self.bias is not None
        kind = f"vector<{lanes}xf32>"
        value = b.binary("arith.addi", value, b.load(self.bias, at[1], lanes), lanes, "i32")
        value = b.op(f"arith.sitofp {value} : vector<{lanes}xi32> to {kind}")
        value = b.binary("arith.mulf", value, b.float_constant(1e-4, "f32", lanes), lanes)
        value = b.op(f"math.roundeven {value} : {kind}")
        value = b.binary("arith.maximumf", value, b.float_constant(0.0, "f32", lanes), lanes)
        value = b.binary("arith.minimumf", value, b.float_constant(255.0, "f32", lanes), lanes)
        value = b.op(f"arith.fptosi {value} : {kind} to vector<{lanes}xi32>")
        value = b.op(f"arith.trunci {value} : vector<{lanes}xi32> to vector<{lanes}xi8>")
        self.put(b, value, at, lanes, mask)


class CompiledConv:
    """A convolution with bias (and relu of floats), compiled; `values` binds dynamic sizes at each call.

    Of integers the results are the sums with an int32 bias, or bytes with `requantize`; padding holds `fill`, which the
    kernel reads from memory.

    Attributes:
        kernel: the loaded code.
    """

    def __init__(
        self,
        problem: ConvProblem,
        target: Target,
        schedule: ConvSchedule | None = None,
        relu: bool = True,
        fill: int | None = None,
        requantize: bool = False,
    ) -> None:
        self.problem, self.target, self.fill = problem, target, fill
        self.requantize = requantize
        self.schedule = schedule or conv.heuristic(problem, target)
        self.schedule.check(problem, target)
        self.lanes = target.lanes(32)
        self.bytes = conv.scratch_bytes(problem, self.schedule, target)
        element, total = ("i8", "i32") if problem.is_integer else (problem.dtype, "f32")
        result = "i8" if requantize else total
        weights = "i8" if problem.is_integer else problem.weights
        buffers = (element, weights, total, element, result) + (("i8",) if self.bytes else ())
        signature = Signature(buffers, sizes=len(SYMBOLS), scratch=bool(self.bytes))
        b = Builder()
        sizes: dict[str, Index] = {s: signature.size(i) for i, s in enumerate(SYMBOLS)}
        x, w, bias, filler, y = (signature.buffer(i) for i in range(5))
        places = _output(b, problem, sizes)
        relu = relu and not problem.is_integer
        kind = RequantizedStore if requantize else BlockedStore
        store = kind(y, bias, -(-problem.oc // self.lanes), places, relu)
        emit_conv(
            b, problem, self.schedule, target, x, w, store, signature.begin, signature.end,
            sizes, signature.buffer(5) if self.bytes else None, None if fill is None else b.load(filler, 0),
        )  # fmt: skip
        self.kernel = NativeKernel(b, signature, target)

    def arguments(
        self,
        x: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray,
        values: Mapping[str, int],
        guard: bool = False,
    ) -> tuple[list[np.ndarray | int], np.ndarray, int]:
        """All arguments but the part to do, the output in the blocked layout, and the extent.

        With `guard`, scratch memory holds NaN before, and all arrays are `guarded`.
        """
        problem, place = self.problem, guarded if guard else aligned
        blocks = -(-problem.oc // self.lanes)
        shape = (len(x), blocks, *output_sizes(problem, values))
        y = place((*shape, self.lanes), np.uint8 if self.requantize else bias.dtype)
        y[:] = 85 if problem.is_integer else np.nan
        packed = conv.pack(weight, problem, self.schedule, self.target)
        weights = place(packed.shape, packed.dtype)
        weights[:] = packed
        biases = place((blocks * self.lanes,), bias.dtype)
        biases[:] = 0
        biases[: problem.oc] = bias
        if problem.layout == "blocked":
            data = to_blocked(x, self.lanes, guard)
        else:
            data = place(x.shape, x.dtype)
            data[:] = x
        filler = np.full(1, self.fill or 0, x.dtype)
        arguments: list[np.ndarray | int] = [data, weights, biases, filler, y]
        if self.bytes:
            arguments.append(place((self.bytes // 4,)))
        arguments += [values.get(symbol, 0) for symbol in SYMBOLS]
        return arguments, y, conv.extent(problem, self.schedule, self.target, values)

    def __call__(
        self,
        x: np.ndarray,
        weight: np.ndarray,
        bias: np.ndarray,
        values: Mapping[str, int] | None = None,
        threads: int = 1,
    ) -> np.ndarray:
        """The output in the blocked layout, computed in `threads` parts one after the other.

        Reads and writes outside the arrays fault or give NaN.
        """
        arguments, y, extent = self.arguments(x, weight, bias, values or {}, guard=True)
        cuts = [extent * part // threads for part in range(threads + 1)]
        for begin, end in pairwise(cuts):
            self.kernel(*arguments, begin, end)
        return y


def _is_integer_depthwise(
    problem: DepthwiseProblem | PoolProblem | GlobalPoolProblem,
) -> TypeGuard[DepthwiseProblem]:
    return isinstance(problem, DepthwiseProblem) and problem.is_integer


def _output(b: Builder, problem: ConvProblem, sizes: Mapping[str, Index]) -> list[Index]:
    """The spatial sizes of the result, as `output_sizes` says."""
    window = WindowSizes.of(b, problem, sizes)
    places = [window.oh, window.ow] if problem.depth is None else [window.od, window.oh, window.ow]
    ones, zeros = (1,) * len(places), (0,) * len(places)
    phases = problem.phases or Phases(ones, ones, zeros, zeros)
    return [
        b.sub(b.mul(place, factor), missing)
        for place, factor, missing in zip(places, phases.factors, phases.missing, strict=True)
    ]


def output_sizes(problem: ConvProblem, values: Mapping[str, int]) -> list[int]:
    """Depth, if it is of a volume, rows and columns of the result."""
    d, h, w = (resolve(size, values) for size in (problem.d, problem.h, problem.w))
    image = [problem.output(0, h), problem.output(1, w)]
    if problem.depth is None:
        return image
    depth = problem.depth.output(0, d)
    if problem.phases:
        depth = depth * problem.phases.factors[0] - problem.phases.missing[0]
    return [depth, *image]


def whole_window(window: Window, depth: Window | None) -> Window:
    """The window over all axes: `depth` first, if it is of a volume."""
    if depth is None:
        return window
    pads = (*depth.pads[:1], *window.pads[:2], *depth.pads[1:], *window.pads[2:])
    return Window(
        depth.kernel + window.kernel, depth.strides + window.strides, pads,
        depth.dilations + window.dilations, window.ceil_mode,
    )  # fmt: skip


def reference(x: np.ndarray, weight: np.ndarray, problem: ConvProblem, fill: int = 0) -> np.ndarray:
    """The convolution in float64, which holds the sums of 8-bit integers exactly, from its definition."""
    window, groups = whole_window(problem.window, problem.depth), problem.groups
    axes = range(len(window.kernel))
    around = ((0, 0), (0, 0), *((window.before(axis), window.after(axis)) for axis in axes))
    padded = np.pad(x.astype(np.float64), around, constant_values=fill)
    n, c, *spatial = x.shape
    counts = [window.output(axis, size) for axis, size in enumerate(spatial)]
    parts = padded.reshape(n, groups, c // groups, *padded.shape[2:])
    kernels = weight.astype(np.float64).reshape(groups, problem.oc // groups, *weight.shape[1:])
    out = np.zeros((n, groups, problem.oc // groups, *counts))
    for tap in product(*map(range, window.kernel)):
        starts = [i * step for i, step in zip(tap, window.dilations, strict=True)]
        taken = parts[(..., *map(slice, starts, _ends(starts, counts, window), window.strides))]
        out += np.einsum("ngc...,goc->ngo...", taken, kernels[(..., *tap)], optimize=True)
    return out.reshape(n, problem.oc, *counts)


def _ends(starts: Sequence[int], counts: Sequence[int], window: Window) -> list[int]:
    """Where the places end that a tap meets."""
    return [
        start + (count - 1) * stride + 1
        for start, count, stride in zip(starts, counts, window.strides, strict=True)
    ]


class CompiledWindow:
    """A depthwise convolution or pool without epilogue, compiled."""

    def __init__(
        self,
        problem: DepthwiseProblem | PoolProblem | GlobalPoolProblem,
        target: Target,
        schedule: WindowSchedule | GlobalPoolSchedule | None = None,
        fill: int | None = None,
    ) -> None:
        self.problem, self.target, self.lanes = problem, target, target.lanes(32)
        self.fill = fill
        element = problem.dtype.removeprefix("u")
        total = "i32" if _is_integer_depthwise(problem) else element
        signature = Signature((element, element, element, total), sizes=len(SYMBOLS))
        b = Builder()
        sizes: dict[str, Index] = {s: signature.size(i) for i, s in enumerate(SYMBOLS)}
        x, w, filler, y = (signature.buffer(i) for i in range(4))
        blocks = -(-problem.c // self.lanes)
        part = (signature.begin, signature.end, sizes)
        if isinstance(problem, GlobalPoolProblem):
            store = BlockedStore(y, None, blocks, (1, 1), relu=False)
            chosen = schedule or pool.global_heuristic(problem, target)
            emit_global_pool(b, problem, chosen, target, x, store, *part)
        else:
            window = WindowSizes.of(b, problem, sizes)
            places = (window.od, window.oh, window.ow)
            store = BlockedStore(y, None, blocks, places, relu=False)
            if isinstance(problem, DepthwiseProblem):
                self.schedule = schedule or depthwise.heuristic(problem, target)
                arguments = (b, problem, self.schedule, target, x, w, store, *part)
                if problem.is_integer:
                    outside = None if fill is None else b.load(filler, 0)
                    emit_integer_depthwise(*arguments, outside)
                else:
                    emit_depthwise(*arguments)
            else:
                self.schedule = schedule or pool.heuristic(problem, target)
                emit_pool(b, problem, self.schedule, target, x, store, *part)
        self.kernel = NativeKernel(b, signature, target)

    def arguments(
        self,
        x: np.ndarray,
        weight: np.ndarray | None,
        values: Mapping[str, int],
        guard: bool = False,
    ) -> tuple[list[np.ndarray | int], np.ndarray, int]:
        """All arguments but the part to do, the output in the blocked layout, and the extent."""
        problem, place = self.problem, guarded if guard else aligned
        blocks = -(-problem.c // self.lanes)
        if isinstance(problem, GlobalPoolProblem):
            shape = (1, 1)
            extent = pool.global_extent(problem, self.target, values)
        else:
            window = whole_window(problem.window, problem.depth)
            shape = tuple(window.output(axis, size) for axis, size in enumerate(x.shape[2:]))
            extent = self.schedule.extent(problem, self.target, values)
        is_integer = _is_integer_depthwise(problem)
        y = place((len(x), blocks, *shape, self.lanes), np.int32 if is_integer else x.dtype)
        y[:] = np.nan if y.dtype.kind == "f" else 85
        packed = np.zeros(0, x.dtype)
        if weight is not None:
            packed = (
                depthwise.pack_integers(weight, problem, self.target)
                if _is_integer_depthwise(problem)
                else depthwise.pack(weight, self.target)
            )
        weights = place(packed.shape, packed.dtype)
        weights[:] = packed
        filler = np.full(1, self.fill or 0, x.dtype)
        symbols = [values.get(symbol, 0) for symbol in SYMBOLS]
        return [to_blocked(x, self.lanes, guard), weights, filler, y, *symbols], y, extent

    def __call__(
        self,
        x: np.ndarray,
        weight: np.ndarray | None = None,
        values: Mapping[str, int] | None = None,
        threads: int = 1,
    ) -> np.ndarray:
        """The output in the blocked layout, computed in `threads` parts one after the other.

        Reads and writes outside the arrays fault or give NaN.
        """
        arguments, y, extent = self.arguments(x, weight, values or {}, guard=True)
        cuts = [extent * part // threads for part in range(threads + 1)]
        for begin, end in pairwise(cuts):
            self.kernel(*arguments, begin, end)
        return y
