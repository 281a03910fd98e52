"""The element function of resize, for all of its modes; what they mean is said in `dialects/nn/interpolation.py`.

Coordinates are computed in float64, as in the reference, once for all lanes where these run along other axes; sums in
float32, or in float64 for float64 and integers.
"""

import math as numbers
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate, varies
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.nests import nest, wide
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls
from xcompile.compiler.ir.dtypes import is_float
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.compiler.schedule.map import MOST_UNROLLED
from xcompile.dialects.nn.base import dtype_of


@dataclass(frozen=True)
class _Axis:
    """One resized axis while its element at output coordinate `i` is made; floats are f64."""

    pull: Pull
    op: Any
    s: Scalars
    position: int
    i: Value
    size: Index
    count: Index
    scale: Value

    def number(self, value: Index) -> Value:
        return (
            self.s.const(value)
            if isinstance(value, int)
            else _float(self.pull, value, self.s.lanes)
        )

    def spread(self, value: Value, dtype: str) -> Value:
        """A value of this axis, converted, for all lanes of the kernel."""
        b, lanes = self.pull.b, self.s.lanes
        if dtype != "i1":
            value = convert(b, value, "f64", dtype, lanes)
        return value if lanes == self.pull.lanes else b.broadcast(value, dtype, self.pull.lanes)

    def place(self) -> Value:
        """The coordinate in the input, which may lie outside of it."""
        s, mode, i = self.s, self.op.coordinates, self.i
        if mode == "asymmetric":
            return s.div(i, self.scale)
        if mode == "align_corners":
            return self._spread(s.const(0), self.number(self.pull.b.sub(self.size, 1)), s.const(0))
        if mode == "tf_half_pixel_for_nn":
            return s.div(s.add(i, s.const(0.5)), self.scale)
        if mode == "tf_crop_and_resize":
            return self._region()
        half = s.sub(s.div(s.add(i, s.const(0.5)), self.scale), s.const(0.5))
        if mode == "pytorch_half_pixel":
            several = s.compare("gt", self.number(self.count), s.const(1))
            return s.select(several, half, s.const(0))
        if mode == "half_pixel_symmetric":
            size = self.number(self.size)
            kept = s.div(self.number(self.count), s.mul(self.scale, size))
            return s.add(half, s.mul(s.mul(size, s.const(0.5)), s.sub(s.const(1), kept)))
        return half

    def _spread(self, start: Value, length: Value, alone: Value) -> Value:
        """`start + i·length / (count - 1)`; `alone` where there is one element."""
        s, count = self.s, self.number(self.count)
        steps = s.maximum(s.sub(count, s.const(1)), s.const(1))
        spread = s.add(start, s.div(s.mul(self.i, length), steps))
        return s.select(s.compare("gt", count, s.const(1)), spread, alone)

    def _region(self) -> Value:
        s, last = self.s, self.number(self.pull.b.sub(self.size, 1))
        start, end = (
            _number_at(self.pull, self.op.roi, self.position + offset, s.lanes)
            for offset in (0, len(self.op.axes))
        )
        middle = s.mul(s.mul(s.const(0.5), s.add(start, end)), last)
        return self._spread(s.mul(start, last), s.mul(s.sub(end, start), last), middle)

    def coordinate(self, place: Value) -> Coordinate:
        """A whole f64 as a coordinate, clamped to the axis."""
        s = self.s
        highest = self.number(self.pull.b.max(self.pull.b.sub(self.size, 1), 0))
        inside = s.minimum(s.maximum(place, s.const(0)), highest)
        whole = convert(self.pull.b, inside, "f64", "i64", s.lanes)
        if not s.lanes:
            return self.pull.b.op(f"arith.index_cast {whole} : i64 to index")
        return self.pull.index_value(whole, "i64")

    def nearest(self, place: Value) -> Coordinate:
        """The place rounded as the op says."""
        s, rule = self.s, self.op.nearest
        half = s.const(0.5)
        if rule == "round_prefer_floor":
            place = s.sub(place, half)
        elif rule == "round_prefer_ceil":
            place = s.add(place, half)
        up = rule in ("ceil", "round_prefer_floor")
        return self.coordinate(s.op("math.ceil" if up else "math.floor", place))

    # -- weights ------------------------------------------------------------------------------

    @property
    def _shrinks(self) -> bool:
        return self.op.antialias

    def _shrink(self) -> Value:
        return self.s.minimum(self.scale, self.s.const(1)) if self._shrinks else self.s.const(1)

    def taps(self) -> Index:
        """How many elements have a weight."""
        reach = 2 if self.op.mode == "cubic" else 1
        if not self._shrinks:
            return 2 * reach
        s, b = Scalars(self.pull.b, 0, "f64"), self.pull.b
        scale = _scale(self.pull, self.op, self.position, s)
        if not isinstance(scale, str):
            return 2 * numbers.ceil(reach / min(scale, 1.0))
        wide_reach = s.div(s.const(reach), s.minimum(scale, s.const(1)))
        whole = convert(b, s.op("math.ceil", wide_reach), "f64", "i64", 0)
        return b.mul(2, b.op(f"arith.index_cast {whole} : i64 to index"))

    def tap(self, place: Value, taps: Index, k: Index) -> tuple[Value, Value]:
        """The k-th place that has a weight, and the weight before scaling."""
        s = self.s
        first = self.number(self.pull.b.sub(1, self.pull.b.div(taps, 2)))
        at = s.add(s.add(s.op("math.floor", place), first), self.number(k))
        distance = s.mul(s.op("math.absf", s.sub(at, place)), self._shrink())
        if self.op.mode == "cubic":
            weight = cubic_weight(s, distance, self.op.cubic_a)
        else:
            weight = linear_weight(s, distance)
        if self.op.exclude_outside:
            low = s.compare("ge", at, s.const(0))
            high = s.compare("lt", at, self.number(self.size))
            weight = s.select(low, s.select(high, weight, s.const(0)), s.const(0))
        return at, weight

    def total(self, place: Value, taps: Index) -> Value | None:
        """The sum of the weights, if they must be scaled to 1."""
        if not (self.op.exclude_outside or self._shrinks):
            return None
        s = self.s

        def body(ks: list[Index], sums: list[Value]) -> list[Value]:
            return [s.add(sums[0], self.tap(place, taps, ks[0])[1])]

        return nest(self.pull, [taps], [s.const(0)], [s.type], body)[0]


def linear_weight(s: Scalars, d: Value) -> Value:
    """1 - d, but 0 beyond 1."""
    return s.maximum(s.sub(s.const(1), d), s.const(0))


def cubic_weight(s: Scalars, d: Value, a: float) -> Value:
    """Keys' kernel with the coefficient `a` at distance d."""
    near = _polynomial(s, d, [1, 0, -(a + 3), a + 2])
    far = _polynomial(s, d, [-4 * a, 8 * a, -5 * a, a])
    outer = s.select(s.compare("lt", d, s.const(2)), far, s.const(0))
    return s.select(s.compare("le", d, s.const(1)), near, outer)


def _polynomial(s: Scalars, x: Value, coefficients: Sequence[float]) -> Value:
    result = s.const(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = s.add(s.mul(result, x), s.const(coefficient))
    return result


def _float(pull: Pull, c: Coordinate, lanes: int) -> Value:
    """A coordinate as f64."""
    if lanes:
        return pull.as_element(c, "f64")
    assert isinstance(c, int | str)
    whole = pull.b.op(f"arith.index_cast {pull.b.index(c)} : index to i64")
    return convert(pull.b, whole, "i64", "f64", 0)


def _number_at(pull: Pull, tensor: Tensor, position: int, lanes: int) -> Value:
    """An element of a small tensor as f64."""
    found = convert(pull.b, pull.value(tensor, [position]), dtype_of(tensor), "f64", pull.lanes)
    if lanes == pull.lanes:
        return found
    return pull.b.op(f"vector.extract {found}[0] : f64 from {pull.type('f64')}")


def _scale(pull: Pull, op: Any, position: int, s: Scalars) -> Value | float:
    """Output elements per input element, over the lanes of `s`."""
    if op.factors is not None:
        return float(op.factors[position])
    if op.scales is not None:
        return _number_at(pull, op.scales, position, s.lanes)
    wanted, shape = pull.content(op.sizes), pull.shape(op.x)

    def ratio(i: int) -> Value | float:
        new, size = wanted[i], shape[op.axes[i]]
        if isinstance(new, int) and isinstance(size, int):
            return new / size if size else 1.0
        whole = [
            pull.b.op(f"arith.index_cast {pull.b.index(n)} : index to i64") for n in (new, size)
        ]
        a, c = (convert(pull.b, n, "i64", "f64", 0) for n in whole)
        found = pull.b.op(f"arith.divf {a}, {c} : f64")
        return pull.b.broadcast(found, "f64", s.lanes) if s.lanes else found

    if op.aspect == "stretch":
        return ratio(position)
    ratios = [ratio(i) for i in range(len(wanted))]
    known = [r for r in ratios if not isinstance(r, str)]
    if len(known) == len(ratios):
        return min(known) if op.aspect == "not_larger" else max(known)
    choose = s.minimum if op.aspect == "not_larger" else s.maximum
    values = [r if isinstance(r, str) else s.const(r) for r in ratios]
    result = values[0]
    for value in values[1:]:
        result = choose(result, value)
    return result


def _loops(op: Any) -> bool:
    """Whether many elements, or a number that is not known, have a weight."""
    return op.mode != "nearest" and (
        op.antialias or (4 if op.mode == "cubic" else 2) ** len(op.axes) > MOST_UNROLLED
    )


_REPEATS = frozenset(
    {("asymmetric", "floor"), ("tf_half_pixel_for_nn", "floor")}
    | {
        (coordinates, rule)
        for coordinates in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
        for rule in ("round_prefer_floor", "round_prefer_ceil")
    }
)
"""Coordinates and rounding with which a whole factor repeats each element."""


def _repeats(op: Any) -> list[int] | None:
    """How often each element occurs along each of the op's axes, where that is all there is to it."""
    if op.mode != "nearest" or (op.coordinates, op.nearest) not in _REPEATS or op.factors is None:
        return None
    whole = [int(factor) for factor in op.factors]
    return whole if whole == list(op.factors) else None


@pulls("nn.resize", loops=_loops)
def _resize(pull: Pull, op: Any, at: At) -> Value:
    repeats = _repeats(op)
    if repeats is not None:
        source = list(at)
        for axis, times in zip(op.axes, repeats, strict=True):
            source[axis] = pull.coordinates.div(at[axis], times)
        return pull.value(op.x, source)
    return _interpolated(pull, op, at)


def _interpolated(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    sizes, counts = pull.shape(op.x), pull.shape(op.y)
    axes: list[_Axis] = []
    for position, axis in enumerate(op.axes):
        lanes = pull.lanes if varies(at[axis]) else 0
        s = Scalars(pull.b, lanes, "f64")
        scale = _scale(pull, op, position, s)
        kept = sizes[axis] == counts[axis] and scale == 1.0
        if kept and op.coordinates != "tf_crop_and_resize":
            continue
        value = scale if isinstance(scale, str) else s.const(scale)
        i = _float(pull, at[axis], lanes)
        axes.append(_Axis(pull, op, s, position, i, sizes[axis], counts[axis], value))
    places = [a.place() for a in axes]
    result = (_nearest if op.mode == "nearest" else _weighted)(pull, op, at, axes, places)
    if op.coordinates != "tf_crop_and_resize":
        return result
    outside = Scalars(pull.b, pull.lanes, dtype if is_float(dtype) else "f64")
    extra = convert(pull.b, outside.const(op.extrapolation), outside.dtype, dtype, pull.lanes)
    for axis, place in zip(axes, places, strict=True):
        s = axis.s
        low = s.compare("lt", place, s.const(0))
        high = s.compare("gt", place, axis.number(pull.b.sub(axis.size, 1)))
        for condition in (high, low):
            result = pull.select(axis.spread(condition, "i1"), extra, result, dtype)
    return result


def _nearest(pull: Pull, op: Any, at: At, axes: Sequence[_Axis], places: Sequence[Value]) -> Value:
    source = list(at)
    for axis, place in zip(axes, places, strict=True):
        source[op.axes[axis.position]] = axis.nearest(place)
    return pull.value(op.x, source)


def _weighted(pull: Pull, op: Any, at: At, axes: Sequence[_Axis], places: Sequence[Value]) -> Value:
    """The sum over all taps of all axes; each axis has its weights, the product counts."""
    dtype = dtype_of(op.y)
    s = Scalars(pull.b, pull.lanes, wide(dtype) if is_float(dtype) else "f64")
    counts = [a.taps() for a in axes]
    totals = [a.total(p, n) for a, p, n in zip(axes, places, counts, strict=True)]

    def tap(number: int, k: Index) -> tuple[Coordinate, Value]:
        """The k-th place along an axis, and its weight for all lanes."""
        axis, total = axes[number], totals[number]
        there, own = axis.tap(places[number], counts[number], k)
        own = own if total is None else axis.s.div(own, total)
        return axis.coordinate(there), axis.spread(own, s.dtype)

    def added(taps: Sequence[tuple[Coordinate, Value]], total: Value) -> Value:
        source, weight = list(at), s.const(1)
        for axis, (place, own) in zip(axes, taps, strict=True):
            source[op.axes[axis.position]] = place
            weight = own if axis is axes[0] else s.mul(weight, own)
        x = convert(pull.b, pull.value(op.x, source), dtype, s.dtype, pull.lanes)
        return s.add(total, s.mul(x, weight))

    if not _loops(op):
        known = [[tap(i, k) for k in range(n)] for i, n in enumerate(counts) if isinstance(n, int)]
        result = s.const(0)
        for taps in product(*known):
            result = added(taps, result)
    else:

        def body(ks: list[Index], sums: list[Value]) -> list[Value]:
            return [added([tap(i, k) for i, k in enumerate(ks)], sums[0])]

        result = nest(pull, counts, [s.const(0)], [s.type], body)[0]
    return convert(pull.b, result, s.dtype, dtype, pull.lanes)
