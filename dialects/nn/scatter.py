"""Ops that write elements at indices that are data."""

from collections.abc import Callable, Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, axis_of, dtype_of, nn, rank_of
from xcompile.dialects.nn.gather import checked, require_within
from xcompile.dialects.nn.numeric import rounded, widen

_REDUCTIONS: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


class Scatter(NnOp):
    """Base of ops that give `x` with elements of `updates` at `indices`.

    `reduction` joins the old and the new value: none (the new one), add, mul, max, min. With none an index may occur
    only once, unless the updates are equal; here the last one wins.
    """

    x: Operand
    indices: Operand
    updates: Operand
    y: Result

    reduction: str = "none"

    def verify(self) -> None:
        if self.reduction != "none" and self.reduction not in _REDUCTIONS:
            raise self.error("XC2007", f"there is no reduction '{self.reduction}'")
        if dtype_of(self.indices) not in ("i32", "i64"):
            raise self.error("XC2002", f"indices are int32 or int64, not {dtype_of(self.indices)}")
        if dtype_of(self.x) != dtype_of(self.updates):
            raise self.error(
                "XC2002", f"operand {dtype_of(self.x)} and updates {dtype_of(self.updates)} differ"
            )

    def put(self, x: np.ndarray, at: tuple[np.ndarray, ...], updates: np.ndarray) -> np.ndarray:
        """`x` with `updates` at the places `at`, sums and products of floats rounded once."""
        if self.reduction == "none":
            result = x.copy()
            result[at] = updates
            return result
        total = widen(x).copy()
        with np.errstate(all="ignore"):
            _REDUCTIONS[self.reduction](total, at, widen(updates))
        return rounded(total, x.dtype)


@nn.op("scatter_elements")
class ScatterElements(Scatter):
    """Each element of `updates` goes to its own place in `x`, but at its index of `axis`.

    ONNX ScatterElements, Scatter.
    """

    axis: int = 0

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape, indices, updates = (sizes.shape(v) for v in (self.x, self.indices, self.updates))
        axis = axis_of(self, self.axis, len(shape))
        if not len(shape) == len(indices) == len(updates):
            raise self.error("XC2003", "operand, indices and updates differ in rank")
        for a, b in zip(indices, updates, strict=True):
            sizes.equal(a, b, "sizes of indices and updates")
        require_within(sizes, shape, indices, axis)
        return [shape]

    def reference(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        at: list[np.ndarray] = [*np.indices(indices.shape, sparse=True)]
        at[self.axis] = checked(indices, x.shape[self.axis])
        return self.put(x, tuple(at), updates)


@nn.op("scatter_nd")
class ScatterND(Scatter):
    """The parts of `updates` go to the coordinates in the last axis of `indices` (int64). ONNX ScatterND."""

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape, indices, updates = (sizes.shape(v) for v in (self.x, self.indices, self.updates))
        depth = indices[-1] if indices else None
        if not isinstance(depth, int):
            raise self.error("XC2010", "the last axis of the indices must have a fixed size")
        if depth > rank_of(self.x):
            raise self.error("XC2007", f"{depth} indices do not fit {rank_of(self.x)} axes")
        expected = (*indices[:-1], *shape[depth:])
        if len(expected) != len(updates):
            raise self.error(
                "XC2003", f"updates must have {len(expected)} axes, not {len(updates)}"
            )
        for a, b in zip(expected, updates, strict=True):
            sizes.equal(a, b, "sizes of updates and of what the indices name")
        return [shape]

    def reference(self, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        at = tuple(checked(indices[..., i], x.shape[i]) for i in range(indices.shape[-1]))
        return self.put(x, at, updates)
