"""Softmax, its logarithm, and hardmax, along one axis."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, nn, rank_of
from xcompile.dialects.nn.numeric import rounded
from xcompile.dialects.nn.precision import widened


class AxisOp(NnOp):
    """An op along one axis that keeps the shape; `axis` is in [0, rank)."""

    x: Operand
    axis: int
    y: Result

    def verify(self) -> None:
        if not 0 <= self.axis < rank_of(self.x):
            raise self.error(
                "XC2006", f"axis {self.axis} is out of range for rank {rank_of(self.x)}"
            )

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [sizes.shape(self.x)]


def _shifted(x: np.ndarray, axis: int) -> np.ndarray:
    """X minus its maximum in float64: NaN where the maximum is infinite or NaN, as the mathematics has it."""
    wide = widened(x)
    return wide - wide.max(axis=axis, keepdims=True, initial=-np.inf)


@nn.op("softmax")
class Softmax(AxisOp):
    """`exp(x) / Σ exp(x)`, without overflow; a row of -inf alone is NaN. ONNX Softmax since opset 13."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            powers = np.exp(_shifted(x, self.axis))
            return rounded(powers / powers.sum(axis=self.axis, keepdims=True), x.dtype)


@nn.op("log_softmax")
class LogSoftmax(AxisOp):
    """`x - log Σ exp(x)`, without overflow. ONNX LogSoftmax since opset 13."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            shifted = _shifted(x, self.axis)
            return rounded(
                shifted - np.log(np.exp(shifted).sum(axis=self.axis, keepdims=True)), x.dtype
            )


@nn.op("hardmax")
class Hardmax(AxisOp):
    """1 at the first maximum, 0 elsewhere. ONNX Hardmax since opset 13."""

    def reference(self, x: np.ndarray) -> np.ndarray:
        y = np.zeros_like(x)
        if x.size:
            np.put_along_axis(
                y, np.expand_dims(np.argmax(x, axis=self.axis), self.axis), 1, self.axis
            )
        return y
