"""Layout conversion: the same elements, elsewhere in memory."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, nn


@nn.op("relayout")
class Relayout(NnOp):
    """`x` in the layout of the result type. Not in ONNX: layout assignment makes it."""

    x: Operand
    y: Result

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [sizes.shape(self.x)]

    def reference(self, x: np.ndarray) -> np.ndarray:
        return x
