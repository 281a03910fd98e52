"""nn-fuse-pad: padding with zeros becomes the padding of the convolution or pool behind it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match, producer
from xcompile.dialects.nn.base import numpy_dtype, rank_of
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.integer import ConvInteger
from xcompile.dialects.nn.pool import AveragePool, MaxPool, Pool
from xcompile.dialects.nn.slicing import Pad
from xcompile.passes.common.constants import constant, number_of
from xcompile.passes.common.shapes import shapes
from xcompile.passes.nn.quantized import same_number


def _pad(rewriter: Rewriter, value: Value, number: float) -> Pad:
    pad = producer(value, Pad) or no_match("the input is not padded")
    if pad.mode != "constant":
        no_match(f"the pad is of mode '{pad.mode}'")
    filled = 0.0 if pad.value is None else number_of(rewriter, pad.value)
    if filled != number:
        no_match(f"the pad does not fill with {number:g}")
    return pad


def _spatial_pads(rewriter: Rewriter, pad: Pad) -> tuple[int, ...]:
    """All begins, then all ends of the spatial axes; leaves the pattern for pads that crop or are not known."""
    known, rank = rewriter.analysis(shapes), rank_of(pad.x)
    counts = known.content(pad.pads)
    axes = tuple(range(rank)) if pad.axes is None else known.content(pad.axes)
    if counts is None or axes is None:
        no_match("the pads are not known")
    sizes: dict[int, int] = {}
    for position, axis in enumerate(axes):
        for end in (0, 1):
            count = counts[position + end * len(axes)]
            if not isinstance(axis, int) or not isinstance(count, int):
                no_match("the pads are not known")
            if count < 0:
                no_match("the pad crops")
            sizes[axis % rank + end * rank] = count
    if any(sizes.get(axis + end * rank, 0) for axis in (0, 1) for end in (0, 1)):
        no_match("the pad widens the batch or the channels")
    return tuple(sizes.get(axis + end * rank, 0) for end in (0, 1) for axis in range(2, rank))


def _sum(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


class PadIntoConv(Pattern[Conv]):
    """Zeros around the input of a convolution are its padding.

        %0 = "nn.pad"(%x, %pads)
        %1 = "nn.conv"(%0, %w)
    ->
        %1 = "nn.conv"(%x, %w)
    """

    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        pad = _pad(rewriter, op.x, 0)
        if op.auto_pad != "notset":
            no_match("the convolution pads by its input's size")
        pads = _sum(op.pads, _spatial_pads(rewriter, pad))
        fields = {**op.operand_fields(), **op.attributes(), "x": pad.x, "pads": pads}
        rewriter.replace(op, rewriter.create(Conv, **fields))


class PadIntoIntegerConv(Pattern[ConvInteger]):
    """What is around the input of a convolution of integers is what its padding holds.

        %0 = "nn.pad"(%x, %pads, %number)
        %1 = "nn.conv_integer"(%0, %w)
    ->
        %1 = "nn.conv_integer"(%x, %w, %number)
    """

    def rewrite(self, op: ConvInteger, rewriter: Rewriter) -> None:
        pad = producer(op.x, Pad) or no_match("the input is not padded")
        if pad.mode != "constant":
            no_match(f"the pad is of mode '{pad.mode}'")
        if op.auto_pad != "notset":
            no_match("the convolution pads by its input's size")
        own = op.fill if op.fill is not None else op.x_zero_point
        number = pad.value
        if any(op.pads) and not same_number(own, number):
            no_match("the convolution pads with another number")
        if number is None:
            number = constant(rewriter, np.zeros((), numpy_dtype(op.x)))
        pads = _sum(op.pads, _spatial_pads(rewriter, pad))
        fields = {**op.operand_fields(), **op.attributes(), "x": pad.x, "pads": pads}
        rewriter.replace(op, rewriter.create(ConvInteger, **{**fields, "fill": number}))


def _check_pool(op: Pool) -> None:
    if op.auto_pad != "notset" or op.ceil_mode:
        no_match("the pool's windows follow from its input's size")


class PadIntoAveragePool(Pattern[AveragePool]):
    """Zeros around the input of a pool that does not pad are padding that counts.

        %0 = "nn.pad"(%x, %pads)
        %1 = "nn.average_pool"(%0)
    ->
        %1 = "nn.average_pool"(%x) {count_include_pad = true}
    """

    def rewrite(self, op: AveragePool, rewriter: Rewriter) -> None:
        pad = _pad(rewriter, op.x, 0)
        _check_pool(op)
        if any(op.pads):
            no_match("the pool pads in another way")
        pads = _spatial_pads(rewriter, pad)
        fields = {**op.attributes(), "x": pad.x, "pads": pads, "count_include_pad": True}
        rewriter.replace(op, rewriter.create(AveragePool, **fields))


class PadIntoMaxPool(Pattern[MaxPool]):
    """Minus infinity around the input of a maximum pool is its padding.

        %0 = "nn.pad"(%x, %pads, %minus_infinity)
        %1 = "nn.max_pool"(%0)
    ->
        %1 = "nn.max_pool"(%x)
    """

    def rewrite(self, op: MaxPool, rewriter: Rewriter) -> None:
        pad = _pad(rewriter, op.x, float("-inf"))
        _check_pool(op)
        pads = _sum(op.pads, _spatial_pads(rewriter, pad))
        rewriter.replace(
            op, rewriter.create(MaxPool, **{**op.attributes(), "x": pad.x, "pads": pads})
        )


@dataclass(frozen=True)
class FusePad(PatternPass):
    """Make constant padding the padding of the convolution or pool that reads it."""

    NAME: ClassVar[str] = "nn-fuse-pad"
    PATTERNS: ClassVar = (PadIntoConv, PadIntoIntegerConv, PadIntoAveragePool, PadIntoMaxPool)
