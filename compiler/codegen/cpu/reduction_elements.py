"""Element functions of reductions, and of what works along axes as they do."""

from collections.abc import Callable, Sequence
from typing import Any

from xcompile.compiler.codegen.cpu import math
from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.nests import (
    both,
    highest,
    lowest,
    nest,
    nest_from,
    read,
    wide,
)
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls
from xcompile.compiler.ir.dtypes import is_float, is_unsigned
from xcompile.dialects.nn.base import dtype_of, rank_of


def reduced_axes(pull: Pull, op: Any) -> list[int]:
    """The axes that a reduction reduces, ascending."""
    rank = len(pull.sizes.shape(op.x))
    if op.dynamic_axes is None:
        return list(op.axes)
    axes = sorted(int(a) % rank for a in pull.content(op.dynamic_axes))
    return axes or ([] if op.noop_with_empty_axes else list(range(rank)))


@pulls(
    *(f"nn.reduce_{name}" for name in (
        "sum", "mean", "max", "min", "prod", "l1", "l2", "log_sum", "log_sum_exp", "sum_square",
    )),
    loops=True,
)  # fmt: skip
def _reduce(pull: Pull, op: Any, at: At) -> Value:
    """Integers are summed up in 64 bits, whose low bits are those of any narrower sum."""
    dtype, kind = dtype_of(op.y), op.NAME.removeprefix("nn.reduce_")
    if kind == "log_sum_exp":
        return _log_sum_exp(pull, op, at)
    s = Scalars(pull.b, pull.lanes, _sum_type(dtype))
    axes, sizes, places = _kept_places(pull, op, at)

    def body(ks: list[Index], found: list[Value]) -> list[Value]:
        x = convert(pull.b, _at_axes(pull, op, places, axes, ks), dtype, s.dtype, pull.lanes)
        if kind in ("l2", "sum_square"):
            x = s.mul(x, x)
        elif kind == "l1":
            x = _magnitude(s, x)
        combine = {"max": s.maximum, "min": s.minimum, "prod": s.mul}.get(kind, s.add)
        return [combine(found[0], x)]

    start = {"max": lowest(dtype), "min": highest(dtype), "prod": 1}.get(kind, 0)
    extents = [sizes[a] for a in axes]
    total = nest(pull, extents, [s.const(start)], [s.type], body)[0]
    if kind == "mean":
        total = mean_of(pull, s, total, extents)
    elif kind in ("l2", "log_sum"):
        total = _in_float(pull, s, total, math.sqrt if kind == "l2" else math.log)
    return convert(pull.b, total, s.dtype, dtype, pull.lanes)


def _sum_type(dtype: str) -> str:
    """The type that elements are combined in."""
    if is_float(dtype):
        return wide(dtype)
    return "ui64" if is_unsigned(dtype) or dtype == "i1" else "i64"


def _kept_places(pull: Pull, op: Any, at: At) -> tuple[list[int], list[Index], list[Coordinate]]:
    """The reduced axes, the sizes of x, and the coordinates of the first element that `at` combines."""
    axes, sizes = reduced_axes(pull, op), pull.shape(op.x)
    kept = [i for i in range(len(sizes)) if i not in axes]
    places: list[Coordinate] = [0] * len(sizes)
    for position, axis in enumerate(kept):
        places[axis] = at[axis] if op.keepdims else at[position]
    return axes, sizes, places


def _at_axes(
    pull: Pull, op: Any, places: Sequence[Coordinate], axes: Sequence[int], ks: Sequence[Index]
) -> Value:
    """The element of x at `places`, but at `ks` along `axes`."""
    here = list(places)
    for axis, k in zip(axes, ks, strict=True):
        here[axis] = k
    return pull.value(op.x, here)


def _magnitude(s: Scalars, x: Value) -> Value:
    if s.float:
        return s.op("math.absf", x)
    return x if is_unsigned(s.dtype) else s.maximum(x, s.sub(s.const(0), x))


def mean_of(pull: Pull, s: Scalars, total: Value, extents: Sequence[Index]) -> Value:
    """The sum over the number of elements; 0 for the mean of no integers."""
    count: Index = 1
    for extent in extents:
        count = pull.b.mul(count, extent)
    if s.float:
        return s.div(total, pull.as_element(count, s.dtype))
    number = pull.as_integer(pull.b.max(count, 1), s.dtype)
    return s.op("arith.divui" if is_unsigned(s.dtype) else "arith.divsi", total, number)


def _in_float(pull: Pull, s: Scalars, x: Value, function: Callable[..., Value]) -> Value:
    """A function of floats, of integers by way of float64."""
    kind = s.dtype if s.float else "f64"
    value = convert(pull.b, x, s.dtype, kind, pull.lanes)
    return convert(pull.b, function(pull.b, value, pull.lanes, kind), kind, s.dtype, pull.lanes)


def _log_sum_exp(pull: Pull, op: Any, at: At) -> Value:
    """The logarithm of the sum of e^(x - maximum), plus the maximum if that is finite."""
    dtype = dtype_of(op.y)
    s = Scalars(pull.b, pull.lanes, wide(dtype) if is_float(dtype) else "f64")
    axes, sizes, places = _kept_places(pull, op, at)

    def x_at(ks: Sequence[Index]) -> Value:
        value = _at_axes(pull, op, places, axes, ks)
        return convert(pull.b, value, dtype, s.dtype, pull.lanes)

    top, total = _shifted_sum(pull, s, [sizes[a] for a in axes], x_at)
    result = s.add(s.call(math.log, total), top)
    return convert(pull.b, result, s.dtype, dtype, pull.lanes)


def _shifted_sum(
    pull: Pull, s: Scalars, extents: Sequence[Index], x_at: Callable[[Sequence[Index]], Value]
) -> tuple[Value, Value]:
    """The maximum (0 if it is infinite) and the sum of e^(x - maximum)."""

    def largest(ks: list[Index], found: list[Value]) -> list[Value]:
        return [s.maximum(found[0], x_at(ks))]

    top = nest(pull, extents, [s.const(lowest(s.dtype))], [s.type], largest)[0]
    infinite = s.compare("eq", s.op("math.absf", top), s.const(float("inf")))
    top = s.select(infinite, s.const(0), top)

    def power(ks: list[Index], found: list[Value]) -> list[Value]:
        return [s.add(found[0], s.call(math.exp, s.sub(x_at(ks), top)))]

    return top, nest(pull, extents, [s.const(0)], [s.type], power)[0]


@pulls("nn.softmax", "nn.log_softmax", loops=True)
def _softmax(pull: Pull, op: Any, at: At) -> Value:
    """A row whose maximum is infinite is NaN where the infinity is subtracted from itself."""
    dtype = dtype_of(op.y)
    s, axis = Scalars(pull.b, pull.lanes, wide(dtype)), op.axis

    def x_at(ks: Sequence[Index | Coordinate]) -> Value:
        return read(pull, op.x, [*at[:axis], ks[0], *at[axis + 1 :]])

    def largest(ks: list[Index], found: list[Value]) -> list[Value]:
        return [s.maximum(found[0], x_at(ks))]

    size = pull.shape(op.x)[axis]
    top = nest(pull, [size], [s.const(lowest(s.dtype))], [s.type], largest)[0]

    def power(ks: list[Index], found: list[Value]) -> list[Value]:
        return [s.add(found[0], s.call(math.exp, s.sub(x_at(ks), top)))]

    total = nest(pull, [size], [s.const(0)], [s.type], power)[0]
    here = s.sub(x_at([at[axis]]), top)
    if op.NAME == "nn.softmax":
        result = s.div(s.call(math.exp, here), total)
    else:
        result = s.sub(here, s.call(math.log, total))
    return convert(pull.b, result, s.dtype, dtype, pull.lanes)


def _is_along_lanes(op: Any) -> bool:
    """Whether the axis is the last one, along which lanes run: elsewhere they compare neighbouring rows."""
    return op.axis + 1 == rank_of(op.x)


@pulls("nn.argmax", "nn.argmin", loops=_is_along_lanes)
def _arg_extreme(pull: Pull, op: Any, at: At) -> Value:
    axis = op.axis % len(pull.sizes.shape(op.x))
    rest = [c for i, c in enumerate(at) if i != axis] if op.keepdims else list(at)
    return place_of_extreme(pull, op, axis, rest, least=op.NAME == "nn.argmin", last=op.select_last)


def place_of_extreme(
    pull: Pull, op: Any, axis: int, rest: At, *, least: bool = False, last: bool = False
) -> Value:
    """The first (or last) place of the extreme of x along an axis, i64; NaN counts as more extreme than all numbers.

    Args:
        pull: where the code goes.
        op: its operand x is searched.
        axis: the axis.
        rest: the coordinates on the other axes.
        least: whether the minimum is meant.
        last: whether the last place counts.
    """
    s, b = Scalars(pull.b, pull.lanes, wide(dtype_of(op.x))), pull.b

    def read_at(k: Index) -> Value:
        return read(pull, op.x, [*rest[:axis], k, *rest[axis:]])

    def body(ks: list[Index], found: list[Value]) -> list[Value]:
        best, place = found
        x = read_at(ks[0])
        better = s.compare(("l" if least else "g") + ("e" if last else "t"), x, best)
        if s.float:
            flag = pull.type("i1")
            is_nan, was_nan = s.compare("ne", x, x), s.compare("ne", best, best)
            first = b.op(f"arith.xori {was_nan}, {b.int_constant(1, 'i1', pull.lanes)} : {flag}")
            new_nan = is_nan if last else b.op(f"arith.andi {is_nan}, {first} : {flag}")
            better = b.op(f"arith.andi {better}, {first} : {flag}")
            better = b.op(f"arith.ori {better}, {new_nan} : {flag}")
        here = pull.as_integer(ks[0], "i64")
        return [s.select(better, x, best), pull.select(better, here, place, "i64")]

    size = pull.shape(op.x)[axis]
    start = [read_at(0), pull.as_integer(0, "i64")]
    return nest_from(pull, 1, size, start, [s.type, pull.type("i64")], body)[1]


@pulls("nn.cumsum", "nn.cumprod", loops=True)
def _cumsum(pull: Pull, op: Any, at: At) -> Value:
    """The axis may be data: then each axis is as long as the sum, or of one step that stays where it is."""
    dtype = dtype_of(op.y)
    s, c, b = Scalars(pull.b, pull.lanes, wide(dtype)), pull.coordinates, pull.b
    combine, neutral = (s.add, s.const(0)) if op.NAME == "nn.cumsum" else (s.mul, s.const(1))
    sizes, rank = pull.shape(op.x), len(at)
    axis = pull.place(op.axis, 0)
    if isinstance(axis, int):
        axis %= rank
        extent = sizes[axis]
    else:
        axis = b.select(b.compare("slt", axis, 0), b.add(axis, rank), axis)
        extent = 0
        for i, size in enumerate(sizes):
            extent = b.select(b.compare("eq", axis, i), size, extent)

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        k, here = ks[0], list(at)
        counts: Value | bool = True
        predicate = (
            ("slt" if op.exclusive else "sle")
            if not op.reverse
            else "sgt"
            if op.exclusive
            else "sge"
        )
        for i, place in enumerate(at):
            chosen = b.compare("eq", axis, i)
            if chosen is False:
                continue
            inside = pull.lanewise(c.compare(predicate, k, place), [place])
            if chosen is True:
                counts, here[i] = inside, k
                continue
            assert not pull.lanes and isinstance(place, int | str)
            here[i] = b.select(chosen, k, place)
            other = b.op(f"arith.xori {chosen}, {b.int_constant(1, 'i1')} : i1")
            inside = b.int_constant(int(inside), "i1") if isinstance(inside, bool) else inside
            counts = both(pull, counts, b.op(f"arith.ori {other}, {inside} : i1"))
        x = pull.select(counts, read(pull, op.x, here), neutral, s.dtype)
        return [combine(sums[0], x)]

    total = nest(pull, [extent], [neutral], [s.type], body)[0]
    return convert(pull.b, total, wide(dtype), dtype, pull.lanes)
