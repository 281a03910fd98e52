"""Scale and bias of fused normalizations: how a factor or an addend behind one is taken in."""

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.rewrite import Rewriter, has_one_use, no_match
from xcompile.dialects.nn.base import numpy_dtype, rank_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.norm import TrailingNorm
from xcompile.passes.common.constants import constant, number_of


def trailing_dims(value: Value, axis: int) -> list[int]:
    """The fixed sizes of the axes from `axis` on; leaves the pattern when one is not fixed."""
    dims = list(ir.RankedTensorType(value.type).shape[axis:])
    if any(d < 0 for d in dims):
        no_match("a normalized axis has no fixed size")
    return dims


def ones(rewriter: Rewriter, x: Value, axis: int) -> Value:
    """A scale that does nothing."""
    return constant(rewriter, np.ones(trailing_dims(x, axis), numpy_dtype(x)))


def parameter(rewriter: Rewriter, norm: TrailingNorm, value: Value) -> Value:
    """A value that is combined with a normalization's result, in the shape of its parameters.

    Leaves the pattern unless it varies along the normalized axes only.
    """
    if not has_one_use(norm.y):
        no_match("the normalization has other users")
    dims = trailing_dims(norm.x, norm.axis)
    type_ = ir.RankedTensorType(value.type)
    if list(type_.shape) == dims:
        return value
    made = const_of(value)
    rank = rank_of(norm.x)
    if made is None or len(made.dims) > rank:
        no_match("the other operand is not a parameter of the normalized axes")
    full = (1,) * (rank - len(made.dims)) + made.dims
    fits = all(have in (1, want) for have, want in zip(full[norm.axis :], dims, strict=True))
    if any(d != 1 for d in full[: norm.axis]) or not fits:
        no_match("the other operand varies along other axes")
    array = made.array(rewriter.weights).reshape(full[norm.axis :])
    return constant(rewriter, np.ascontiguousarray(np.broadcast_to(array, dims)))


def is_one(rewriter: Rewriter, value: Value) -> bool:
    """Whether a scale does nothing."""
    return number_of(rewriter, value) == 1
