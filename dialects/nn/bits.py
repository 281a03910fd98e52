"""Ops on the bits of elements."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES, bits_of
from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn


def _width(dtype: str) -> int:
    return 8 if dtype == "i1" else bits_of(dtype)


@nn.op("bitcast")
class BitCast(NnOp):
    """The bits of each element as an element of the type `to`, which is as wide; a bool is a byte. ONNX BitCast."""

    x: Operand
    y: Result
    to: str

    def verify(self) -> None:
        if self.to not in DTYPES:
            raise self.error("XC2007", f"there is no dtype '{self.to}'")
        source = dtype_of(self.x)
        if _width(source) != _width(self.to):
            raise self.error("XC2002", f"{source} and {self.to} differ in width")

    def dtypes(self) -> Sequence[str]:
        return [self.to]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [sizes.shape(self.x)]

    def reference(self, x: np.ndarray) -> np.ndarray:
        target = DTYPES[self.to]
        if _width(self.to) >= 8 and self.to != "i1":
            return np.ascontiguousarray(x).view(target).reshape(x.shape)
        if self.to == "i1":
            return np.ascontiguousarray(x).view(np.uint8).reshape(x.shape) != 0
        mask = (1 << _width(self.to)) - 1
        raw = np.ascontiguousarray(x).view(np.uint8).reshape(x.shape) & mask
        if self.to.startswith("i"):
            sign = 1 << (_width(self.to) - 1)
            return ((raw ^ sign).astype(np.int8) - sign).astype(target)
        return raw.view(target) if self.to.startswith("f") else raw.astype(target)
