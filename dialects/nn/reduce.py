"""Reductions over axes, and the places of extremes."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import Dim, maximum, minimum
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, nn, rank_of
from xcompile.dialects.nn.numeric import rounded
from xcompile.dialects.nn.precision import highest, lowest, widened

Axes = tuple[int, ...]


class Reduce(NnOp):
    """What all reductions share.

    `axes` are the reduced axes, in [0, rank), ascending; none of them means that each element is a
    reduction of its own. With the operand `dynamic_axes` (a vector of integers, negative ones from
    the end) `axes` is not used; an empty vector then reduces all axes, or none with
    `noop_with_empty_axes`. Reduced axes stay as size 1 with `keepdims`.
    """

    x: Operand
    dynamic_axes: Operand | None
    axes: tuple[int, ...] = ()
    keepdims: bool = True
    noop_with_empty_axes: bool = False
    y: Result

    def verify(self) -> None:
        rank = rank_of(self.x)
        if any(not 0 <= a < rank for a in self.axes):
            raise self.error(
                "XC2006", f"axes {self.axes} of a reduction are out of range for rank {rank}"
            )
        if list(self.axes) != sorted(set(self.axes)):
            raise self.error("XC2007", f"axes {self.axes} of a reduction are not ascending")
        if self.dynamic_axes is not None and rank_of(self.dynamic_axes) > 1:
            raise self.error("XC2003", "the axes of a reduction are no vector")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        x = sizes.shape(self.x)
        axes = self._axes(sizes, len(x))
        if axes is None:
            return [self._of_data(sizes, x)]
        if self.keepdims:
            return [tuple(1 if i in axes else d for i, d in enumerate(x))]
        return [tuple(d for i, d in enumerate(x) if i not in axes)]

    def _axes(self, sizes: Sizes, rank: int) -> Axes | None:
        if self.dynamic_axes is None:
            return self.axes
        content = sizes.elements(self.dynamic_axes)
        if content is None or any(not isinstance(a, int) for a in content):
            return None
        return self._resolved([a for a in content if isinstance(a, int)], rank)

    def _resolved(self, axes: Sequence[int], rank: int) -> Axes:
        if not axes:
            return () if self.noop_with_empty_axes else tuple(range(rank))
        if any(not -rank <= a < rank for a in axes):
            raise self.error(
                "XC2006", f"axes {tuple(axes)} of a reduction are out of range for rank {rank}"
            )
        return tuple(sorted({int(a) % rank for a in axes}))

    def _of_data(self, sizes: Sizes, x: Shape) -> Shape:
        """The shape when the run says which axes are reduced: 1 on those, with a check that they are axes."""
        assert self.dynamic_axes is not None
        axes = sizes.elements(self.dynamic_axes)
        if axes and not self.keepdims:
            return tuple(sizes.fresh("reduced") for _ in range(len(x) - len(axes)))
        if not axes:
            raise self.error(
                "XC2010",
                "the axes of a reduction are not known, so its result has no rank",
                help="make them a constant, or keep the reduced axes",
            )
        rank = len(x)
        for axis in axes:
            inside = minimum(maximum(axis, -rank), rank - 1)
            sizes.equal(axis, inside, f"an axis of a reduction of {rank} axes")
        shape: list[Dim] = []
        for i, size in enumerate(x):
            apart = minimum(*(maximum(a - k, k - a) for a in axes for k in (i, i - rank)))
            kept = minimum(apart, 1)
            shape.append(sizes.define(1 - kept + kept * size, "reduced"))
        return tuple(shape)

    def reference(self, x: np.ndarray, dynamic_axes: np.ndarray | None) -> np.ndarray:
        axes = self.axes
        if dynamic_axes is not None:
            axes = self._resolved([int(a) for a in dynamic_axes.reshape(-1)], x.ndim)
        with np.errstate(all="ignore"):
            y = self.evaluate(widened(x) if x.dtype != np.bool_ else x, axes, x.dtype)
        if not self.keepdims:
            y = y.reshape([d for i, d in enumerate(y.shape) if i not in axes])
        return rounded(y, x.dtype)

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        """The reduction of the widened x, reduced axes kept."""
        raise NotImplementedError


@nn.op("reduce_sum")
class ReduceSum(Reduce):
    """The sum; 0 of nothing. ONNX ReduceSum."""

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        return x.sum(axis=axes, keepdims=True)


@nn.op("reduce_mean")
class ReduceMean(Reduce):
    """The mean; NaN of nothing; of integers truncated toward zero. ONNX ReduceMean."""

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        count = int(np.prod([x.shape[a] for a in axes]))
        total = x.sum(axis=axes, keepdims=True)
        if x.dtype.kind == "f":
            return total / count
        if count == 0:
            return np.zeros_like(total)
        return np.sign(total) * (np.abs(total) // count)


@nn.op("reduce_max")
class ReduceMax(Reduce):
    """The maximum; the least value of the type of nothing; NaN if there is one. ONNX ReduceMax."""

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        return x.max(axis=axes, keepdims=True, initial=lowest(dtype))


@nn.op("reduce_min")
class ReduceMin(Reduce):
    """The minimum; the greatest value of the type of nothing; NaN if there is one. ONNX ReduceMin."""

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        return x.min(axis=axes, keepdims=True, initial=highest(dtype))


@nn.op("reduce_prod")
class ReduceProd(Reduce):
    """The product; 1 of nothing. ONNX ReduceProd."""

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        return x.prod(axis=axes, keepdims=True)


@nn.op("reduce_l1")
class ReduceL1(Reduce):
    """`Σ |x|`. ONNX ReduceL1."""

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        return np.abs(x).sum(axis=axes, keepdims=True)


@nn.op("reduce_l2")
class ReduceL2(Reduce):
    """`√Σ x²`. ONNX ReduceL2."""

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        return np.sqrt((x * x).sum(axis=axes, keepdims=True))


@nn.op("reduce_log_sum")
class ReduceLogSum(Reduce):
    """`log Σ x`; -inf of nothing. ONNX ReduceLogSum."""

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        return np.log(x.sum(axis=axes, keepdims=True))


@nn.op("reduce_log_sum_exp")
class ReduceLogSumExp(Reduce):
    """`log Σ exp(x)`, without overflow; -inf of nothing. ONNX ReduceLogSumExp."""

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        x = x.astype(np.float64)
        top = x.max(axis=axes, keepdims=True, initial=-np.inf)
        shift = np.where(np.isfinite(top), top, 0)
        return np.log(np.exp(x - shift).sum(axis=axes, keepdims=True)) + shift


@nn.op("reduce_sum_square")
class ReduceSumSquare(Reduce):
    """`Σ x²`. ONNX ReduceSumSquare."""

    def evaluate(self, x: np.ndarray, axes: Axes, dtype: np.dtype) -> np.ndarray:
        return (x * x).sum(axis=axes, keepdims=True)


class ArgExtreme(NnOp):
    """What argmax and argmin share: the place along `axis` (int64), of equals the first or with
    `select_last` the last.
    """

    x: Operand
    axis: int
    keepdims: bool = True
    select_last: bool = False
    y: Result

    def dtypes(self) -> Sequence[str]:
        return ["i64"]

    def verify(self) -> None:
        if not 0 <= self.axis < rank_of(self.x):
            raise self.error(
                "XC2006", f"axis {self.axis} is out of range for rank {rank_of(self.x)}"
            )

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        x = list(sizes.shape(self.x))
        if x[self.axis] == 0:
            raise self.error("XC2008", "there is no greatest or least element on an axis of size 0")
        x[self.axis : self.axis + 1] = [1] if self.keepdims else []
        return [tuple(x)]

    def _place(self, x: np.ndarray, find: "np.ufunc | object") -> np.ndarray:
        if self.select_last:
            found = x.shape[self.axis] - 1 - find(np.flip(x, self.axis), axis=self.axis)  # type: ignore[operator]
        else:
            found = find(x, axis=self.axis)  # type: ignore[operator]
        return np.expand_dims(found, self.axis) if self.keepdims else np.asarray(found)


@nn.op("argmax")
class ArgMax(ArgExtreme):
    """The place of the greatest element; NaN counts as greatest. ONNX ArgMax."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        return self._place(x, np.argmax)


@nn.op("argmin")
class ArgMin(ArgExtreme):
    """The place of the least element; NaN counts as least. ONNX ArgMin."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        return self._place(x, np.argmin)
