"""nn-shuffle-quantized-transpose: transposed convolutions of integers as convolutions whose channels become pixels.

The integers of the weights are put at the places where each phase of the output reads them
(`compiler/schedule/phases.py`), their zero point elsewhere: the sums are those of the transposed convolution, exactly.
Dequantization is moved behind views first, so that operands of one axis are seen; quantization moves before the shuffle
of pixels later, which then moves bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of, is_integer
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, maker, no_match, producer
from xcompile.compiler.schedule.phases import Phases, transposed
from xcompile.compiler.schedule.window import Window
from xcompile.dialects.nn.base import NnOp, dtype_of, rank_of
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.quantize import Dequantize
from xcompile.dialects.nn.reshape import DepthToSpace, Unsqueeze
from xcompile.dialects.nn.ternary import Clip
from xcompile.dialects.nn.unary import LeakyRelu, Relu
from xcompile.passes.common.constants import array_of, constant
from xcompile.passes.nn.expression import Expression
from xcompile.passes.nn.move_quantize import AxisOfDequantize, DequantizeBehind
from xcompile.passes.nn.quantized import fields_of
from xcompile.passes.nn.shuffle_conv_transpose import cut_missing, window_weights

_SHUFFLES = frozenset({"nn.depth_to_space", "nn.reshape", "nn.transpose", "nn.slice"})
"""Ops that make pixels of channels."""

_WIDEST = 16
"""Bits of the integers that weights are moved about in."""


class QuantizedTranspose(Pattern[ConvTranspose]):
    """A transposed convolution whose operands are dequantized, the weights constants.

        %0 = "nn.conv_transpose"(%x, %w) {strides = [2, 2]} : (tensor<1x24x8x8xf32>, …) -> tensor<1x12x16x16xf32>
    ->
        %1 = "nn.conv"(%x, %phases) : … -> tensor<1x48x8x8xf32>
        %0 = "nn.depth_to_space"(%1) {block = 2, mode = "CRD"}
    """

    def rewrite(self, op: ConvTranspose, rewriter: Rewriter) -> None:
        source = producer(op.w, Dequantize) or no_match("the weight is not dequantized")
        if producer(op.x, Dequantize) is None:
            no_match("the input is not dequantized")
        if source.block or (rank_of(source.scale) and source.axis % rank_of(op.w) != 1):
            no_match("the weight's scales are not those of output channels")
        dtype = dtype_of(source.x)
        if not is_integer(dtype) or bits_of(dtype) > _WIDEST:
            no_match(f"the weight's codes are {dtype}, no integers of at most {_WIDEST} bits")
        codes = _codes(rewriter, source.x)
        window, phases = transposed(
            codes.shape[2:], op.strides, op.pads, op.dilations, op.output_pads
        )
        if min(window.pads) < 0:
            no_match("padding drops whole windows")
        shape = _pixels_shape(op, window, phases, codes.shape[1] * op.groups)
        conv = rewriter.create(
            Conv,
            x=op.x,
            w=self._weights(rewriter, op, source, codes, window.kernel, phases),
            bias=self._bias(rewriter, op, phases),
            strides=window.strides,
            pads=window.pads,
            dilations=window.dilations,
            groups=op.groups,
        )
        pixels = _pixels(rewriter, conv.y, phases, shape)
        rewriter.replace(op, cut_missing(rewriter, pixels, phases))

    @staticmethod
    def _weights(
        rewriter: Rewriter,
        op: ConvTranspose,
        source: Dequantize,
        codes: np.ndarray,
        kernel: Sequence[int],
        phases: Phases,
    ) -> Value:
        """The weights of the convolution, dequantized."""
        count, rank = phases.count, codes.ndim

        def channelwise(value: Value | None, what: str) -> np.ndarray | None:
            if value is None:
                return None
            found = array_of(rewriter, value, what)
            return np.tile(np.repeat(found, count), op.groups) if found.ndim else found

        zero = channelwise(source.zero_point, "the weight's zero point")
        scale = channelwise(source.scale, "the weight's scale")
        moved = codes.astype(np.int16)
        if source.zero_point is not None:
            given = array_of(rewriter, source.zero_point, "the weight's zero point")
            moved = moved - given.astype(np.int16).reshape(1, -1, *[1] * (rank - 2))
        groups = np.split(moved, op.groups)
        placed = np.concatenate([window_weights(g, phases, op.dilations, kernel) for g in groups])
        if zero is not None:
            placed = placed + zero.astype(np.int16).reshape(-1, *[1] * (rank - 1))
        assert scale is not None
        fields = {
            **fields_of(source),
            "scale": constant(rewriter, scale),
            "zero_point": None if zero is None else constant(rewriter, zero),
            "axis": 0,
        }
        return rewriter.create(
            Dequantize, x=constant(rewriter, placed.astype(codes.dtype)), **fields
        ).y

    @staticmethod
    def _bias(rewriter: Rewriter, op: ConvTranspose, phases: Phases) -> Value | None:
        """The bias of the convolution, dequantized if it was."""
        if op.bias is None:
            return None
        source, count = producer(op.bias, Dequantize), phases.count
        if source is None:
            return constant(rewriter, np.repeat(array_of(rewriter, op.bias, "the bias"), count))
        fields = fields_of(source)
        for name in ("scale", "zero_point"):
            value = fields[name]
            if isinstance(value, Value) and rank_of(value):
                repeated = np.repeat(array_of(rewriter, value, f"the bias's {name}"), count)
                fields[name] = constant(rewriter, repeated)
        codes = np.repeat(array_of(rewriter, source.x, "the bias"), count)
        return rewriter.create(Dequantize, x=constant(rewriter, codes), **fields).y


def _codes(rewriter: Rewriter, value: Value) -> np.ndarray:
    """The integers of constant weights, of which those of one axis are seen through a view."""
    view = producer(value, Unsqueeze)
    if view is None:
        return array_of(rewriter, value, "the weight")
    shape = ir.RankedTensorType(value.type).shape
    return array_of(rewriter, view.x, "the weight").reshape(shape)


def _pixels_shape(op: ConvTranspose, window: Window, phases: Phases, channels: int) -> list[int]:
    """The shape of the result with its phases, 0 for the batch and -1 for a size that is not known.

    Leaves the pattern when two sizes are needed and are not known.
    """
    sizes = list(ir.RankedTensorType(op.x.type).shape)[2:]
    places = [window.output(axis, s) if s >= 0 else -1 for axis, s in enumerate(sizes)]
    if places.count(-1) > 1 and not _is_square(phases):
        no_match("several sizes are known only at run time")
    return [0, channels, *places]


def _is_square(phases: Phases) -> bool:
    """Whether the shuffle is that of depth_to_space."""
    return len(phases.factors) == 2 and phases.factors[0] == phases.factors[1]


def _pixels(rewriter: Rewriter, x: Value, phases: Phases, shape: Sequence[int]) -> Op:
    """Channels and their phases as channels and pixels."""
    if _is_square(phases):
        return rewriter.create(DepthToSpace, x=x, block=phases.factors[0], mode="CRD")
    e, factors, rank = Expression(rewriter), phases.factors, len(phases.factors)
    batch, channels, *places = shape
    apart = e.reshape(x, (batch, channels, *factors, *places))
    order = [0, 1, *(axis for i in range(rank) for axis in (2 + rank + i, 2 + i))]
    moved = e.transpose(apart, order)
    sizes = [p * f if p >= 0 else -1 for p, f in zip(places, factors, strict=True)]
    joined = e.reshape(moved, (batch, channels, *sizes))
    made = maker(joined)
    assert made is not None
    return made


class ActivationOfPixels(Pattern[NnOp]):
    """An activation is computed before channels of a quantized convolution become pixels.

        %1 = "nn.relu"(%0) where %0 = "nn.depth_to_space"(%x)
    ->
        %0 = "nn.relu"(%x)
        %1 = "nn.depth_to_space"(%0)
    """

    def rewrite(self, op: NnOp, rewriter: Rewriter) -> None:
        if not isinstance(op, Relu | LeakyRelu | Clip):
            no_match("it is no activation")
        inner = maker(op.x)
        if not isinstance(inner, NnOp) or not _shuffles_products(op.x):
            no_match("the operand is not made of a quantized convolution by a shuffle of pixels")
        fields: dict[str, Any] = {**op.operand_fields(), "x": inner.operands[0]}
        before = rewriter.create(type(op), **fields, **op.attributes())
        operands = {**inner.operand_fields(), "x": before.results[0]}
        rewriter.replace(op, rewriter.create(type(inner), **operands, **inner.attributes()))


def _shuffles_products(value: Value) -> bool:
    """Whether a value is made by a shuffle of pixels of a convolution of dequantized operands."""
    shuffled = False
    while (op := maker(value)) is not None and op.NAME in _SHUFFLES and has_one_use(value):
        value, shuffled = op.operands[0], True
    conv = producer(value, Conv)
    if conv is None or not shuffled or not has_one_use(value):
        return False
    return all(producer(v, Dequantize) is not None for v in (conv.x, conv.w))


@dataclass(frozen=True)
class ShuffleQuantizedTranspose(PatternPass):
    """Write transposed convolutions of quantized operands as convolutions whose channels become pixels."""

    NAME: ClassVar[str] = "nn-shuffle-quantized-transpose"
    PATTERNS: ClassVar = (
        DequantizeBehind,
        AxisOfDequantize,
        QuantizedTranspose,
        ActivationOfPixels,
    )
