"""nn-decompose-lp-norm: Lp normalization as a reduction and elementwise ops."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.norm import LpNorm
from xcompile.dialects.nn.reduce import ReduceL1, ReduceL2
from xcompile.passes.nn.expression import Expression


class LpNormOfParts(Pattern[LpNorm]):
    """`x / norm`, and 0 where the norm is 0.

        %0 = "nn.lp_norm"(%x) {axis = 1}
    ->
        %0 = "nn.reduce_l2"(%x)
        %1 = "nn.div"(%x, %0)
        %2 = "nn.equal"(%0, %zero)
        %3 = "nn.where"(%2, %zero, %1)
    """

    def rewrite(self, op: LpNorm, rewriter: Rewriter) -> None:
        e = Expression(rewriter)
        wide = e.widened(op.x)
        norm = e.reduce(ReduceL1 if op.p == 1 else ReduceL2, wide, (op.axis,))
        y = e.where(e.equal(norm, 0.0), 0.0, e.div(wide, norm))
        rewriter.replace(op, e.cast(y, dtype_of(op.x)))


@dataclass(frozen=True)
class DecomposeLpNorm(PatternPass):
    """Write Lp normalization as a norm and a division."""

    NAME: ClassVar[str] = "nn-decompose-lp-norm"
    PATTERNS: ClassVar = (LpNormOfParts,)
