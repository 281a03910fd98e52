"""The emitter of maximum pools that also say where the maxima stand.

While a window is gone over, registers hold the number of the place of its maximum within the window, in 32 bits; of
that the place in the tensor is computed once, in 64.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.pool import Maximum
from xcompile.compiler.codegen.cpu.sink import Sink
from xcompile.compiler.codegen.cpu.windows import WindowRows, WindowSizes
from xcompile.compiler.schedule.pool import PoolProblem
from xcompile.compiler.schedule.schedule import TargetNumbers
from xcompile.compiler.schedule.window import Window, WindowSchedule


def emit_indexed_pool(
    b: Builder,
    problem: PoolProblem,
    schedule: WindowSchedule,
    target: TargetNumbers,
    x: Buffer,
    maxima: Sink,
    places: Buffer,
    shape: Sequence[Index],
    column_major: bool,
    begin: Index,
    end: Index,
    sizes: Mapping[str, Index],
) -> None:
    """Write the units [begin, end) of a pool.

    Args:
        b: where to write.
        problem: the pool.
        schedule: a legal schedule.
        target: the machine.
        x: the blocked input.
        maxima: called with output indices (n, channel, row, column), with the depth of a volume behind the channel;
            lanes run along channels.
        places: row-major int64: where each maximum stands in the input laid out flat, -1 for a window without any.
        shape: of the input.
        column_major: whether the places of a channel are counted with the first spatial axis the fastest.
        begin: the first unit.
        end: one past the last unit.
        sizes: values of the problem's symbols.
    """
    window_sizes, lanes = WindowSizes.of(b, problem, sizes), target.lanes(32)
    values = Maximum(b, lanes, problem.dtype)
    reduction = _Indexed(b, lanes, problem, values, tuple(shape[2:]), column_major)
    store = _PlaceStore(b, places, problem.c, window_sizes, tuple(shape[2:]))
    sinks = [maxima, store]
    WindowRows(b, problem, schedule, target, x, reduction, sinks, window_sizes).units(begin, end)


@dataclass(frozen=True)
class _Indexed:
    b: Builder
    lanes: int
    problem: PoolProblem
    values: Maximum
    spatial: tuple[Index, ...]
    column_major: bool

    @property
    def types(self) -> Sequence[str]:
        return [*self.values.types, vector_type(self.lanes, "i32")]

    def identity(self, block: Index) -> Sequence[Value]:
        return [self.values.least, self.b.int_constant(-1, "i32", self.lanes)]

    def weight(self, block: Index, r: Index, s: Index, alone: Value | bool) -> Value:
        """The number of a place in the window."""
        b = self.b
        number = b.add(b.mul(r, self.problem.window.kernel[1]), s)
        if isinstance(number, int):
            return b.int_constant(number, "i32", self.lanes)
        return b.broadcast(b.op(f"arith.index_cast {number} : index to i32"), "i32", self.lanes)

    def combine(
        self, accumulators: Sequence[Value], x: Value, weight: Value | None
    ) -> Sequence[Value]:
        assert weight is not None
        b, (best, place), flags = self.b, accumulators, vector_type(self.lanes, "i1")
        none = b.int_constant(0, "i32", self.lanes)
        first = b.op(f"arith.cmpi slt, {place}, {none} : {self.types[1]}")
        taken = b.op(f"arith.ori {first}, {self._better(x, best)} : {flags}")
        return [
            b.op(f"arith.select {taken}, {new}, {old} : {flags}, {kind}")
            for new, old, kind in ((x, best, self.types[0]), (weight, place, self.types[1]))
        ]

    def _better(self, x: Value, best: Value) -> Value:
        """Whether an input is greater than what is held, or the first NaN."""
        b, kind = self.b, self.types[0]
        if self.problem.dtype != "f32":
            sign = "u" if self.problem.dtype.startswith("u") else "s"
            return b.op(f"arith.cmpi {sign}gt, {x}, {best} : {kind}")
        greater = b.op(f"arith.cmpf ugt, {x}, {best} : {kind}")
        number = b.op(f"arith.cmpf ord, {best}, {best} : {kind}")
        return b.op(f"arith.andi {greater}, {number} : {vector_type(self.lanes, 'i1')}")

    def result(
        self, accumulators: Sequence[Value], at: Sequence[Index], whole: bool
    ) -> Sequence[Value]:
        """The maxima, and their places in the channel, -1 for none."""
        b, (best, number) = self.b, accumulators
        base: Index = 0
        rest, found = number, b.int_constant(0, "i64", self.lanes)
        for (window, axis), place, stride in reversed(
            list(zip(self._axes(), at[-len(self.spatial) :], self._strides(), strict=True))
        ):
            start = b.sub(b.mul(place, window.strides[axis]), window.before(axis))
            base = b.add(base, b.mul(start, stride))
            rest, tap = self._split(rest, window.kernel[axis])
            step = _splat(b, b.mul(stride, window.dilations[axis]), self.lanes)
            wide = b.op(f"arith.extsi {tap} : {self.types[1]} to {vector_type(self.lanes, 'i64')}")
            away = b.binary("arith.muli", wide, step, self.lanes, "i64")
            found = b.binary("arith.addi", found, away, self.lanes, "i64")
        found = b.binary("arith.addi", found, _splat(b, base, self.lanes), self.lanes, "i64")
        none = b.int_constant(0, "i32", self.lanes)
        lacks = b.op(f"arith.cmpi slt, {number}, {none} : {self.types[1]}")
        minus, flags = b.int_constant(-1, "i64", self.lanes), vector_type(self.lanes, "i1")
        kind = vector_type(self.lanes, "i64")
        return [best, b.op(f"arith.select {lacks}, {minus}, {found} : {flags}, {kind}")]

    def _axes(self) -> list[tuple[Window, int]]:
        """The window and its axis for each spatial axis."""
        image = [(self.problem.window, 0), (self.problem.window, 1)]
        return image if self.problem.depth is None else [(self.problem.depth, 0), *image]

    def _strides(self) -> list[Index]:
        """How far apart neighbours along each spatial axis are numbered."""
        strides: list[Index] = []
        step: Index = 1
        for size in self.spatial if self.column_major else reversed(self.spatial):
            strides.append(step)
            step = self.b.mul(step, size)
        return strides if self.column_major else strides[::-1]

    def _split(self, number: Value, size: int) -> tuple[Value, Value]:
        """A number of 32 bits divided by a size, and the rest."""
        divisor = self.b.int_constant(size, "i32", self.lanes)
        quotient = self.b.binary("arith.divui", number, divisor, self.lanes, "i32")
        return quotient, self.b.binary("arith.remui", number, divisor, self.lanes, "i32")


@dataclass(frozen=True)
class _PlaceStore:
    """The sink of places in a channel, which makes them places in the tensor."""

    b: Builder
    places: Buffer
    c: int
    sizes: WindowSizes
    spatial: tuple[Index, ...]

    def __call__(
        self, _: Builder, value: Value, at: Sequence[Index], lanes: int, mask: Value | None
    ) -> None:
        b, (n, channel, *where) = self.b, at
        sizes = [self.sizes.od, self.sizes.oh, self.sizes.ow][-len(where) :]
        inside: Index = 0
        for place, size in zip(where, sizes, strict=True):
            inside = b.add(b.mul(inside, size), place)
        plane, length = _product(b, self.spatial), _product(b, sizes)
        for lane in range(lanes):
            own = b.add(channel, lane)
            row = b.add(b.mul(n, self.c), own)
            exists = True if self.c % lanes == 0 else b.compare("slt", own, self.c)
            with b.when(exists):
                one = b.op(f"vector.extract {value}[{lane}] : i64 from {vector_type(lanes, 'i64')}")
                start = _number(b, b.mul(row, plane))
                moved = b.op(f"arith.addi {one}, {start} : i64")
                none = b.op(f"arith.cmpi slt, {one}, {_number(b, 0)} : i64")
                moved = b.op(f"arith.select {none}, {one}, {moved} : i64")
                b.store(moved, self.places, b.add(b.mul(row, length), inside))


def _product(b: Builder, sizes: Sequence[Index]) -> Index:
    result: Index = 1
    for size in sizes:
        result = b.mul(result, size)
    return result


def _number(b: Builder, value: Index) -> Value:
    """An index as an int64."""
    if isinstance(value, int):
        return b.int_constant(value, "i64")
    return b.op(f"arith.index_cast {value} : index to i64")


def _splat(b: Builder, value: Index, lanes: int) -> Value:
    """An index as a vector of int64."""
    if isinstance(value, int):
        return b.int_constant(value, "i64", lanes)
    return b.broadcast(_number(b, value), "i64", lanes)
