"""nn-decompose-mean-variance-norm: mean variance normalization as means and elementwise ops."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.norm import MeanVarianceNorm
from xcompile.passes.nn.expression import Expression

EPSILON = 1e-9
"""What ONNX's definition of the op adds to the deviation."""


class MeanVarianceNormOfParts(Pattern[MeanVarianceNorm]):
    """`(x - mean) / (√variance + 1e-9)`.

        %0 = "nn.mean_variance_norm"(%x)
    ->
        %0 = "nn.reduce_mean"(%x)
        %1 = "nn.sub"(%x, %0)
        %2 = "nn.mul"(%1, %1)
        %3 = "nn.reduce_mean"(%2)
        %4 = "nn.div"(%1, %deviation)
    """

    def rewrite(self, op: MeanVarianceNorm, rewriter: Rewriter) -> None:
        e = Expression(rewriter)
        centered, variance = e.normalized(e.widened(op.x), sorted(op.axes))
        y = e.div(centered, e.add(e.sqrt(variance), EPSILON))
        rewriter.replace(op, e.cast(y, dtype_of(op.x)))


@dataclass(frozen=True)
class DecomposeMeanVarianceNorm(PatternPass):
    """Write mean variance normalization as means and elementwise ops."""

    NAME: ClassVar[str] = "nn-decompose-mean-variance-norm"
    PATTERNS: ClassVar = (MeanVarianceNormOfParts,)
