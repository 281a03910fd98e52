"""The patterns of nn-canonicalize on gathers and scatters whose indices name whole rows."""

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match, producer
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.gather import Gather, GatherElements, GatherND
from xcompile.dialects.nn.reshape import Expand, Squeeze
from xcompile.dialects.nn.scatter import ScatterElements, ScatterND
from xcompile.passes.common.shapes import shapes
from xcompile.passes.nn.expression import Expression


def _rows(rewriter: Rewriter, op: GatherElements | ScatterElements) -> Value:
    """The one index that each row of an op along axis 0 has: a value whose other sizes are 1."""
    rank = rank_of(op.indices)
    if op.axis % rank != 0 or rank < 2:
        no_match("the axis is not the first of several")
    expand = producer(op.indices, Expand) or no_match("the indices are not expanded")
    known = rewriter.analysis(shapes)
    source, result = known.shape(expand.x), known.shape(op.indices)
    if len(source) != rank or source[0] != result[0] or any(d != 1 for d in source[1:]):
        no_match("a row has several indices")
    if result[1:] != known.shape(op.x)[1:]:
        no_match("rows of the indices and of the operand are not known to be equally long")
    return expand.x


class GatherElementsOfRows(Pattern[GatherElements]):
    """Elements at one index a row are rows.

        %1 = "nn.gather_elements"(%x, %0) {axis = 0} where %0 = "nn.expand"(%indices, %shape)
    ->
        %0 = "nn.squeeze"(%indices)
        %1 = "nn.gather"(%x, %0) {axis = 0}
    """

    def rewrite(self, op: GatherElements, rewriter: Rewriter) -> None:
        rows = _rows(rewriter, op)
        others = tuple(range(1, rank_of(rows)))
        indices = Expression(rewriter).make(Squeeze, x=rows, axes=others)
        rewriter.replace(op, rewriter.create(Gather, x=op.x, indices=indices, axis=0))


class GatherNdOfRows(Pattern[GatherND]):
    """Parts at coordinates of one axis are rows.

        %0 = "nn.gather_nd"(%x, %indices)
    ->
        %0 = "nn.squeeze"(%indices)
        %1 = "nn.gather"(%x, %0) {axis = 0}
    """

    def rewrite(self, op: GatherND, rewriter: Rewriter) -> None:
        if op.batch_dims or rewriter.analysis(shapes).shape(op.indices)[-1] != 1:
            no_match("coordinates have several axes")
        last = rank_of(op.indices) - 1
        indices = Expression(rewriter).make(Squeeze, x=op.indices, axes=(last,))
        rewriter.replace(op, rewriter.create(Gather, x=op.x, indices=indices, axis=0))


class ScatterElementsOfRows(Pattern[ScatterElements]):
    """Elements with one index a row are rows.

        %1 = "nn.scatter_elements"(%x, %0, %updates) {axis = 0} where %0 = "nn.expand"(%indices, %shape)
    ->
        %0 = "nn.squeeze"(%indices)
        %1 = "nn.scatter_nd"(%x, %0, %updates)
    """

    def rewrite(self, op: ScatterElements, rewriter: Rewriter) -> None:
        rows = _rows(rewriter, op)
        others = tuple(range(2, rank_of(rows)))
        if others:
            rows = Expression(rewriter).make(Squeeze, x=rows, axes=others)
        made = rewriter.create(
            ScatterND, x=op.x, indices=rows, updates=op.updates, reduction=op.reduction
        )
        rewriter.replace(op, made)
