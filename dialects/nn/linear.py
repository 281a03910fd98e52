"""Linear algebra on square matrices."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, nn, rank_of
from xcompile.dialects.nn.numeric import compute


@nn.op("det")
class Det(NnOp):
    """The determinant of each matrix of the last two axes; their size must be known. ONNX Det."""

    x: Operand
    y: Result

    def verify(self) -> None:
        if rank_of(self.x) < 2:
            raise self.error("XC2003", f"the operand has {rank_of(self.x)} axes, not 2 or more")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        shape = sizes.shape(self.x)
        size = sizes.equal(shape[-2], shape[-1], "the sizes of a square matrix")
        if not isinstance(size, int):
            raise self.error("XC2010", "the size of the matrices is not known")
        return [shape[:-2]]

    def reference(self, x: np.ndarray) -> np.ndarray:
        return compute(np.linalg.det, x)
