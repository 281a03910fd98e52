"""nn-conv-bias: an addition behind a convolution becomes its bias."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, maker, no_match
from xcompile.dialects.nn.binary import Add, Sub
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.passes.nn.channels import bias_of, channels_of, per_channel, replace_conv


def _conv(value: Value) -> Conv | ConvTranspose | None:
    found = maker(value)
    return found if isinstance(found, Conv | ConvTranspose) else None


def _merge(rewriter: Rewriter, op: Add | Sub, conv_value: Value, c: Value, sign: int) -> None:
    conv = _conv(conv_value)
    if conv is None:
        no_match("no operand is a convolution")
    if not has_one_use(conv_value):
        no_match("the convolution has other users")
    channels = channels_of(conv)
    added = per_channel(rewriter, c, conv_value, channels)
    bias = bias_of(rewriter, conv, channels) + sign * added
    replace_conv(rewriter, op, conv, bias=bias)


class AddToBias(Pattern[Add]):
    """A constant that is added to each channel of a convolution is its bias.

        %0 = "nn.conv"(%x, %w)
        %1 = "nn.add"(%0, %c)
    ->
        %1 = "nn.conv"(%x, %w, %bias)
    """

    def rewrite(self, op: Add, rewriter: Rewriter) -> None:
        if _conv(op.a) is not None:
            _merge(rewriter, op, op.a, op.b, 1)
        else:
            _merge(rewriter, op, op.b, op.a, 1)


class SubToBias(Pattern[Sub]):
    """A constant that is subtracted from each channel of a convolution is its bias, negated.

        %0 = "nn.conv"(%x, %w)
        %1 = "nn.sub"(%0, %c)
    ->
        %1 = "nn.conv"(%x, %w, %bias)
    """

    def rewrite(self, op: Sub, rewriter: Rewriter) -> None:
        _merge(rewriter, op, op.a, op.b, -1)


@dataclass(frozen=True)
class ConvBias(PatternPass):
    """Make constants added to the channels of a convolution its bias."""

    NAME: ClassVar[str] = "nn-conv-bias"
    PATTERNS: ClassVar = (AddToBias, SubToBias)
