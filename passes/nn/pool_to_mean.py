"""nn-pool-to-mean: an average over a whole image is a mean, whose result is an image of one pixel."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.pool import AveragePool
from xcompile.dialects.nn.reduce import ReduceMean
from xcompile.dialects.nn.reshape import Squeeze
from xcompile.passes.common.shapes import replace_by_operand, shapes


class MeanOfImage(Pattern[AveragePool]):
    """An average pool whose only window is the image.

        %1 = "nn.average_pool"(%0) {kernel = array<i64: 7, 7>} : (tensor<1x8x7x7xf32>) -> tensor<1x8x1x1xf32>
    ->
        %1 = "nn.reduce_mean"(%0) {axes = array<i64: 2, 3>}
    """

    def rewrite(self, op: AveragePool, rewriter: Rewriter) -> None:
        known = rewriter.analysis(shapes)
        image = known.shape(op.x)[2:]
        if image != tuple(op.kernel):
            no_match("the window is not the whole image")
        if any(d != 1 for d in known.shape(op.y)[2:]):
            no_match("there are several windows")
        if set(op.dilations) != {1} or any(op.pads) or op.auto_pad != "notset":
            no_match("the window has dilations or padding")
        made = rewriter.create(ReduceMean, x=op.x, axes=tuple(range(2, 2 + len(image))))
        replace_by_operand(rewriter, op, made.y)


class MeanOfImageKeepsAxes(Pattern[ReduceMean]):
    """A mean over images without their axes is one pixel each, which loses its axes.

        %1 = "nn.reduce_mean"(%0) {axes = array<i64: 2, 3>, keepdims = false}
    ->
        %2 = "nn.reduce_mean"(%0) {axes = array<i64: 2, 3>}
        %1 = "nn.squeeze"(%2) {axes = array<i64: 2, 3>}
    """

    def rewrite(self, op: ReduceMean, rewriter: Rewriter) -> None:
        if op.keepdims or op.dynamic_axes is not None or rank_of(op.x) != 4 or op.axes != (2, 3):
            no_match("it is no mean over images that loses their axes")
        pixel = rewriter.create(ReduceMean, x=op.x, axes=op.axes)
        rewriter.replace(op, rewriter.create(Squeeze, x=pixel.y, axes=op.axes))


@dataclass(frozen=True)
class PoolToMean(PatternPass):
    """Turn average pools over whole images into means, which keep the axes of the image."""

    NAME: ClassVar[str] = "nn-pool-to-mean"
    PATTERNS: ClassVar = (MeanOfImage, MeanOfImageKeepsAxes)
