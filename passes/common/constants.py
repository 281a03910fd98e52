"""Constants in patterns: reading them, making them."""

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.rewrite import Rewriter, no_match
from xcompile.dialects.nn.base import numpy_dtype
from xcompile.dialects.nn.const import Const, const_of


def constant(rewriter: Rewriter, array: np.ndarray) -> Value:
    """A new constant before the root op."""
    with rewriter.here():
        made = Const.from_array(array, rewriter.weights, loc=rewriter.location)
    rewriter.note(made.operation)
    return made.y


def scalar_like(rewriter: Rewriter, number: float, like: Value) -> Value:
    """A constant of rank 0 and of the element type of `like`."""
    return constant(rewriter, np.array(number).astype(numpy_dtype(like)))


def array_of(rewriter: Rewriter, value: Value | None, what: str) -> np.ndarray:
    """The elements of a constant; leaves the pattern when `what` is none."""
    made = None if value is None else const_of(value)
    if made is None:
        no_match(f"{what} is not a constant")
    return made.array(rewriter.weights)


def number_of(rewriter: Rewriter, value: Value | None) -> float | None:
    """The number that all elements of a constant are; None for anything else."""
    made = None if value is None else const_of(value)
    if made is None or numpy_dtype(made.y).kind == "c":
        return None
    if made.splat:
        return float(made.scalar())
    array = made.array(rewriter.weights)
    if array.size == 0 or array.size > 64 or (array.reshape(-1) != array.reshape(-1)[0]).any():
        return None
    return float(array.reshape(-1)[0])


def narrowed(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Folded numbers in the dtype of the weights; leaves the pattern when one is not finite there."""
    with np.errstate(all="ignore"):
        result = array.astype(dtype)
    if not np.isfinite(result.astype(np.float64)).all():
        no_match(f"a folded constant is not finite in {dtype.name}")
    return result
