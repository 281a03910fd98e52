"""Element functions of convolutions, pools and other windows."""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.layout import row_major_strides
from xcompile.compiler.codegen.cpu.nests import both, lowest, nest, read, wide
from xcompile.compiler.codegen.cpu.power import power_of, root_of
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls, pulls_parts
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.spatial import resolve_pads


def _window(pull: Pull, op: Any, kernel: Sequence[Index]) -> list[tuple[Index, Index]]:
    """Begin and end pad of each spatial axis."""
    sizes = pull.sizes.shape(op.operands[0])[2:]
    taps = [k if isinstance(k, int) else 1 for k in kernel]
    given = op.auto_pad == "notset"
    if given or all(
        isinstance(k, int) and (isinstance(d, int) or s == 1)
        for d, k, s in zip(sizes, kernel, op.strides, strict=True)
    ):
        known = [d if isinstance(d, int) else 1 for d in sizes]
        found = resolve_pads(
            known,
            taps,
            strides=op.strides,
            dilations=op.dilations,
            pads=op.pads,
            auto_pad=op.auto_pad,
        )
        return [(low, high) for low, high in found]
    b, pads = pull.b, []
    for size, k, stride, dilation in zip(sizes, kernel, op.strides, op.dilations, strict=True):
        n = pull.dim(size)
        covered = b.add(
            b.mul(b.sub(b.ceildiv(n, stride), 1), stride), b.mul(b.sub(k, 1), dilation), 1
        )
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
        high = pull.lanewise(c.compare("slt", tap, b.add(size, b.min(pads[axis][1], 0))), [tap])
        inside = both(pull, inside, both(pull, low, high))
        places.append(c.clamp(tap, 0, b.max(b.sub(size, 1), 0)))
    return places, inside


@pulls("nn.conv", loops=True)
def _conv(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s = Scalars(pull.b, pull.lanes, wide(dtype))
    start = s.const(0) if op.bias is None else read(pull, op.bias, [at[1]])
    total = _sums(pull, op, at, s, start, s.const(0))
    return convert(pull.b, total, wide(dtype), dtype, pull.lanes)


@pulls("nn.conv_integer", loops=True)
def _conv_integer(pull: Pull, op: Any, at: At) -> Value:
    """Sums of int32."""
    s = Scalars(pull.b, pull.lanes, "i32")
    zero = None if op.x_zero_point is None else _as_sums(pull, s, op.x_zero_point, [])
    outside = zero or s.const(0) if op.fill is None else _as_sums(pull, s, op.fill, [])
    shift = None
    if op.w_zero_point is not None:
        channel = at[1:2] if pull.sizes.shape(op.w_zero_point) else []
        shift = pull.broadcast(
            op.w_zero_point, channel, pull.sizes.shape(op.y)[1:2][: len(channel)]
        )
        shift = convert(pull.b, shift, dtype_of(op.w_zero_point), "i32", pull.lanes)
    return _sums(pull, op, at, s, s.const(0), outside, zero, shift)


def _sums(
    pull: Pull,
    op: Any,
    at: At,
    s: Scalars,
    start: Value,
    outside: Value,
    x_zero: Value | None = None,
    w_zero: Value | None = None,
) -> Value:
    """`start` plus the products of a window in the type of `s`, with `outside` where the padding is.

    The zero points of integers are subtracted first.
    """
    c, weight = pull.coordinates, pull.shape(op.w)
    pads = _window(pull, op, weight[2:])
    per_group = pull.b.div(weight[0], op.groups)
    base = c.mul(c.div(at[1], per_group), weight[1])

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        places, inside = _taps(pull, op, at[2:], ks[1:], pads)
        x = _as_sums(pull, s, op.x, [at[0], c.add(base, ks[0]), *places])
        w = _as_sums(pull, s, op.w, [at[1], *ks])
        x = pull.select(inside, x, outside, s.dtype)
        x = x if x_zero is None else s.sub(x, x_zero)
        w = w if w_zero is None else s.sub(w, w_zero)
        return [s.add(sums[0], s.mul(x, w))]

    return nest(pull, [weight[1], *weight[2:]], [start], [s.type], body)[0]


def _as_sums(pull: Pull, s: Scalars, value: Tensor, at: At) -> Value:
    """Elements of an operand in the type of the sums."""
    return convert(pull.b, pull.value(value, at), dtype_of(value), s.dtype, pull.lanes)


@pulls("nn.conv_transpose", loops=True)
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


@pulls("nn.max_pool", loops=True)
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


@pulls("nn.average_pool", loops=True)
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


@pulls_parts("nn.max_pool_with_indices", loops=True)
def _max_pool_with_indices(pull: Pull, op: Any, at: At, number: int) -> Value:
    """The maximum and the flat place of the first element that has it; the first NaN wins."""
    dtype = dtype_of(op.y)
    s, b, c = Scalars(pull.b, pull.lanes, wide(dtype)), pull.b, pull.coordinates
    place_of = Scalars(b, pull.lanes, "i64")
    pads, flag = _window(pull, op, op.kernel), pull.type("i1")
    order = [0, 1, *(range(len(at) - 1, 1, -1) if op.column_major else range(2, len(at)))]
    sizes = pull.shape(op.x)
    strides = row_major_strides(c, [sizes[i] for i in order])

    def body(ks: list[Index], found: list[Value]) -> list[Value]:
        best, place = found
        places, inside = _taps(pull, op, at[2:], ks, pads)
        here = [*at[:2], *places]
        x = read(pull, op.x, here)
        better = b.op(f"arith.ori {s.compare('gt', x, best)}, "
                      f"{place_of.compare('lt', place, place_of.const(0))} : {flag}")  # fmt: skip
        if s.float:
            new = b.op(
                f"arith.andi {s.compare('ne', x, x)}, {s.compare('eq', best, best)} : {flag}"
            )
            better = b.op(f"arith.ori {better}, {new} : {flag}")
        taken = both(pull, inside, better)
        flat = pull.as_integer(c.flatten([here[i] for i in order], strides), "i64")
        return [pull.select(taken, x, best, s.dtype), pull.select(taken, flat, place, "i64")]

    start = [s.const(lowest(s.dtype)), place_of.const(-1)]
    best, place = nest(pull, list(op.kernel), start, [s.type, place_of.type], body)
    values = [convert(b, best, s.dtype, dtype, pull.lanes), place]
    for result, value in zip(op.results, values, strict=True):
        pull.remember(result, at, value)
    return values[number]


@pulls("nn.lp_pool", loops=True)
def _lp_pool(pull: Pull, op: Any, at: At) -> Value:
    dtype = dtype_of(op.y)
    s, pads = Scalars(pull.b, pull.lanes, wide(dtype)), _window(pull, op, op.kernel)

    def body(ks: list[Index], sums: list[Value]) -> list[Value]:
        places, inside = _taps(pull, op, at[2:], ks, pads)
        x = s.op("math.absf", read(pull, op.x, [*at[:2], *places]))
        return [
            s.add(
                sums[0],
                pull.select(
                    inside, power_of(pull.b, x, op.p, pull.lanes, s.dtype), s.const(0), s.dtype
                ),
            )
        ]

    total = nest(pull, list(op.kernel), [s.const(0)], [s.type], body)[0]
    return convert(
        pull.b, root_of(pull.b, total, op.p, pull.lanes, s.dtype), wide(dtype), dtype, pull.lanes
    )
