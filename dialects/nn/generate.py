"""Ops that fill or mask by position: constant_of_shape, eye_like, trilu, cumsum."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, axis_of, check_integers, nn, rank_of
from xcompile.dialects.nn.const import dense_array
from xcompile.dialects.nn.reshape import known_elements
from xcompile.dialects.nn.shapes import CONTENT_LIMIT


@nn.op("constant_of_shape")
class ConstantOfShape(NnOp):
    """The one element of `value` (dense, one element) in the shape that is given as int64. ONNX ConstantOfShape."""

    shape: Operand
    y: Result
    value: ir.Attribute

    def verify(self) -> None:
        check_integers(self, self.shape, "shape")
        if not isinstance(self.value, ir.DenseElementsAttr) or len(self.value) != 1:
            raise self.error("XC2007", "the value must be dense elements, one of them")

    def dtypes(self) -> Sequence[str]:
        return [str(ir.ShapedType(ir.DenseElementsAttr(self.value).type).element_type)]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = known_elements(self, sizes, self.shape)
        if any(isinstance(d, int) and d < 0 for d in shape):
            raise self.error("XC2008", "a size is negative")
        return [shape]

    def content(self, sizes: Sizes) -> Shape | None:
        shape = sizes.content(self.shape)
        value = self.element().item()
        if shape is None or len(shape) > 1 or not float(value).is_integer():
            return None
        count = shape[0] if shape else 1
        return (int(value),) * count if isinstance(count, int) and count <= CONTENT_LIMIT else None

    def element(self) -> np.ndarray:
        """The element as an array of rank 0."""
        return dense_array(self.value, DTYPES[self.dtypes()[0]]).reshape(())

    def reference(self, shape: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self.element(), [int(d) for d in shape])


@nn.op("eye_like")
class EyeLike(NnOp):
    """Ones on the diagonal `k` (positive: above), zeros elsewhere, in the shape of the matrix `x`. ONNX EyeLike."""

    x: Operand
    y: Result
    dtype: str
    k: int = 0

    def verify(self) -> None:
        if rank_of(self.x) != 2:
            raise self.error("XC2003", f"the operand must have 2 axes, not {rank_of(self.x)}")
        if self.dtype not in DTYPES:
            raise self.error("XC2007", f"there is no dtype '{self.dtype}'")

    def dtypes(self) -> Sequence[str]:
        return [self.dtype]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [sizes.shape(self.x)]

    def reference(self, x: np.ndarray) -> np.ndarray:
        return np.eye(*x.shape, k=self.k).astype(DTYPES[self.dtype])


@nn.op("trilu")
class Trilu(NnOp):
    """The upper or lower triangle of the last two axes from diagonal `k` (int64 scalar, 0 when absent). ONNX Trilu."""

    x: Operand
    k: Operand | None
    y: Result
    upper: bool = True

    def verify(self) -> None:
        if rank_of(self.x) < 2:
            raise self.error(
                "XC2003", f"the operand must have 2 axes or more, not {rank_of(self.x)}"
            )
        check_integers(self, self.k, "diagonal", rank=0)

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [sizes.shape(self.x)]

    def reference(self, x: np.ndarray, k: np.ndarray | None) -> np.ndarray:
        rows, columns = x.shape[-2:]
        diagonal = 0 if k is None else int(k.reshape(()))
        if x.size == 0:
            return x
        row, column = np.arange(rows)[:, None], np.arange(columns)
        keep = column - row >= diagonal if self.upper else column - row <= diagonal
        return np.where(keep, x, np.zeros((), x.dtype))


class Cumulative(NnOp):
    """Base of ops that combine all elements up to each place along `axis` (an integer scalar).

    With `exclusive` the element itself is left out; with `reverse` they run from the end.
    """

    x: Operand
    axis: Operand
    y: Result
    exclusive: bool = False
    reverse: bool = False

    FUNCTION: ClassVar[np.ufunc]

    def verify(self) -> None:
        check_integers(self, self.axis, "axis", rank=0)

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        axis, shape = sizes.content(self.axis), sizes.shape(self.x)
        if axis is not None and isinstance(axis[0], int):
            axis_of(self, axis[0], len(shape))
        return [shape]

    def reference(self, x: np.ndarray, axis: np.ndarray) -> np.ndarray:
        along = int(axis.reshape(()))
        if not -x.ndim <= along < x.ndim:
            raise IndexError(f"axis {along} is out of range for {x.ndim} axes")
        moved = np.moveaxis(x, along, 0)
        moved = moved[::-1] if self.reverse else moved
        wide = np.float64 if x.dtype.kind in "fV" else x.dtype
        total = self.FUNCTION.accumulate(moved, 0, dtype=wide)
        if self.exclusive:
            first = np.full_like(total[:1], self.FUNCTION.identity)
            total = np.concatenate([first, total[:-1]])
        total = total[::-1] if self.reverse else total
        return np.moveaxis(total, 0, along).astype(x.dtype)


@nn.op("cumsum")
class CumSum(Cumulative):
    """Running sums. ONNX CumSum."""

    FUNCTION: ClassVar[np.ufunc] = np.add


@nn.op("cumprod")
class CumProd(Cumulative):
    """Running products. ONNX CumProd."""

    FUNCTION: ClassVar[np.ufunc] = np.multiply
