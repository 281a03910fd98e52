"""Quantization: between numbers and integers (or small floats) with a scale and a zero point.

These pairs of ops are the only place where the graph says what is quantized and how.
"""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.dtypes import (
    DTYPES,
    bits_of,
    is_float,
    is_integer,
    is_small_float,
    is_unsigned,
)
from xcompile.compiler.ir.op import Operand, Result, Value
from xcompile.compiler.support.dims import ceildiv
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, axis_of, dtype_of, nn, rank_of
from xcompile.dialects.nn.numeric import convert, rounded, to_integer


def limits(dtype: str) -> tuple[int, int]:
    """The least and the greatest number of an integer type."""
    bits = bits_of(dtype)
    return (0, 2**bits - 1) if is_unsigned(dtype) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


class Quantization(NnOp):
    """Base of quantize and dequantize, which give elements of the type `to`.

    The scale (and the zero point, of the same shape) is one number, a vector along `axis`, or, with a `block` above 0,
    has the shape of `x` but for `axis`, where each element serves `block` elements of `x`.
    """

    x: Operand
    scale: Operand
    zero_point: Operand | None
    y: Result
    to: str
    axis: int = 1
    block: int = 0

    def verify(self) -> None:
        if not is_float(dtype_of(self.scale)):
            raise self.error("XC2002", f"the scale is a float, not {dtype_of(self.scale)}")
        if self.zero_point is not None and rank_of(self.zero_point) != rank_of(self.scale):
            raise self.error("XC2003", "scale and zero point differ in rank")
        if self.block < 0:
            raise self.error("XC2007", f"the block size is {self.block}")
        if self.block and rank_of(self.scale) != rank_of(self.x):
            raise self.error("XC2003", "a scale of blocks has the rank of the operand")
        if not self.block and rank_of(self.scale) > 1:
            raise self.error("XC2003", "the scale is one number or a vector")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape, scale = sizes.shape(self.x), sizes.shape(self.scale)
        if self.zero_point is not None:
            for a, b in zip(scale, sizes.shape(self.zero_point), strict=True):
                sizes.equal(a, b, "sizes of scale and zero point")
        if self.block:
            axis = axis_of(self, self.axis, len(shape))
            for i, (size, given) in enumerate(zip(shape, scale, strict=True)):
                wanted = ceildiv(size, self.block) if i == axis else size
                sizes.equal(given, wanted, "sizes of the scale and blocks of the operand")
        elif scale and scale[0] != 1:
            size = shape[axis_of(self, self.axis, len(shape))]
            met = sizes.broadcast(size, scale[0], "sizes of the scale and the axis")
            sizes.equal(met, size, "sizes of the scale and the axis")
        return [shape]

    def per_tensor(self, value: Value) -> bool:
        """Whether a scale or zero point is one number."""
        return not self.block and rank_of(value) == 0

    def spread(self, value: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        """The scale or zero point so that it broadcasts to the operand's shape."""
        if value.size == 1 and not self.block:
            return value.reshape(())
        axis = self.axis % len(shape)
        if not self.block:
            return value.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        return np.repeat(value, self.block, axis).take(np.arange(shape[axis]), axis)


@nn.op("quantize")
class Quantize(Quantization):
    """`x / scale` rounded half to even, plus the zero point, no less and no more than the type `to` holds.

    ONNX QuantizeLinear. The quotient is rounded to the type `precision`. NaN gives the zero point. To small floats the
    quotient is converted as `nn.cast` does, with `saturate`, and the zero point is 0.
    """

    precision: str = "f32"
    saturate: bool = True

    def verify(self) -> None:
        super().verify()
        if self.to not in DTYPES or not (is_integer(self.to) or is_small_float(self.to)):
            raise self.error("XC2007", f"nothing is quantized to '{self.to}'")
        if self.precision not in ("f16", "bf16", "f32", "f64"):
            raise self.error("XC2007", f"no division has the precision '{self.precision}'")
        if self.zero_point is not None and dtype_of(self.zero_point) != self.to:
            raise self.error("XC2002", f"the zero point is {self.to}, as the result")

    def dtypes(self) -> Sequence[str]:
        return [self.to]

    def reference(
        self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None
    ) -> np.ndarray:
        precise = DTYPES[self.precision]
        wide = [convert(v, precise).astype(np.float64) for v in (x, self.spread(scale, x.shape))]
        quotient = rounded(wide[0] / wide[1], precise).astype(np.float64)
        if is_float(self.to):
            return convert(quotient, DTYPES[self.to], saturate=self.saturate)
        zero = np.zeros((), np.int64)
        if zero_point is not None:
            zero = self.spread(zero_point.astype(np.int64), x.shape)
        least, most = limits(self.to)
        within = np.minimum(np.maximum(np.rint(quotient), least - zero), most - zero)
        return to_integer(to_integer(within, np.dtype(np.int64)) + zero, DTYPES[self.to])


@nn.op("dequantize")
class Dequantize(Quantization):
    """`(x - zero_point)·scale` as the type `to`. ONNX DequantizeLinear.

    The difference is exact; it is converted to float32 and multiplied there (float64 where that is the result).
    """

    def verify(self) -> None:
        super().verify()
        if self.to not in ("f16", "bf16", "f32", "f64"):
            raise self.error("XC2007", f"nothing is dequantized to '{self.to}'")
        if self.zero_point is not None and dtype_of(self.zero_point) != dtype_of(self.x):
            raise self.error("XC2002", f"the zero point is {dtype_of(self.x)}, as the operand")

    def dtypes(self) -> Sequence[str]:
        return [self.to]

    def reference(
        self, x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray | None
    ) -> np.ndarray:
        wide = np.dtype(np.float64 if self.to == "f64" else np.float32)
        difference = x.astype(np.float64)
        if zero_point is not None:
            difference = difference - self.spread(zero_point.astype(np.float64), x.shape)
        factor = self.spread(scale, x.shape).astype(wide)
        return rounded(difference.astype(wide) * factor, DTYPES[self.to])
