"""Element functions of ops whose elements follow from their places."""

from typing import Any

from xcompile.compiler.codegen.cpu.builder import Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.elementwise import Scalars
from xcompile.compiler.codegen.cpu.layout import row_major_strides
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.random import FACTORS, GOLDEN, SHIFTS


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
    shift = pull.place(op.k, 0) if op.k is not None else 0
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
    axis = op.axis % len(at)
    s = Scalars(pull.b, pull.lanes, "i64")
    given = pull.value(op.indices, [c for i, c in enumerate(at) if i != axis])
    index = convert(pull.b, given, dtype_of(op.indices), "i64", pull.lanes)
    size = pull.as_integer(pull.shape(op.y)[axis], "i64")
    if not dtype_of(op.indices).startswith("ui"):
        index = s.select(s.compare("lt", index, s.const(0)), s.add(index, size), index)
    here = pull.as_integer(at[axis], "i64")
    on, off = pull.value(op.values, [1]), pull.value(op.values, [0])
    return pull.select(s.compare("eq", index, here), on, off, dtype)


@pulls("nn.random_uniform")
def _random_uniform(pull: Pull, op: Any, at: At) -> Value:
    """The output of SplitMix64 that belongs to the place, its upper bits as a float."""
    s, c = Scalars(pull.b, pull.lanes, "i64"), pull.coordinates
    flat = c.flatten(at, row_major_strides(c, pull.shape(op.y)))
    count = s.add(pull.as_integer(flat, "i64"), s.const(1))
    z = s.add(s.mul(count, s.const(_signed(GOLDEN))), s.const(_signed(op.seed)))
    for shift, factor in zip(SHIFTS, (*FACTORS, 1), strict=True):
        z = s.op("arith.xori", z, s.op("arith.shrui", z, s.const(shift)))
        z = z if factor == 1 else s.mul(z, s.const(_signed(factor)))
    f = Scalars(pull.b, pull.lanes, op.dtype)
    kept = 24 if op.dtype == "f32" else 53
    upper = s.op("arith.shrui", z, s.const(64 - kept))
    return f.mul(convert(pull.b, upper, "i64", op.dtype, pull.lanes), f.const(2.0**-kept))


def _signed(bits: int) -> int:
    """64 bits as a signed integer."""
    bits %= 1 << 64
    return bits - (1 << 64) if bits >= 1 << 63 else bits
