"""Loops inside element functions: what the ops that combine many elements are written with.

Such functions are slow but right for every shape, type and attribute; families with real schedules take what they
can. Sums of 16-bit floats are kept in float32, those of integers wrap.
"""

from collections.abc import Callable, Sequence

import numpy as np

from xcompile.compiler.codegen.cpu.builder import Index, Value
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.pull import At, Pull
from xcompile.compiler.ir.dtypes import DTYPES, is_float
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.dialects.nn.base import dtype_of

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


def nest_from(
    pull: Pull, low: Index, high: Index, init: Sequence[Value], types: Sequence[str], body: Body
) -> list[Value]:
    """One loop from `low` to `high` that carries values."""

    def inner(iv: Index, carried: list[Value]) -> Sequence[Value]:
        with pull.scope():
            return body([iv], carried)

    return pull.b.reduce(low, high, 1, init, types, inner)


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
