"""Element functions of the ops that sum up many elements: slow but right for every shape, type and attribute.

Families with real schedules take what they can; this is for the rest. Sums of 16-bit floats are
kept in float32, those of integers wrap.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls
from xcompile.compiler.ir.dtypes import DTYPES, is_float
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.spatial import resolve_pads

Body = Callable[[list[Index], list[Value]], Sequence[Value]]


def wide(dtype: str) -> str:
    """The type in which elements of `dtype` are summed up."""
    return "f32" if dtype in ("f16", "bf16") else dtype


def nest(
    pull: Pull, extents: Sequence[Index], init: Sequence[Value], types: Sequence[str], body: Body
) -> list[Value]:
    """A nest of loops that carries values through all iterations."""
    b = pull.b

    def level(depth: int, indices: list[Index], carried: list[Value]) -> list[Value]:
        if depth == len(extents):
            with pull.scope():
                return list(body(indices, carried))
        return b.reduce(
            0,
            extents[depth],
            1,
            carried,
            types,
            lambda iv, inner: level(depth + 1, [*indices, iv], inner),
        )

    return level(0, [], list(init))


def read(pull: Pull, tensor: Tensor, at: At) -> Value:
    """Elements in the type that sums have."""
    dtype = dtype_of(tensor)
    return convert(pull.b, pull.value(tensor, at), dtype, wide(dtype), pull.lanes)


def both(pull: Pull, a: Value | bool, b: Value | bool) -> Value | bool:
    """The conjunction of two conditions."""
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return pull.b.op(f"arith.andi {a}, {b} : {f'vector<{pull.lanes}xi1>' if pull.lanes else 'i1'}")


# -- contractions ---------------------------------------------------------------------------------


@pulls("nn.matmul")
def _matmul(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s = Scalars(pull.b, pull.lanes, wide(dtype))
    a_shape, b_shape, y_shape = (pull.sizes.shape(v) for v in (op.a, op.b, op.y))
    a_vector, b_vector = len(a_shape) == 1, len(b_shape) == 1
    rest = list(at)
    n = None if b_vector else rest.pop()
    m = None if a_vector else rest.pop()
    batch = y_shape[: len(rest)]

    def operand(
        tensor: Tensor, outer: Coordinate | None, k: Index, *, swap: bool, k_first: bool
    ) -> Value:
        shape = pull.sizes.shape(tensor)
        inner = [k] if outer is None else [k, outer] if k_first != swap else [outer, k]
        lead = shape[: len(shape) - len(inner)]
        skip = len(rest) - len(lead)
        places = [
            pull.still(d, c, r) for d, c, r in zip(lead, rest[skip:], batch[skip:], strict=True)
        ]
        return read(pull, tensor, [*places, *inner])

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        x = operand(op.a, m, ks[0], swap=op.transpose_a, k_first=False)
        y = operand(op.b, n, ks[0], swap=op.transpose_b, k_first=True)
        return [s.add(sums[0], s.mul(x, y))]

    depth = a_shape[-1] if a_vector or not op.transpose_a else a_shape[-2]
    total = nest(pull, [pull.dim(depth)], [s.const(0)], [s.type], body)[0]
    return convert(pull.b, total, wide(dtype), dtype, pull.lanes)


# -- windows --------------------------------------------------------------------------------------


def _window(pull: Pull, op: Any, kernel: Sequence[int]) -> list[tuple[Index, Index]]:
    """Begin and end pad of each spatial axis."""
    sizes = pull.sizes.shape(op.operands[0])[2:]
    if op.auto_pad == "notset" or all(isinstance(d, int) for d in sizes) or set(op.strides) == {1}:
        known = [d if isinstance(d, int) else 1 for d in sizes]
        found = resolve_pads(
            known,
            kernel,
            strides=op.strides,
            dilations=op.dilations,
            pads=op.pads,
            auto_pad=op.auto_pad,
        )
        return [(low, high) for low, high in found]
    b, pads = pull.b, []
    for size, k, stride, dilation in zip(sizes, kernel, op.strides, op.dilations, strict=True):
        n = pull.dim(size)
        covered = b.add(b.mul(b.sub(b.ceildiv(n, stride), 1), stride), (k - 1) * dilation + 1)
        total = b.max(b.sub(covered, n), 0)
        small = b.div(total, 2)
        large = b.sub(total, small)
        pads.append((small, large) if op.auto_pad == "same_upper" else (large, small))
    return pads


def _taps(
    pull: Pull, op: Any, at: At, ks: Sequence[Index], pads: Sequence[tuple[Index, Index]]
) -> tuple[list[Coordinate], Value | bool]:
    """Where a window's tap reads, clamped into the input, and whether it is inside it."""
    c, b = pull.coordinates, pull.b
    sizes = pull.shape(op.operands[0])[2:]
    places: list[Coordinate] = []
    inside: Value | bool = True
    for axis, (place, k, size) in enumerate(zip(at, ks, sizes, strict=True)):
        first = c.sub(c.mul(place, op.strides[axis]), pads[axis][0])
        tap = c.add(first, b.mul(k, op.dilations[axis]))
        low = pull.lanewise(c.compare("sge", tap, 0), [tap])
        high = pull.lanewise(c.compare("slt", tap, size), [tap])
        inside = both(pull, inside, both(pull, low, high))
        places.append(c.clamp(tap, 0, b.sub(size, 1)))
    return places, inside


@pulls("nn.conv")
def _conv(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s, c = Scalars(pull.b, pull.lanes, wide(dtype)), pull.coordinates
    kernel = pull.sizes.shape(op.w)[2:]
    pads = _window(pull, op, [k if isinstance(k, int) else 1 for k in kernel])
    weight = pull.shape(op.w)
    per_group = pull.b.div(weight[0], op.groups)
    base = c.mul(c.div(at[1], per_group), weight[1])

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        places, inside = _taps(pull, op, at[2:], ks[1:], pads)
        x = read(pull, op.x, [at[0], c.add(base, ks[0]), *places])
        w = read(pull, op.w, [at[1], *ks])
        product = s.mul(pull.select(inside, x, s.const(0), s.dtype), w)
        return [s.add(sums[0], product)]

    start = s.const(0) if op.bias is None else read(pull, op.bias, [at[1]])
    total = nest(pull, [weight[1], *weight[2:]], [start], [s.type], body)[0]
    return convert(pull.b, total, wide(dtype), dtype, pull.lanes)


@pulls("nn.conv_transpose")
def _conv_transpose(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s, c, b = Scalars(pull.b, pull.lanes, wide(dtype)), pull.coordinates, pull.b
    weight, sizes = pull.shape(op.w), pull.shape(op.x)[2:]
    per_group = b.div(weight[0], op.groups)
    group, channel = c.div(at[1], weight[1]), c.rem(at[1], weight[1])
    base = c.mul(group, per_group)

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        inside: Value | bool = True
        places: list[Coordinate] = []
        for axis, size in enumerate(sizes):
            shifted = c.sub(
                c.add(at[2 + axis], op.pads[axis]), b.mul(ks[1 + axis], op.dilations[axis])
            )
            low = pull.lanewise(c.compare("sge", shifted, 0), [shifted])
            whole = c.clamp(shifted, 0, 1 << 40)
            place = c.div(whole, op.strides[axis])
            exact = pull.lanewise(c.compare("eq", c.rem(whole, op.strides[axis]), 0), [whole])
            high = pull.lanewise(c.compare("slt", place, size), [place])
            inside = both(pull, inside, both(pull, low, both(pull, exact, high)))
            places.append(c.clamp(place, 0, b.sub(size, 1)))
        x = read(pull, op.x, [at[0], c.add(base, ks[0]), *places])
        w = read(pull, op.w, [c.add(base, ks[0]), channel, *ks[1:]])
        return [s.add(sums[0], s.mul(pull.select(inside, x, s.const(0), s.dtype), w))]

    start = s.const(0) if op.bias is None else read(pull, op.bias, [at[1]])
    total = nest(pull, [per_group, *weight[2:]], [start], [s.type], body)[0]
    return convert(pull.b, total, wide(dtype), dtype, pull.lanes)


def lowest(dtype: str) -> float:
    """The identity of a maximum."""
    return (
        -float("inf")
        if is_float(dtype)
        else 0
        if dtype == "i1"
        else int(np.iinfo(DTYPES[dtype]).min)
    )


def highest(dtype: str) -> float:
    """The identity of a minimum."""
    if is_float(dtype):
        return float("inf")
    if dtype == "i1":
        return 1
    most = int(np.iinfo(DTYPES[dtype]).max)
    return -1 if dtype.startswith("ui") else most  # all bits set, read as signless


@pulls("nn.max_pool")
def _max_pool(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s = Scalars(pull.b, pull.lanes, wide(dtype))
    pads = _window(pull, op, op.kernel)

    def body(ks: list[Index], best: list[Value]) -> list[Value]:
        places, inside = _taps(pull, op, at[2:], ks, pads)
        x = read(pull, op.x, [*at[:2], *places])
        return [s.maximum(best[0], pull.select(inside, x, s.const(lowest(s.dtype)), s.dtype))]

    found = nest(pull, list(op.kernel), [s.const(lowest(s.dtype))], [s.type], body)[0]
    return convert(pull.b, found, wide(dtype), dtype, pull.lanes)


@pulls("nn.average_pool")
def _average_pool(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s, c, b = Scalars(pull.b, pull.lanes, wide(dtype)), pull.coordinates, pull.b
    pads, sizes = _window(pull, op, op.kernel), pull.shape(op.x)[2:]

    def counted(ks: list[Index]) -> Value | bool:
        """Whether a tap counts: inside the input, or with count_include_pad inside its padding."""
        found: Value | bool = True
        for axis, (place, k, size) in enumerate(zip(at[2:], ks, sizes, strict=True)):
            tap = c.add(c.mul(place, op.strides[axis]), b.mul(k, op.dilations[axis]))
            end = b.add(b.add(size, pads[axis][0]), pads[axis][1])
            found = both(pull, found, pull.lanewise(c.compare("slt", tap, end), [tap]))
        return found

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        places, inside = _taps(pull, op, at[2:], ks, pads)
        x = read(pull, op.x, [*at[:2], *places])
        one = pull.select(
            counted(ks) if op.count_include_pad else inside, s.const(1), s.const(0), s.dtype
        )
        return [s.add(sums[0], pull.select(inside, x, s.const(0), s.dtype)), s.add(sums[1], one)]

    total, count = nest(pull, list(op.kernel), [s.const(0)] * 2, [s.type] * 2, body)
    return convert(pull.b, s.div(total, count), wide(dtype), dtype, pull.lanes)


# -- reductions -----------------------------------------------------------------------------------


def reduced_axes(pull: Pull, op: Any) -> list[int]:
    """The axes that a reduction reduces, ascending."""
    rank = len(pull.sizes.shape(op.x))
    if op.dynamic_axes is None:
        return list(op.axes)
    axes = sorted(int(a) % rank for a in pull.content(op.dynamic_axes))
    return axes or ([] if op.noop_with_empty_axes else list(range(rank)))


@pulls(
    "nn.reduce_sum", "nn.reduce_mean", "nn.reduce_max", "nn.reduce_min", "nn.reduce_prod",
    "nn.reduce_l1", "nn.reduce_l2",
    "nn.reduce_log_sum", "nn.reduce_sum_square",
)  # fmt: skip
def _reduce(pull: Pull, op: Any, at: At) -> Value:
    dtype, kind = dtype_of(op.y), op.NAME.removeprefix("nn.reduce_")
    s, b = Scalars(pull.b, pull.lanes, wide(dtype)), pull.b
    axes, sizes = reduced_axes(pull, op), pull.shape(op.x)
    kept = [i for i in range(len(sizes)) if i not in axes]
    places: list[Coordinate] = [0] * len(sizes)
    for position, axis in enumerate(kept):
        places[axis] = at[axis] if op.keepdims else at[position]

    def body(ks: list[Index], found: list[Value]) -> list[Value]:
        here = list(places)
        for axis, k in zip(axes, ks, strict=True):
            here[axis] = k
        x = read(pull, op.x, here)
        if kind in ("l2", "sum_square"):
            x = s.mul(x, x)
        elif kind == "l1":
            x = s.op("math.absf", x) if s.float else s.maximum(x, s.sub(s.const(0), x))
        combine = {"max": s.maximum, "min": s.minimum, "prod": s.mul}.get(kind, s.add)
        return [combine(found[0], x)]

    start = {"max": lowest(s.dtype), "min": highest(s.dtype), "prod": 1}.get(kind, 0)
    total = nest(pull, [sizes[a] for a in axes], [s.const(start)], [s.type], body)[0]
    if kind == "mean":
        total = _mean(pull, s, total, [sizes[a] for a in axes])
    elif kind in ("l2", "log_sum"):
        total = _root_or_log(pull, s, kind, total)
    return convert(b, total, wide(dtype), dtype, pull.lanes)


def _mean(pull: Pull, s: Scalars, total: Value, extents: Sequence[Index]) -> Value:
    count: Index = 1
    for extent in extents:
        count = pull.b.mul(count, extent)
    if s.float:
        number = convert(pull.b, pull.as_integer(count, "i64"), "i64", s.dtype, pull.lanes)
        return s.div(total, number)
    number = pull.as_integer(pull.b.max(count, 1), s.dtype)
    return s.op("arith.divui" if s.dtype.startswith("ui") else "arith.divsi", total, number)


def _root_or_log(pull: Pull, s: Scalars, kind: str, total: Value) -> Value:
    from xcompile.compiler.codegen.cpu import math as m

    float_type = s.dtype if s.float else "f64"
    value = convert(pull.b, total, s.dtype, float_type, pull.lanes)
    function = m.sqrt if kind == "l2" else m.log
    return convert(
        pull.b, function(pull.b, value, pull.lanes, float_type), float_type, s.dtype, pull.lanes
    )


@pulls("nn.argmax", "nn.argmin")
def _arg_extreme(pull: Pull, op: Any, at: At) -> Value:
    """The first (or last) index of the extreme; NaN counts as more extreme than all numbers."""
    dtype = dtype_of(op.x)
    s, b = Scalars(pull.b, pull.lanes, wide(dtype)), pull.b
    axis = op.axis % len(pull.sizes.shape(op.x))
    rest = [c for i, c in enumerate(at) if i != axis] if op.keepdims else list(at)
    index_type = pull.type("i64")

    def read_at(k: Index) -> Value:
        return read(pull, op.x, [*rest[:axis], k, *rest[axis:]])

    def body(ks: list[Index], found: list[Value]) -> list[Value]:
        best, place = found
        x = read_at(ks[0])
        predicate = (
            ("gt" if op.NAME == "nn.argmax" else "lt")
            if not op.select_last
            else ("ge" if op.NAME == "nn.argmax" else "le")
        )
        better = s.compare(predicate, x, best)
        if s.float:
            flag = pull.type("i1")
            is_nan, was_nan = s.compare("ne", x, x), s.compare("ne", best, best)
            first = b.op(f"arith.xori {was_nan}, {b.int_constant(1, 'i1', pull.lanes)} : {flag}")
            new_nan = is_nan if op.select_last else b.op(f"arith.andi {is_nan}, {first} : {flag}")
            better = b.op(f"arith.andi {better}, {first} : {flag}")
            better = b.op(f"arith.ori {better}, {new_nan} : {flag}")
        here = pull.as_integer(ks[0], "i64")
        return [s.select(better, x, best), pull.select(better, here, place, "i64")]

    size = pull.shape(op.x)[axis]
    start = [read_at(0), pull.as_integer(0, "i64")]
    found = nest_from(pull, 1, size, start, [s.type, index_type], body)
    return found[1]


def nest_from(
    pull: Pull, low: Index, high: Index, init: Sequence[Value], types: Sequence[str], body: Body
) -> list[Value]:
    """One loop from `low` to `high` that carries values."""

    def inner(iv: Index, carried: list[Value]) -> Sequence[Value]:
        with pull.scope():
            return body([iv], carried)

    return pull.b.reduce(low, high, 1, init, types, inner)


# -- by position ----------------------------------------------------------------------------------


@pulls("nn.constant_of_shape")
def _constant_of_shape(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    return Scalars(pull.b, pull.lanes, dtype).const(op.element().item())


@pulls("nn.range")
def _range(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s = Scalars(pull.b, pull.lanes, dtype)
    start, delta = (pull.value(v, []) for v in (op.start, op.delta))
    step = convert(pull.b, pull.as_integer(at[0], "i64"), "i64", dtype, pull.lanes)
    return s.add(start, s.mul(step, delta))


@pulls("nn.trilu")
def _trilu(pull: Pull, op: Any, at: At) -> Value:
    c, dtype = pull.coordinates, dtype_of(op.y)
    shift = pull.content(op.k)[0] if op.k is not None else 0
    row, column = at[-2:]
    kept = c.compare(
        "sge" if op.upper else "sle", c.add(column, 1 << 40), c.add(c.add(row, shift), 1 << 40)
    )
    zero = Scalars(pull.b, pull.lanes, dtype).const(0)
    return pull.select(pull.lanewise(kept, [row, column]), pull.value(op.x, at), zero, dtype)


@pulls("nn.eye_like")
def _eye_like(pull: Pull, op: Any, at: At) -> Value:
    c, dtype = pull.coordinates, dtype_of(op.y)
    s = Scalars(pull.b, pull.lanes, dtype)
    on = pull.lanewise(c.compare("eq", c.sub(at[1], op.k), at[0]), at)
    return pull.select(on, s.const(1), s.const(0), dtype)


@pulls("nn.one_hot")
def _one_hot(pull: Pull, op: Any, at: At) -> Value:
    """`values` holds the value off and the value on; negative indices count from the back."""
    dtype = dtype_of(op.y)
    index_dtype = dtype_of(op.indices)
    axis = op.axis % len(at)
    s = Scalars(pull.b, pull.lanes, wide(index_dtype))
    index = read(pull, op.indices, [c for i, c in enumerate(at) if i != axis])
    depth = pull.shape(op.y)[axis]
    size = convert(pull.b, pull.as_integer(depth, "i64"), "i64", s.dtype, pull.lanes)
    if not s.dtype.startswith("ui"):
        index = s.select(s.compare("lt", index, s.const(0)), s.add(index, size), index)
    here = convert(pull.b, pull.as_integer(at[axis], "i64"), "i64", s.dtype, pull.lanes)
    on, off = pull.value(op.values, [1]), pull.value(op.values, [0])
    return pull.select(s.compare("eq", index, here), on, off, dtype)


@pulls("nn.cumsum")
def _cumsum(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s, c = Scalars(pull.b, pull.lanes, wide(dtype)), pull.coordinates
    axis = int(pull.content(op.axis)[0]) % len(at)
    size = pull.shape(op.x)[axis]

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        here = list(at)
        here[axis] = ks[0]
        predicate = (
            ("sgt" if op.exclusive else "sge")
            if not op.reverse
            else ("slt" if op.exclusive else "sle")
        )
        counts = pull.lanewise(c.compare(predicate, at[axis], ks[0]), [at[axis]])
        return [s.add(sums[0], pull.select(counts, read(pull, op.x, here), s.const(0), s.dtype))]

    total = nest(pull, [size], [s.const(0)], [s.type], body)[0]
    return convert(pull.b, total, wide(dtype), dtype, pull.lanes)
