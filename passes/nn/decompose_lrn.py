"""nn-decompose-lrn: local response normalization over many channels as an average pool."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.norm import Lrn
from xcompile.dialects.nn.pool import AveragePool
from xcompile.passes.common.shapes import shapes
from xcompile.passes.nn.expression import Expression


class LrnOfParts(Pattern[Lrn]):
    """`x / (k + alpha·mean)^beta`, the mean of the squares of neighbouring channels, zeros beyond the ends.

        %0 = "nn.lrn"(%x) {size = 15}
    ->
        %0 = "nn.mul"(%x, %x)
        %1 = "nn.reshape"(%0, %channels_as_rows)
        %2 = "nn.average_pool"(%1)
        %3 = "nn.pow"(%sum, %beta)
        %4 = "nn.div"(%x, %3)
    """

    def rewrite(self, op: Lrn, rewriter: Rewriter) -> None:
        if op.is_narrow:
            no_match(f"a window of {op.size} channels is added up in place")
        sizes = rewriter.analysis(shapes).shape(op.x)
        if any(size == 0 for size in sizes):
            no_match("an axis is empty")
        if not isinstance(sizes[1], int):
            no_match("the number of channels is not fixed")
        e = Expression(rewriter)
        wide = e.widened(op.x)
        rows = e.reshape(e.mul(wide, wide), (0, 1, sizes[1], -1 if rank_of(op.x) > 2 else 1))
        before, after = (op.size - 1) // 2, op.size // 2
        mean = e.make(
            AveragePool, x=rows, kernel=(op.size, 1), strides=(1, 1), dilations=(1, 1),
            pads=(before, 0, after, 0), count_include_pad=True,
        )  # fmt: skip
        base = e.add(e.mul(e.reshape_like(mean, op.x), op.alpha), op.k)
        rewriter.replace(op, e.cast(e.div(wide, e.pow(base, op.beta)), dtype_of(op.x)))


@dataclass(frozen=True)
class DecomposeLrn(PatternPass):
    """Write local response normalization over many channels as an average pool."""

    NAME: ClassVar[str] = "nn-decompose-lrn"
    PATTERNS: ClassVar = (LrnOfParts,)
