"""The emitters of pools."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.power import power_of, root_of
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import (
    Decode,
    Reduction,
    WindowRows,
    WindowSizes,
    index_of,
    taps,
)
from xcompile.compiler.ir.dtypes import bits_of, is_unsigned
from xcompile.compiler.schedule.pool import GlobalPoolProblem, GlobalPoolSchedule, PoolProblem
from xcompile.compiler.schedule.schedule import TargetNumbers
from xcompile.compiler.schedule.window import Window, WindowSchedule


def emit_pool(
    b: Builder,
    problem: PoolProblem,
    schedule: WindowSchedule,
    target: TargetNumbers,
    x: Buffer,
    sink: Sink,
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index],
    decode: Decode | None = None,
) -> None:
    """Write the units [begin, end) of a pool.

    Args:
        b: where to write.
        problem: the pool.
        schedule: a legal schedule.
        target: the machine.
        x: the blocked input.
        sink: called with output indices (n, channel, row, column), with the depth of a volume behind the channel;
            lanes run along channels.
        begin: the first unit.
        end: one past the last unit.
        sizes: values of the problem's symbols.
        decode: makes elements of the problem's type of those in memory; None where they are that.
    """
    window_sizes = WindowSizes.of(b, problem, sizes)
    lanes = target.lanes(32)
    reduction: Reduction = Maximum(b, lanes, problem.dtype)
    if problem.kind == "average":
        reduction = _Average(b, lanes, problem, window_sizes)
    if problem.kind == "norm":
        reduction = _Norm(b, lanes, problem.power)
    rows = WindowRows(b, problem, schedule, target, x, reduction, [sink], window_sizes, decode)
    rows.units(begin, end)


def emit_global_pool(
    b: Builder,
    problem: GlobalPoolProblem,
    schedule: GlobalPoolSchedule,
    target: TargetNumbers,
    x: Buffer,
    sink: Sink,
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index],
    decode: Decode | None = None,
) -> None:
    """Write the units [begin, end) of a global pool; the sink gets (n, channel), and 0 for all other axes.

    Arguments are those of `emit_pool`.
    """
    lanes = target.lanes(32)
    blocks = -(-problem.c // lanes)
    n, h, w = (index_of(b, size, sizes) for size in (problem.n, problem.h, problem.w))
    pixels = b.mul(h, w)
    maximum, is_max = Maximum(b, lanes, problem.dtype), problem.kind == "max"
    add = "arith.addf" if problem.dtype == "f32" else "arith.addi"
    zero = b.constant("0.0" if problem.dtype == "f32" else "0", problem.dtype, lanes)

    def combine(u: Value, v: Value) -> Value:
        return maximum.greater(u, v) if is_max else b.binary(add, u, v, lanes, problem.dtype)

    with b.loop(begin, end) as unit:
        image, block = b.unflatten(unit, [n, blocks])
        channel = b.mul(block, lanes)

        def load(at: Index, image: Index = image, channel: Index = channel) -> Value:
            value = b.load(x, at, lanes)
            return value if decode is None else decode(value, image, channel)

        plane = b.mul(unit, b.mul(pixels, lanes))
        init = [maximum.least if is_max else zero] * schedule.chains
        value = _fold(b, load, plane, pixels, lanes, init, combine, maximum.types[0])
        if problem.kind == "average":
            value = b.binary("arith.divf", value, _splat(b, pixels, lanes), lanes)
        ragged = problem.c % lanes != 0
        mask = b.tail_mask(b.sub(problem.c, channel), lanes) if ragged else None
        sink(b, value, [image, channel, 0, 0], lanes, mask)


def _fold(
    b: Builder,
    load: Callable[[Index], Value],
    base: Index,
    pixels: Index,
    lanes: int,
    values: list[Value],
    combine: Callable[[Value, Value], Value],
    kind: str,
) -> Value:
    """All pixels of a plane, in the accumulators that are given, then their rest."""
    count = len(values)

    def chains(pixel: Index, carried: list[Value]) -> Sequence[Value]:
        at = b.add(base, b.mul(pixel, lanes))
        return [combine(value, load(b.add(at, i * lanes))) for i, value in enumerate(carried)]

    def single(pixel: Index, carried: list[Value]) -> Sequence[Value]:
        return [combine(carried[0], load(b.add(base, b.mul(pixel, lanes))))]

    whole = b.mul(b.div(pixels, count), count)
    values = b.reduce(0, whole, count, values, [kind] * count, chains)
    while len(values) > 1:
        values = [combine(u, v) for u, v in zip(values[::2], values[1::2], strict=True)]
    return b.reduce(whole, pixels, 1, values, [kind], single)[0]


def _splat(b: Builder, count: Index, lanes: int) -> Value:
    """A positive count as a vector of floats."""
    if isinstance(count, int):
        return b.float_constant(float(count), "f32", lanes)
    integer = b.op(f"arith.index_cast {count} : index to i32")
    return b.broadcast(b.op(f"arith.sitofp {integer} : i32 to f32"), "f32", lanes)


@dataclass(frozen=True)
class Maximum:
    """The reduction of maximum pools."""

    b: Builder
    lanes: int
    dtype: str

    @property
    def element(self) -> str:
        return self.dtype.removeprefix("u")

    @property
    def types(self) -> Sequence[str]:
        return [vector_type(self.lanes, self.element)]

    @property
    def least(self) -> Value:
        """What is no larger than any element."""
        if self.dtype == "f32":
            return self.b.float_constant(float("-inf"), "f32", self.lanes)
        least = 0 if is_unsigned(self.dtype) else -(1 << (bits_of(self.dtype) - 1))
        return self.b.int_constant(least, self.element, self.lanes)

    def greater(self, x: Value, y: Value) -> Value:
        """The greater ones of two vectors."""
        op = "arith.maxui" if is_unsigned(self.dtype) else "arith.maxsi"
        op = "arith.maximumf" if self.dtype == "f32" else op
        return self.b.binary(op, x, y, self.lanes, self.element)

    def identity(self, block: Index) -> Sequence[Value]:
        return [self.least]

    def weight(self, block: Index, r: Index, s: Index, alone: Value | bool) -> None:
        return None

    def combine(
        self, accumulators: Sequence[Value], x: Value, weight: Value | None
    ) -> Sequence[Value]:
        return [self.greater(accumulators[0], x)]

    def result(
        self, accumulators: Sequence[Value], at: Sequence[Index], whole: bool
    ) -> Sequence[Value]:
        return accumulators


@dataclass(frozen=True)
class _Sum:
    """What reductions by sums of float32 share."""

    b: Builder
    lanes: int

    @property
    def types(self) -> Sequence[str]:
        return [vector_type(self.lanes, "f32")]

    def identity(self, block: Index) -> Sequence[Value]:
        return [self.b.float_constant(0.0, "f32", self.lanes)]

    def weight(self, block: Index, r: Index, s: Index, alone: Value | bool) -> None:
        return None


@dataclass(frozen=True)
class _Norm(_Sum):
    power: int

    def combine(
        self, accumulators: Sequence[Value], x: Value, weight: Value | None
    ) -> Sequence[Value]:
        b, lanes = self.b, self.lanes
        magnitude = b.op(f"math.absf {x} : {self.types[0]}")
        more = power_of(b, magnitude, self.power, lanes)
        return [b.binary("arith.addf", accumulators[0], more, lanes)]

    def result(
        self, accumulators: Sequence[Value], at: Sequence[Index], whole: bool
    ) -> Sequence[Value]:
        return [root_of(self.b, accumulators[0], self.power, self.lanes)]


@dataclass(frozen=True)
class _Average(_Sum):
    problem: PoolProblem
    sizes: WindowSizes

    def combine(
        self, accumulators: Sequence[Value], x: Value, weight: Value | None
    ) -> Sequence[Value]:
        return [self.b.binary("arith.addf", accumulators[0], x, self.lanes)]

    def result(
        self, accumulators: Sequence[Value], at: Sequence[Index], whole: bool
    ) -> Sequence[Value]:
        b, window, (depth, row, column) = self.b, self.problem.window, at
        columns = window.kernel[1] if whole else self.count(window, 1, column, self.sizes.w)
        count = b.mul(self.count(window, 0, row, self.sizes.h), columns)
        if self.problem.depth is not None:
            count = b.mul(count, self.count(self.problem.depth, 0, depth, self.sizes.d))
        divisor = _splat(b, count, self.lanes)
        return [b.binary("arith.divf", accumulators[0], divisor, self.lanes)]

    def count(self, window: Window, axis: int, output: Index, size: Index) -> Index:
        """How many images, rows or columns of a window the average counts."""
        before, after = window.before(axis), window.after(axis)
        if not self.problem.count_include_pad:
            low, high = taps(self.b, window, axis, output, size, 0, 0)
            return self.b.sub(high, low)
        if not window.ceil_mode:
            return window.kernel[axis]
        low, high = taps(self.b, window, axis, output, size, before, after)
        return self.b.sub(high, low)
