"""Elementwise ops of three operands."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.base import Shape, Sizes, dtype_of, nn, rank_of
from xcompile.dialects.nn.elementwise import Elementwise


@nn.op("where")
class Where(Elementwise):
    """`a` where `condition`, else `b`; all three broadcast. ONNX Where."""

    condition: Operand
    a: Operand
    b: Operand
    y: Result

    def verify(self) -> None:
        if dtype_of(self.condition) != "i1":
            raise self.error(
                "XC2002", f"the condition must be bool, not {dtype_of(self.condition)}"
            )
        if dtype_of(self.a) != dtype_of(self.b):
            raise self.error(
                "XC2002", f"operands have the dtypes {dtype_of(self.a)} and {dtype_of(self.b)}"
            )

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(self.a)]

    def content(self, sizes: Sizes) -> Shape | None:
        found = [sizes.content(v) for v in self.operands]
        known = [c for c in found if c is not None]
        if len(known) < 3:
            return None
        if any(len(c) == 0 for c in known):
            return ()
        result: list[Dim] = []
        for i in range(max(map(len, known))):
            condition, a, b = (c[i % len(c)] for c in known)
            if condition not in (0, 1) and a != b:
                return None
            result.append(b if condition == 0 else a)
        return tuple(result)

    def reference(self, condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(condition, a, b)


@nn.op("clip")
class Clip(Elementwise):
    """`min(max(x, low), high)` with scalar bounds, each optional; NaN for NaN. ONNX Clip.

    `high` wins where it is below `low`.
    """

    x: Operand
    low: Operand | None
    high: Operand | None
    y: Result

    def verify(self) -> None:
        super().verify()
        if any(rank_of(v) for v in self.operands[1:]):
            raise self.error("XC2003", "the bounds of a clip must be scalars")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [sizes.shape(self.x)]

    def reference(
        self, x: np.ndarray, low: np.ndarray | None, high: np.ndarray | None
    ) -> np.ndarray:
        y = x if low is None else np.maximum(x, low)
        return y if high is None else np.minimum(y, high)
