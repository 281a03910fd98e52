"""nn-decompose-batch-norm: batch normalization as elementwise ops."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.norm import BatchNorm
from xcompile.passes.nn.expression import Expression


class BatchNormOfParts(Pattern[BatchNorm]):
    """`(x - mean)·(scale / √(variance + ε)) + bias`; the factor is one division a channel.

        %0 = "nn.batch_norm"(%x, %scale, %bias, %mean, %variance)
    ->
        %0 = "nn.sub"(%x, %mean)
        %1 = "nn.mul"(%0, %factor)
        %2 = "nn.add"(%1, %bias)
    """

    def rewrite(self, op: BatchNorm, rewriter: Rewriter) -> None:
        e, rank = Expression(rewriter), rank_of(op.x)
        wide = e.widened(op.x)
        dtype = dtype_of(wide)
        deviation = e.sqrt(e.add(e.cast(op.variance, dtype), op.epsilon))
        factor = e.div(e.cast(op.scale, dtype), deviation)
        centered = e.sub(wide, e.per_channel(e.cast(op.mean, dtype), rank))
        rewriter.replace(op, e.cast(e.affine(centered, factor, op.bias), dtype_of(op.x)))


@dataclass(frozen=True)
class DecomposeBatchNorm(PatternPass):
    """Write batch normalization that folding left as elementwise ops."""

    NAME: ClassVar[str] = "nn-decompose-batch-norm"
    PATTERNS: ClassVar = (BatchNormOfParts,)
