"""Products of 8-bit integers, summed exactly in int32: nn.conv_integer and nn.matmul_integer.

Sums wrap around at 32 bits; nothing saturates on the way.
"""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Value
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn, rank_of
from xcompile.dialects.nn.conv import Convolution
from xcompile.dialects.nn.matmul import MatrixProduct
from xcompile.dialects.nn.numeric import to_integer

_INT32 = np.dtype(np.int32)


def _check_operands(op: NnOp, *pairs: tuple[Value, Value | None]) -> None:
    """Raise unless operands have 8 bits and their zero points their type, and one axis at most."""
    for value, zero_point in pairs:
        if dtype_of(value) not in ("i8", "ui8"):
            raise op.error("XC2002", f"integer products are of 8 bits, not {dtype_of(value)}")
        if zero_point is None:
            continue
        if dtype_of(zero_point) != dtype_of(value):
            raise op.error("XC2002", f"the zero point is {dtype_of(value)}, as the operand")
        if rank_of(zero_point) > 1:
            raise op.error("XC2003", "a zero point is one number or a vector")


def _wide(zero_point: np.ndarray | None, axes_behind: int) -> np.ndarray:
    """A zero point so that it broadcasts along an axis with `axes_behind` axes behind it."""
    if zero_point is None:
        return np.zeros((), np.int64)
    wide = zero_point.astype(np.int64)
    return wide.reshape(-1, *[1] * axes_behind) if wide.size > 1 else wide.reshape(())


@nn.op("conv_integer")
class ConvInteger(Convolution):
    """Convolution of `x - x_zero_point` with `w - w_zero_point` in int32. ONNX ConvInteger.

    `x_zero_point` is one number, `w_zero_point` one or a vector [M]; 0 where missing. Cells that
    `pads` adds hold `fill`, a number of x's type; without it they hold the zero point of x, hence count as 0.
    """

    x_zero_point: Operand | None
    w_zero_point: Operand | None
    fill: Operand | None

    @property
    def is_plain(self) -> bool:
        """Whether there are no zero points: the form that kernels take."""
        return self.x_zero_point is None and self.w_zero_point is None

    def verify(self) -> None:
        super().verify()
        _check_operands(
            self, (self.x, self.x_zero_point), (self.x, self.fill), (self.w, self.w_zero_point)
        )
        if any(v is not None and rank_of(v) for v in (self.x_zero_point, self.fill)):
            raise self.error("XC2003", "the zero point of a convolution's input is one number")

    def dtypes(self) -> Sequence[str]:
        return ["i32"]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shapes = super().infer(sizes)
        if self.w_zero_point is not None and rank_of(self.w_zero_point):
            sizes.broadcast(
                sizes.shape(self.w)[0],
                sizes.shape(self.w_zero_point)[0],
                "the sizes of a convolution's zero points and output channels",
            )
        return shapes

    def reference(
        self,
        x: np.ndarray,
        w: np.ndarray,
        x_zero_point: np.ndarray | None,
        w_zero_point: np.ndarray | None,
        fill: np.ndarray | None,
    ) -> np.ndarray:
        zero = _wide(x_zero_point, 0)
        cell = 0 if fill is None else int(fill) - int(zero)
        weights = w.astype(np.int64) - _wide(w_zero_point, w.ndim - 1)
        return to_integer(self.sums(x.astype(np.int64) - zero, weights, cell), _INT32)


@nn.op("matmul_integer")
class MatMulInteger(MatrixProduct):
    """`(a - a_zero_point) @ (b - b_zero_point)` in int32. ONNX MatMulInteger.

    `a_zero_point` is one number, or a vector with one for each row of a; `b_zero_point` one number,
    or a vector with one for each column of b (after transposition); 0 where missing.
    """

    a_zero_point: Operand | None
    b_zero_point: Operand | None

    @property
    def is_plain(self) -> bool:
        """Whether there are no zero points: the form that kernels take."""
        return self.a_zero_point is None and self.b_zero_point is None

    def verify(self) -> None:
        super().verify()
        _check_operands(self, (self.a, self.a_zero_point), (self.b, self.b_zero_point))

    def dtypes(self) -> Sequence[str]:
        return ["i32"]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shapes = super().infer(sizes)
        for value, zero_point, axis in (
            (self.a, self.a_zero_point, -1 if self.transpose_a else -2),
            (self.b, self.b_zero_point, -2 if self.transpose_b else -1),
        ):
            if zero_point is None or not rank_of(zero_point):
                continue
            shape = sizes.shape(value)
            size = shape[axis] if len(shape) > 1 else 1
            sizes.broadcast(
                size, sizes.shape(zero_point)[0], "the sizes of a product's zero points"
            )
        return shapes

    def reference(
        self,
        a: np.ndarray,
        b: np.ndarray,
        a_zero_point: np.ndarray | None,
        b_zero_point: np.ndarray | None,
    ) -> np.ndarray:
        rows = _wide(a_zero_point, 0 if self.transpose_a else 1)
        columns = _wide(b_zero_point, 1 if self.transpose_b else 0)
        return to_integer(
            self.sums(a.astype(np.int64) - rows, b.astype(np.int64) - columns), _INT32
        )
