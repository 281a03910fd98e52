"""Element functions of ops that read between the elements of an image; see `dialects/nn/sampling.py`.

Places are computed in float64, as in the references; sums in float32, or in float64 for float64 and integers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.nests import nest, read, wide
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls
from xcompile.compiler.codegen.cpu.resize_elements import cubic_weight, linear_weight
from xcompile.compiler.ir.dtypes import is_float
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.sampling import CUBIC


@dataclass(frozen=True)
class _Place:
    """A place along one axis of an image, an f64."""

    pull: Pull
    s: Scalars
    size: Index
    at: Value

    @property
    def last(self) -> Value:
        """The number of the last element."""
        return _number(self.pull, self.s, self.pull.b.sub(self.size, 1))

    def inside(self, index: Value) -> Value:
        """Whether a whole number is that of an element."""
        s = self.s
        low, high = s.compare("ge", index, s.const(0)), s.compare("le", index, self.last)
        return _both(s, low, high)

    def element(self, index: Value) -> Coordinate:
        """A whole number as a coordinate, clamped to the axis."""
        s = self.s
        clamped = s.maximum(s.minimum(index, self.last), s.const(0))
        whole = convert(self.pull.b, clamped, "f64", "i64", s.lanes)
        return self.pull.index_value(whole, "i64")


def _number(pull: Pull, s: Scalars, value: Index) -> Value:
    return s.const(value) if isinstance(value, int) else pull.as_element(value, s.dtype)


def _both(s: Scalars, a: Value, b: Value) -> Value:
    return s.b.binary("arith.andi", a, b, s.lanes, "i1")


def _sum_type(pull: Pull, dtype: str) -> Scalars:
    return Scalars(pull.b, pull.lanes, wide(dtype) if is_float(dtype) else "f64")


def _number_at(pull: Pull, tensor: Tensor, at: At) -> Value:
    return convert(pull.b, pull.value(tensor, at), dtype_of(tensor), "f64", pull.lanes)


# -- grid_sample ----------------------------------------------------------------------------------


def _folded(s: Scalars, x: Value, low: Value, high: Value) -> Value:
    """A place reflected at `low` and `high` until it lies between; `low` where they are the same."""
    span = s.sub(high, low)
    wide_enough = s.compare("gt", span, s.const(0))
    period = s.mul(s.select(wide_enough, span, s.const(1)), s.const(2))
    distance = s.op("math.absf", s.sub(x, low))
    turns = s.op("math.floor", s.div(distance, period))
    turn = s.sub(distance, s.mul(turns, period))
    back = s.add(low, s.minimum(turn, s.sub(period, turn)))
    return s.select(wide_enough, back, low)


@dataclass(frozen=True)
class _GridAxis:
    """One axis of a grid_sample."""

    op: Any
    place: _Place

    def edges(self) -> tuple[Value, Value]:
        s, last = self.place.s, self.place.last
        half = s.const(0.5)
        return (s.const(0), last) if self.op.align_corners else (s.const(-0.5), s.add(last, half))

    def brought(self, grid: Value) -> "_GridAxis":
        """The axis with its place from the grid's number, brought to the border or reflected."""
        s, op, last = self.place.s, self.op, self.place.last
        span = last if op.align_corners else s.add(last, s.const(1))
        at = s.mul(s.mul(s.add(grid, s.const(1)), s.const(0.5)), span)
        at = at if op.align_corners else s.sub(at, s.const(0.5))
        if op.mode == "nearest":
            at = s.op("math.roundeven", at)
        low, high = self.edges()
        if op.padding != "zeros":
            moved = (
                s.maximum(s.minimum(at, last), s.const(0))
                if op.padding == "border"
                else _folded(s, at, low, high)
            )
            kept = _both(s, s.compare("ge", at, low), s.compare("le", at, high))
            at = s.select(kept, at, moved)
        return _GridAxis(op, _Place(self.place.pull, s, self.place.size, at))

    def tap(self, k: Index) -> tuple[Coordinate, Value]:
        """The k-th element that has a weight, and the weight."""
        s, op, at = self.place.s, self.op, self.place.at
        if op.mode == "nearest":
            index, weight = at, s.const(1)
        else:
            first = 1 if op.mode == "cubic" else 0
            number = _number(self.place.pull, s, self.place.pull.b.sub(k, first))
            index = s.add(s.op("math.floor", at), number)
            distance = s.op("math.absf", s.sub(index, at))
            weight = cubic_weight(s, distance, CUBIC) if first else linear_weight(s, distance)
        inside = self.place.inside(index)
        if op.padding == "zeros":
            weight = s.select(inside, weight, s.const(0))
        elif op.padding == "reflection":
            index = s.select(inside, index, _folded(s, index, *self.edges()))
        return self.place.element(index), weight


@pulls("nn.grid_sample", loops=True)
def _grid_sample(pull: Pull, op: Any, at: At) -> Value:
    dtype, rank = dtype_of(op.y), len(at) - 2
    s, total = Scalars(pull.b, pull.lanes, "f64"), _sum_type(pull, dtype)
    axes: list[_GridAxis] = []
    for i, size in enumerate(pull.shape(op.x)[2:]):
        grid = _number_at(pull, op.grid, [at[0], *at[2:], rank - 1 - i])
        axes.append(_GridAxis(op, _Place(pull, s, size, grid)).brought(grid))
    if op.mode == "nearest" and op.padding != "zeros":
        return pull.value(op.x, [*at[:2], *[axis.tap(0)[0] for axis in axes]])

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        taps = [axis.tap(k) for axis, k in zip(axes, ks, strict=True)]
        weight = taps[0][1]
        for _, other in taps[1:]:
            weight = s.mul(weight, other)
        x = pull.value(op.x, [*at[:2], *[place for place, _ in taps]])
        x = convert(pull.b, x, dtype, total.dtype, pull.lanes)
        factor = convert(pull.b, weight, "f64", total.dtype, pull.lanes)
        return [total.add(sums[0], total.mul(x, factor))]

    count = {"nearest": 1, "linear": 2, "cubic": 4}[op.mode]
    result = nest(pull, [count] * rank, [total.const(0)], [total.type], body)[0]
    return convert(pull.b, result, total.dtype, dtype, pull.lanes)


# -- deform_conv ----------------------------------------------------------------------------------


@pulls("nn.deform_conv", loops=True)
def _deform_conv(pull: Pull, op: Any, at: At) -> Value:
    dtype, c, b = dtype_of(op.y), pull.coordinates, pull.b
    total = _sum_type(pull, dtype)
    image, weight = pull.shape(op.x), pull.shape(op.w)
    rank, kernel = len(image) - 2, weight[2:]
    base = c.mul(c.div(at[1], b.div(weight[0], op.groups)), weight[1])
    each = b.div(image[1], op.offset_groups)
    taps: Index = 1
    for size in kernel:
        taps = b.mul(taps, size)

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        channel = c.add(base, ks[0])
        number: Index = 0
        for k, size in zip(ks[1:], kernel, strict=True):
            number = b.add(b.mul(number, size), k)
        tap = c.add(c.mul(c.div(channel, each), taps), number)
        places = [_moved(pull, op, at, ks[1:], tap, i) for i in range(rank)]
        x = _between(pull, op.x, [at[0], channel], places, total)
        product = total.mul(x, read(pull, op.w, [at[1], *ks]))
        if op.mask is not None:
            product = total.mul(product, read(pull, op.mask, [at[0], tap, *at[2:]]))
        return [total.add(sums[0], product)]

    start = total.const(0) if op.bias is None else read(pull, op.bias, [at[1]])
    result = nest(pull, [weight[1], *kernel], [start], [total.type], body)[0]
    return convert(pull.b, result, total.dtype, dtype, pull.lanes)


def _moved(pull: Pull, op: Any, at: At, ks: Sequence[Index], tap: Coordinate, i: int) -> _Place:
    """Where a tap reads along axis i: at its own place plus its offset."""
    s, c, b = Scalars(pull.b, pull.lanes, "f64"), pull.coordinates, pull.b
    start = c.add(c.mul(at[2 + i], op.strides[i]), b.mul(ks[i], op.dilations[i]))
    own = s.sub(pull.as_element(start, "f64"), s.const(op.pads[i]))
    rank = len(ks)
    offset = _number_at(pull, op.offset, [at[0], c.add(c.mul(tap, rank), i), *at[2:]])
    return _Place(pull, s, pull.shape(op.x)[2 + i], s.add(own, offset))


def _between(
    pull: Pull, image: Tensor, lead: Sequence[Coordinate], places: Sequence[_Place], total: Scalars
) -> Value:
    """An image between its elements, with zeros around it."""
    s = places[0].s

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        weight, source = s.const(1), list(lead)
        for place, k in zip(places, ks, strict=True):
            index = s.add(s.op("math.floor", place.at), _number(pull, s, k))
            near = linear_weight(s, s.op("math.absf", s.sub(index, place.at)))
            weight = s.mul(weight, s.select(place.inside(index), near, s.const(0)))
            source.append(place.element(index))
        factor = convert(pull.b, weight, "f64", total.dtype, pull.lanes)
        return [total.add(sums[0], total.mul(read(pull, image, source), factor))]

    return nest(pull, [2] * len(places), [total.const(0)], [total.type], body)[0]


# -- regions --------------------------------------------------------------------------------------


@pulls("nn.roi_align", loops=True, lanes=False)
def _roi_align(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s, total = Scalars(pull.b, 0, "f64"), _sum_type(pull, dtype)
    batch = _whole(pull, pull.value(op.batches, [at[0]]), dtype_of(op.batches))
    rows, columns = (
        _samples(pull, op, at, axis, cells) for axis, cells in ((1, op.height), (0, op.width))
    )
    first = total.const(0 if op.mode == "avg" else -float("inf"))

    def body(ks: list[Index], found: list[Value]) -> list[Value]:
        result = found[0]
        for (row, row_weight), (column, column_weight) in product(
            rows[1](ks[0]), columns[1](ks[1])
        ):
            weight = s.mul(row_weight, column_weight)
            x = read(pull, op.x, [batch, at[1], row, column])
            part = total.mul(x, convert(pull.b, weight, "f64", total.dtype, 0))
            result = (total.add if op.mode == "avg" else total.maximum)(result, part)
        return [result]

    counts = [rows[0], columns[0]]
    result = nest(pull, counts, [first], [total.type], body)[0]
    samples = pull.b.mul(*counts)
    if op.mode == "avg":
        result = total.div(result, _number(pull, total, pull.b.max(samples, 1)))
    else:
        some = pull.b.compare("sgt", samples, 0)
        result = pull.select(some, result, total.const(0), total.dtype)
    return convert(pull.b, result, total.dtype, dtype, 0)


def _whole(pull: Pull, value: Value, dtype: str) -> Coordinate:
    """An index that is data, made 0 when negative."""
    index = pull.index_value(value, dtype)
    assert isinstance(index, int | str)
    return pull.b.max(index, 0)


_Corners = Callable[[Index], list[tuple[Coordinate, Value]]]


def _samples(pull: Pull, op: Any, at: At, axis: int, cells: int) -> tuple[Index, _Corners]:
    """The number of samples of a cell along one axis (0: x), and for each its two elements with their weights."""
    s, b = Scalars(pull.b, 0, "f64"), pull.b
    shift = s.const(0.5 if op.half_pixel else 0.0)
    start, end = (
        s.sub(s.mul(_number_at(pull, op.rois, [at[0], i]), s.const(op.scale)), shift)
        for i in (axis, axis + 2)
    )
    extent = s.sub(end, start)
    extent = extent if op.half_pixel else s.maximum(extent, s.const(1))
    cell = s.div(extent, s.const(cells))
    count: Index = op.ratio
    if not op.ratio:
        whole = convert(b, s.op("math.ceil", cell), "f64", "i64", 0)
        count = b.max(b.op(f"arith.index_cast {whole} : i64 to index"), 0)
    size = pull.shape(op.x)[3 - axis]
    number = pull.as_element(at[3 - axis], "f64")

    def corners(k: Index) -> list[tuple[Coordinate, Value]]:
        step = s.div(s.add(_number(pull, s, k), s.const(0.5)), _number(pull, s, b.max(count, 1)))
        raw = s.add(start, s.mul(s.add(number, step), cell))
        place = _Place(pull, s, size, raw)
        counts = _both(
            s,
            s.compare("ge", raw, s.const(-1)),
            s.compare("le", raw, s.add(place.last, s.const(1))),
        )
        clamped = s.maximum(s.minimum(raw, place.last), s.const(0))
        low = s.op("math.floor", clamped)
        upper = s.sub(clamped, low)
        weights = s.sub(s.const(1), upper), upper
        indices = low, s.add(low, s.const(1))
        return [
            (place.element(i), s.select(counts, w, s.const(0)))
            for i, w in zip(indices, weights, strict=True)
        ]

    return count, corners


@pulls("nn.max_roi_pool", loops=True, lanes=False)
def _max_roi_pool(pull: Pull, op: Any, at: At) -> Value:
    dtype, b = dtype_of(op.y), pull.b
    total = _sum_type(pull, dtype)
    batch = convert(b, pull.value(op.rois, [at[0], 0]), dtype_of(op.rois), "i64", 0)
    image = _whole(pull, batch, "i64")
    (top, rows), (left, columns) = (
        _cell(pull, op, at, axis, cells) for axis, cells in ((1, op.height), (0, op.width))
    )

    def body(ks: list[Index], found: list[Value]) -> list[Value]:
        place = [image, at[1], b.add(top, ks[0]), b.add(left, ks[1])]
        return [total.maximum(found[0], read(pull, op.x, place))]

    lowest = total.const(-float("inf"))
    result = nest(pull, [rows, columns], [lowest], [total.type], body)[0]
    some = b.compare("sgt", b.mul(rows, columns), 0)
    result = pull.select(some, result, total.const(0), total.dtype)
    return convert(b, result, total.dtype, dtype, 0)


def _cell(pull: Pull, op: Any, at: At, axis: int, cells: int) -> tuple[Index, Index]:
    """The first element of a cell along one axis (0: x), and how many it has."""
    s, b = Scalars(pull.b, 0, "f64"), pull.b

    def corner(position: int) -> Value:
        scaled = s.mul(_number_at(pull, op.rois, [at[0], position]), s.const(op.scale))
        away = s.op("math.floor", s.add(s.op("math.absf", scaled), s.const(0.5)))
        return s.op("math.copysign", away, scaled)

    first = corner(1 + axis)
    extent = s.add(s.sub(corner(3 + axis), first), s.const(1))
    step = s.div(s.maximum(extent, s.const(1)), s.const(cells))
    number = pull.as_element(at[3 - axis], "f64")
    size = pull.shape(op.x)[3 - axis]

    def limited(bound: Value) -> Index:
        inside = s.maximum(s.minimum(s.add(bound, first), _number(pull, s, size)), s.const(0))
        whole = convert(b, inside, "f64", "i64", 0)
        return b.op(f"arith.index_cast {whole} : i64 to index")

    low = limited(s.op("math.floor", s.mul(number, step)))
    high = limited(s.op("math.ceil", s.mul(s.add(number, s.const(1)), step)))
    return low, b.max(b.sub(high, low), 0)
