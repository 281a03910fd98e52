"""nn-decompose-split: parts of an axis as slices, each of which the kernel that reads it may take where it lies."""

from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.slicing import Split
from xcompile.passes.common.shapes import shapes
from xcompile.passes.nn.expression import Expression


class SplitOfParts(Pattern[Split]):
    """One slice a part.

        %0, %1 = "nn.split"(%x) {axis = 1}
    ->
        %0 = "nn.slice"(%x, [0], [3], [1])
        %1 = "nn.slice"(%x, [3], [5], [1])
    """

    def rewrite(self, op: Split, rewriter: Rewriter) -> None:
        analysis = rewriter.analysis(shapes)
        axis = op.axis % len(analysis.shape(op.x))
        sizes = [analysis.shape(part)[axis] for part in op.results]
        known = [size for size in (analysis.shape(op.x)[axis], *sizes) if isinstance(size, int)]
        if len(known) <= len(sizes):
            no_match("the size of the axis or of a part is not known")
        e = Expression(rewriter)
        ends = list(accumulate(known[1:]))
        bounds = zip([0, *ends], ends, strict=False)
        rewriter.replace(op, [e.slice(op.x, axis, start, end) for start, end in bounds])


@dataclass(frozen=True)
class DecomposeSplit(PatternPass):
    """Write splits as slices."""

    NAME: ClassVar[str] = "nn-decompose-split"
    PATTERNS: ClassVar = (SplitOfParts,)
