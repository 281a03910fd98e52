"""nn-split-reduction: a reduction over axes that are no neighbours, one group of neighbours after the other."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.reduce import (
    Reduce,
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    ReduceSumSquare,
)
from xcompile.dialects.nn.reshape import Squeeze
from xcompile.passes.common.shapes import shapes
from xcompile.passes.nn.expression import Expression

_PARTS: dict[type[Reduce], tuple[type[Reduce], type[Reduce]]] = {
    ReduceL1: (ReduceL1, ReduceSum),
    ReduceL2: (ReduceSumSquare, ReduceSum),
    ReduceLogSum: (ReduceSum, ReduceLogSum),
    ReduceLogSumExp: (ReduceLogSumExp, ReduceLogSumExp),
    ReduceMax: (ReduceMax, ReduceMax),
    ReduceMean: (ReduceMean, ReduceMean),
    ReduceMin: (ReduceMin, ReduceMin),
    ReduceProd: (ReduceProd, ReduceProd),
    ReduceSum: (ReduceSum, ReduceSum),
    ReduceSumSquare: (ReduceSumSquare, ReduceSum),
}
"""What is reduced over the last axes, and what over the others; behind an L2 norm comes the root."""


class ReductionOfNeighbours(Pattern[Reduce]):
    """The last axes that are neighbours, then the others.

        %0 = "nn.reduce_l2"(%x) {axes = [0, 2]}
    ->
        %0 = "nn.reduce_sum_square"(%x) {axes = [2]}
        %1 = "nn.reduce_sum"(%0) {axes = [0]}
        %2 = "nn.sqrt"(%1)
    """

    def rewrite(self, op: Reduce, rewriter: Rewriter) -> None:
        axes = _axes(rewriter, op)
        if len(axes) < 2 or axes[-1] - axes[0] == len(axes) - 1:
            no_match("the reduced axes are neighbours")
        if type(op) not in _PARTS:
            no_match(f"{op.NAME} is not one of its parts' results")
        if dtype_of(op.x) not in ("f32", "f64"):
            no_match("parts of 16-bit floats would be rounded, means of integers truncated")
        first = len(axes) - 1
        while axes[first - 1] == axes[first] - 1:
            first -= 1
        inner, outer = _PARTS[type(op)]
        e = Expression(rewriter)
        value = e.reduce(outer, e.reduce(inner, op.x, axes[first:]), axes[:first])
        value = e.sqrt(value) if isinstance(op, ReduceL2) else value
        rewriter.replace(op, value if op.keepdims else e.make(Squeeze, x=value, axes=axes))


def _axes(rewriter: Rewriter, op: Reduce) -> tuple[int, ...]:
    if op.dynamic_axes is None:
        return op.axes
    content: tuple[object, ...] | None = rewriter.analysis(shapes).content(op.dynamic_axes)
    if not content:
        no_match("the axes are not known, or none is named")
    known = [a for a in content if isinstance(a, int)]
    if len(known) < len(content):
        no_match("an axis is not known")
    return tuple(sorted({a % rank_of(op.x) for a in known}))


@dataclass(frozen=True)
class SplitReduction(PatternPass):
    """Reduce over axes that are neighbours, one group after the other."""

    NAME: ClassVar[str] = "nn-split-reduction"
    PATTERNS: ClassVar = (ReductionOfNeighbours,)
