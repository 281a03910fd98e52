"""nn-decompose-instance-norm: instance normalization as means and elementwise ops."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.norm import InstanceNorm
from xcompile.passes.nn.expression import Expression


class InstanceNormOfParts(Pattern[InstanceNorm]):
    """`(x - mean) / √(variance + ε)·scale + bias` over the spatial axes.

        %0 = "nn.instance_norm"(%x, %scale, %bias)
    ->
        %0 = "nn.reduce_mean"(%x)
        %1 = "nn.sub"(%x, %0)
        %2 = "nn.mul"(%1, %1)
        %3 = "nn.reduce_mean"(%2)
        %4 = "nn.div"(%1, %deviation)
    """

    def rewrite(self, op: InstanceNorm, rewriter: Rewriter) -> None:
        e = Expression(rewriter)
        centered, variance = e.normalized(e.widened(op.x), range(2, rank_of(op.x)))
        y = e.div(centered, e.sqrt(e.add(variance, op.epsilon)))
        rewriter.replace(op, e.cast(e.affine(y, op.scale, op.bias), dtype_of(op.x)))


@dataclass(frozen=True)
class DecomposeInstanceNorm(PatternPass):
    """Write instance normalization as means and elementwise ops."""

    NAME: ClassVar[str] = "nn-decompose-instance-norm"
    PATTERNS: ClassVar = (InstanceNormOfParts,)
