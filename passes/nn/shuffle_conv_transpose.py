"""nn-shuffle-conv-transpose: some transposed convolutions as a convolution whose channels become pixels.

Where a transposed convolution has few output channels, or groups, the phases of all channels fit together into
vectors; phases of their own (`compiler/schedule/phases.py`) would compute mostly padding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.op import Op
from xcompile.compiler.ir.passes import PassContext, PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.compiler.schedule.phases import Phases, phase_weights, transposed
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.reshape import DepthToSpace
from xcompile.dialects.nn.slicing import Slice
from xcompile.passes.common.constants import array_of, constant


class ChannelsToPixels(Pattern[ConvTranspose]):
    """A transposed convolution of equal strides with few output channels, or with groups.

        %0 = "nn.conv_transpose"(%x, %w) {strides = [2, 2]} : (tensor<1x24x8x8xf32>, …) -> tensor<1x1x16x16xf32>
    ->
        %1 = "nn.conv"(%x, %phases) : … -> tensor<1x4x8x8xf32>
        %0 = "nn.depth_to_space"(%1) {block = 2, mode = "CRD"}
    """

    def __init__(self, lanes: int) -> None:
        self._lanes = lanes

    def rewrite(self, op: ConvTranspose, rewriter: Rewriter) -> None:
        if rank_of(op.x) != 4 or dtype_of(op.x) != "f32":
            no_match("it is not of float32 images")
        if op.strides[0] != op.strides[1] or op.strides[0] == 1:
            no_match("the strides differ, or are 1")
        weight = array_of(rewriter, op.w, "the weight")
        bias = None if op.bias is None else array_of(rewriter, op.bias, "the bias")
        window, phases = transposed(
            weight.shape[2:], op.strides, op.pads, op.dilations, op.output_pads
        )
        if min(window.pads) < 0:
            no_match("padding drops whole windows")
        channels = weight.shape[1]
        together = -(-phases.count * channels // self._lanes)
        apart = phases.count * -(-channels // self._lanes)
        if op.groups == 1 and 2 * together > apart:
            no_match("phases of their own compute no more than twice as much")
        parts = [
            window_weights(part, phases, op.dilations, window.kernel)
            for part in np.split(weight, op.groups)
        ]
        conv = rewriter.create(
            Conv, x=op.x, w=constant(rewriter, np.concatenate(parts)), groups=op.groups, pads=window.pads,
            strides=(1, 1), dilations=(1, 1),
            bias=None if bias is None else constant(rewriter, np.repeat(bias, phases.count)),
        )  # fmt: skip
        pixels = rewriter.create(DepthToSpace, x=conv.y, block=op.strides[0], mode="CRD")
        rewriter.replace(op, cut_missing(rewriter, pixels, phases))


def cut_missing(rewriter: Rewriter, pixels: Op, phases: Phases) -> Op:
    """What gives an image, or a volume, without the phases that the output lacks at its end."""
    cut = [(axis + 2, count) for axis, count in enumerate(phases.missing) if count]
    if not cut:
        return pixels
    starts, ends, axes = (
        constant(rewriter, np.array(numbers, np.int64))
        for numbers in ([0] * len(cut), [-count for _, count in cut], [a for a, _ in cut])
    )
    return rewriter.create(Slice, x=pixels.results[0], starts=starts, ends=ends, axes=axes)


def window_weights(
    weight: np.ndarray, phases: Phases, dilations: Sequence[int], kernel: Sequence[int]
) -> np.ndarray:
    """The weights of a group: (oc · phases, c, kernel…), each phase's taps at their place in the window."""
    parts = phase_weights(weight, phases, dilations)
    count, oc, c, *taps = parts.shape
    placed = np.zeros((oc, count, c, *kernel), weight.dtype)
    for phase in range(count):
        places = np.unravel_index(phase, phases.factors)
        firsts = [
            (int(place) + start) // factor
            for place, start, factor in zip(places, phases.starts, phases.factors, strict=True)
        ]
        there = [slice(first, first + size) for first, size in zip(firsts, taps, strict=True)]
        placed[(slice(None), phase, slice(None), *there)] = parts[phase]
    return placed.reshape(oc * count, c, *kernel)


@dataclass(frozen=True)
class ShuffleConvTranspose(PatternPass):
    """Write transposed convolutions with few channels, or groups, as convolutions whose channels become pixels.

    Attributes:
        lanes: output channels of a vector; what the target has when 0.
    """

    NAME: ClassVar[str] = "nn-shuffle-conv-transpose"
    PATTERNS: ClassVar = (ChannelsToPixels,)

    lanes: int = 0

    def patterns(self, context: PassContext) -> list[Pattern[Any]]:
        return [ChannelsToPixels(self.lanes or context.target.lanes(32))]
