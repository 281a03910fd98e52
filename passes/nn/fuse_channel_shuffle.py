"""nn-fuse-channel-shuffle: recognise a transposition of groups of channels."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match, producer
from xcompile.compiler.support.dims import product
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.reshape import ChannelShuffle, Reshape, Transpose
from xcompile.passes.common.shapes import same_shape, shapes


class ShuffleOfReshapes(Pattern[Reshape]):
    """Channels as two axes, exchanged and made one again.

        %0 = "nn.reshape"(%x) : (tensor<1x8x5x5xf32>) -> tensor<1x2x4x5x5xf32>
        %1 = "nn.transpose"(%0) {perm = [0, 2, 1, 3, 4]}
        %2 = "nn.reshape"(%1) : (tensor<1x4x2x5x5xf32>) -> tensor<1x8x5x5xf32>
    ->
        %2 = "nn.channel_shuffle"(%x) {groups = 2}
    """

    def rewrite(self, op: Reshape, rewriter: Rewriter) -> None:
        transpose = producer(op.x, Transpose)
        inner = None if transpose is None else producer(transpose.x, Reshape)
        if transpose is None or inner is None:
            no_match("not a transposition between reshapes")
        if transpose.perm[:3] != (0, 2, 1) or list(transpose.perm[3:]) != list(
            range(3, len(transpose.perm))
        ):
            no_match("it does not exchange the axes 1 and 2")
        if rank_of(op.y) < 2 or not same_shape(rewriter, inner.x, op.y):
            no_match("the shape changes, or has no axis of channels")
        known = rewriter.analysis(shapes)
        n, channels, *rest = known.shape(inner.x)
        batch, groups, size, *inner_rest = known.shape(inner.y)
        if not isinstance(groups, int) or not isinstance(size, int):
            no_match("the number of groups is not known")
        if batch != n or groups * size != channels or product(inner_rest) != product(rest):
            no_match("the axes 1 and 2 are not those of the channels")
        rewriter.replace(op, rewriter.create(ChannelShuffle, x=inner.x, groups=groups))


@dataclass(frozen=True)
class FuseChannelShuffle(PatternPass):
    """Recognise the shuffle of channels between grouped convolutions."""

    NAME: ClassVar[str] = "nn-fuse-channel-shuffle"
    PATTERNS: ClassVar = (ShuffleOfReshapes,)
