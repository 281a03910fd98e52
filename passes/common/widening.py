"""Which ops make wider tensors of 8-bit integers."""

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.dialects.nn.base import Sizes, dtype_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.kinds import is_elementwise

MOST_OPS = 6
"""Ops between 8-bit integers and what is computed from them, at most."""


def widens_bytes(op: Op, sizes: Sizes, *, pixels: bool = True) -> bool:
    """Whether the op computes a wider tensor from 8-bit integers at its place, and what broadcasts to these.

    Without `pixels` that is the same for all pixels of an image.
    """
    if len(op.results) != 1:
        return False
    shape = sizes.shape(op.results[0])
    reached: Op | None = op
    for _ in range(MOST_OPS):
        if reached is None or not is_elementwise(reached.NAME) or is_byte(reached.results[0]):
            return False
        values = [v for v in reached.operands if const_of(v) is None]
        full = [v for v in values if sizes.shape(v) == shape]
        others = [sizes.shape(v) for v in reached.operands if v not in full]
        if len(full) != 1 or (not pixels and any(d != 1 for s in others for d in s[-2:])):
            return False
        if is_byte(full[0]):
            return True
        reached = None if isinstance(full[0].owner, ir.Block) else view(full[0].owner)
    return False


def is_byte(value: Value) -> bool:
    """Whether the value is of 8-bit integers."""
    return dtype_of(value) in ("i8", "ui8")
