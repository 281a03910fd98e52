"""nn-decompose-group-norm: group normalization as means and elementwise ops."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.norm import GroupNorm
from xcompile.passes.common.shapes import shapes
from xcompile.passes.nn.expression import Expression


class GroupNormOfParts(Pattern[GroupNorm]):
    """Normalization of `[n, groups, elements]`, then scale and bias in the old shape.

        %0 = "nn.group_norm"(%x, %scale, %bias) {groups = 4}
    ->
        %0 = "nn.reshape"(%x, %grouped)
        %1 = "nn.reduce_mean"(%0)
        %2 = "nn.sub"(%0, %1)
        %3 = "nn.div"(%2, %deviation)
        %4 = "nn.reshape"(%3, %shape)
    """

    def rewrite(self, op: GroupNorm, rewriter: Rewriter) -> None:
        if any(size == 0 for size in rewriter.analysis(shapes).shape(op.x)):
            no_match("an axis is empty")
        e = Expression(rewriter)
        grouped = e.reshape(e.widened(op.x), (0, op.groups, -1))
        centered, variance = e.normalized(grouped, (2,))
        y = e.reshape_like(e.div(centered, e.sqrt(e.add(variance, op.epsilon))), op.x)
        rewriter.replace(op, e.cast(e.affine(y, op.scale, op.bias), dtype_of(op.x)))


@dataclass(frozen=True)
class DecomposeGroupNorm(PatternPass):
    """Write group normalization as means and elementwise ops on grouped channels."""

    NAME: ClassVar[str] = "nn-decompose-group-norm"
    PATTERNS: ClassVar = (GroupNormOfParts,)
