"""nn-move-quantize: quantization moves to where elements are computed, so that they lie in memory as integers.

Dequantization moves behind ops that move or choose elements, quantization before them. Where the two meet with one
scale and zero point, both vanish. Nothing is rounded anew: results are the same to the bit.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, maker, no_match, producer
from xcompile.dialects.nn.base import NnOp, numpy_dtype, rank_of
from xcompile.dialects.nn.binary import Maximum
from xcompile.dialects.nn.gather import Gather
from xcompile.dialects.nn.pool import MaxPool
from xcompile.dialects.nn.quantize import Dequantize, Quantization, Quantize, limits
from xcompile.dialects.nn.reshape import Squeeze, Transpose, Unsqueeze
from xcompile.dialects.nn.resize import Resize
from xcompile.dialects.nn.slicing import Concat, Pad, Split
from xcompile.dialects.nn.ternary import Clip
from xcompile.dialects.nn.unary import Relu
from xcompile.passes.common.constants import constant, number_of
from xcompile.passes.nn.expression import Expression
from xcompile.passes.nn.quantized import dequantized_exactly, fields_of, same_step, step_of

_CHOOSES = frozenset({"nn.max_pool", "nn.reduce_max", "nn.reduce_min"})
"""Ops that compare elements: they need a positive scale."""

_READS_PARTS = frozenset({"nn.gather", "nn.gather_elements", "nn.gather_nd", "nn.split"})
"""Ops of whose operand much may not be needed where they are read."""

MOVES = (
    frozenset(
        {"nn.reshape", "nn.flatten", "nn.squeeze", "nn.unsqueeze", "nn.transpose", "nn.expand", "nn.slice", "nn.tile",
         "nn.depth_to_space", "nn.space_to_depth", "nn.channel_shuffle", "nn.pad", "nn.resize"}
    ) | _CHOOSES | _READS_PARTS
)  # fmt: skip
"""Ops whose elements are those of their first operand, and a number that `pad` adds."""


def _check_moves(rewriter: Rewriter, op: NnOp, quantization: Quantization) -> None:
    """Leave the pattern unless the op does the same to integers of one scale."""
    if not quantization.per_tensor(quantization.scale):
        no_match("there is more than one scale")
    if op.NAME in _CHOOSES:
        step_of(rewriter, quantization)
    if isinstance(op, MaxPool) and _may_hold_nothing(op):
        no_match("a window may hold nothing but padding")
    if isinstance(op, Resize) and (op.mode != "nearest" or op.roi is not None):
        no_match("it computes elements")


def _may_hold_nothing(op: MaxPool) -> bool:
    reach = [1 if d > 1 else k for k, d in zip(op.kernel, op.dilations, strict=True)]
    return any(pad >= k for pad, k in zip(op.pads, (*reach, *reach), strict=True))


def _moved(rewriter: Rewriter, op: NnOp, x: Value, quantization: Quantization) -> NnOp:
    """The op on another first operand: integers where it was numbers."""
    operands: dict[str, Any] = {**op.operand_fields(), "x": x}
    if isinstance(op, Pad) and op.mode == "constant":
        operands["value"] = _padding(rewriter, op, quantization)
    count = {"results": len(op.results)} if isinstance(op, Split) else {}
    return rewriter.create(type(op), **operands, **op.attributes(), **count)


def _padding(rewriter: Rewriter, op: Pad, quantization: Quantization) -> Value | None:
    """What a pad adds, as an integer."""
    number = 0.0 if op.value is None else number_of(rewriter, op.value)
    if number == 0:
        return quantization.zero_point
    if number is None or np.isnan(number):
        no_match("what is padded with is not known")
    step = step_of(rewriter, quantization)
    code = step.code(number)
    if isinstance(quantization, Dequantize) and step.number(code) != np.float32(number):
        no_match("what is padded with is no multiple of the scale")
    return constant(rewriter, np.array(code, DTYPES[step.dtype]))


class DequantizeBehind(Pattern[NnOp]):
    """Dequantize what an op that moves elements gives instead of what it takes.

        %1 = "nn.transpose"(%0) where %0 = "nn.dequantize"(%x, %scale, %zero)
    ->
        %0 = "nn.transpose"(%x)
        %1 = "nn.dequantize"(%0, %scale, %zero)
    """

    def rewrite(self, op: NnOp, rewriter: Rewriter) -> None:
        if op.NAME not in MOVES:
            no_match("")
        source = producer(op.operands[0], Dequantize) or no_match("the operand is not dequantized")
        _check_moves(rewriter, op, source)
        moved = _moved(rewriter, op, source.x, source)
        fields = {**fields_of(source), "axis": 0}
        rewriter.replace(op, [rewriter.create(Dequantize, x=y, **fields).y for y in moved.results])


class AxisOfDequantize(Pattern[NnOp]):
    """The same where each channel has a scale: the axis moves with the channels.

        %1 = "nn.transpose"(%0) {perm = [1, 0]} where %0 = "nn.dequantize"(%x, %scales) {axis = 0}
    ->
        %0 = "nn.transpose"(%x) {perm = [1, 0]}
        %1 = "nn.dequantize"(%0, %scales) {axis = 1}
    """

    def rewrite(self, op: NnOp, rewriter: Rewriter) -> None:
        if not isinstance(op, Transpose | Unsqueeze | Squeeze):
            no_match("")
        source = producer(op.x, Dequantize) or no_match("the operand is not dequantized")
        if source.block or source.per_tensor(source.scale):
            no_match("there is not a scale for each channel")
        axis = _axis_behind(op, source.axis % rank_of(op.x))
        moved = rewriter.create(type(op), x=source.x, **op.attributes())
        fields = {**fields_of(source), "axis": axis}
        rewriter.replace(op, rewriter.create(Dequantize, x=moved.y, **fields))


def _axis_behind(op: Transpose | Unsqueeze | Squeeze, axis: int) -> int:
    """Where an axis of the operand is in the result."""
    if isinstance(op, Transpose):
        return tuple(op.perm).index(axis)
    if isinstance(op, Squeeze):
        gone = {a % rank_of(op.x) for a in op.axes or ()}
        if axis in gone or not op.axes:
            no_match("the axis of the scales is squeezed, or may be")
        return axis - sum(a < axis for a in gone)
    rank = rank_of(op.y)
    new = {a % rank for a in op.axes}
    return [i for i in range(rank) if i not in new][axis]


class DequantizeBehindGather(Pattern[Gather]):
    """Gather elements with their scales: rows of an embedding, each with a scale of its own or one for each block.

        %1 = "nn.gather"(%0, %i) {axis = 0} where %0 = "nn.dequantize"(%x, %scale) {axis = 1, block = 32}
    ->
        %0 = "nn.gather"(%x, %i) {axis = 0}
        %1 = "nn.gather"(%scale, %i) {axis = 0}
        %2 = "nn.dequantize"(%0, %1) {axis = 1, block = 32}
    """

    def rewrite(self, op: Gather, rewriter: Rewriter) -> None:
        source = producer(op.x, Dequantize) or no_match("the operand is not dequantized")
        if source.per_tensor(source.scale):
            no_match("there is one scale for all")
        rank, e = rank_of(op.x), Expression(rewriter)
        axis, scales = op.axis % rank, source.axis % rank
        fields = fields_of(source)
        granular = {n: v for n in ("scale", "zero_point") if isinstance(v := fields[n], Value)}
        if axis != scales:
            fields["axis"] = scales + rank_of(op.indices) - 1 if scales > axis else scales
        elif source.block or rank != 2 or axis:
            no_match("the scales along the axis of the indices are not those of rows")
        if source.block:
            fields |= {n: e.gather(v, op.indices, axis) for n, v in granular.items()}
        elif axis == scales:
            last = rank_of(op.y) - 1
            length = ir.RankedTensorType(op.x.type).shape[1]
            if length < 1:
                no_match("the length of a row is not known")
            rows = {n: e.unsqueeze(e.gather(v, op.indices, 0), last) for n, v in granular.items()}
            fields |= {**rows, "axis": last, "block": length}
        moved = e.gather(source.x, op.indices, axis)
        rewriter.replace(op, rewriter.create(Dequantize, x=moved, **fields))


class DequantizeBehindConcat(Pattern[Concat]):
    """Concatenate integers that have one scale and zero point.

        %2 = "nn.concat"(%0, %1) where %0 = "nn.dequantize"(%x, %scale), %1 = "nn.dequantize"(%y, %scale)
    ->
        %0 = "nn.concat"(%x, %y)
        %1 = "nn.dequantize"(%0, %scale)
    """

    def rewrite(self, op: Concat, rewriter: Rewriter) -> None:
        found = [producer(v, Dequantize) for v in op.xs]
        sources = [source for source in found if source is not None]
        if len(sources) != len(found):
            no_match("an operand is not dequantized")
        if not all(same_step(sources[0], source) for source in sources):
            no_match("the operands have different scales")
        made = rewriter.create(Concat, xs=[source.x for source in sources], axis=op.axis)
        fields = {**fields_of(sources[0]), "axis": 0}
        rewriter.replace(op, rewriter.create(Dequantize, x=made.y, **fields))


class ReluOfIntegers(Pattern[Relu]):
    """A ReLU of dequantized integers is the maximum of them and the zero point.

        %1 = "nn.relu"(%0) where %0 = "nn.dequantize"(%x, %scale, %zero)
    ->
        %0 = "nn.maximum"(%x, %zero)
        %1 = "nn.dequantize"(%0, %scale, %zero)
    """

    def rewrite(self, op: Relu, rewriter: Rewriter) -> None:
        source = producer(op.x, Dequantize) or no_match("the operand is not dequantized")
        step = step_of(rewriter, source)
        if step.zero == limits(step.dtype)[0]:
            rewriter.replace(op, source.y)
            return
        zero = constant(rewriter, np.array(step.zero, numpy_dtype(source.x)))
        least = rewriter.create(Maximum, a=source.x, b=zero)
        rewriter.replace(op, rewriter.create(Dequantize, x=least.y, **fields_of(source)))


class QuantizeBefore(Pattern[Quantize]):
    """Quantize what an op that moves elements takes instead of what it gives.

        %1 = "nn.quantize"(%0, %scale, %zero) where %0 = "nn.transpose"(%x)
    ->
        %0 = "nn.quantize"(%x, %scale, %zero)
        %1 = "nn.transpose"(%0)
    """

    def rewrite(self, op: Quantize, rewriter: Rewriter) -> None:
        inner = maker(op.x)
        if not isinstance(inner, NnOp) or inner.NAME not in MOVES - _READS_PARTS:
            no_match("the operand is not made by an op that moves elements")
        if not has_one_use(op.x):
            no_match("the operand has other users")
        _check_moves(rewriter, inner, op)
        fields = {**fields_of(op), "axis": 0}
        quantized = rewriter.create(Quantize, x=inner.operands[0], **fields)
        rewriter.replace(op, _moved(rewriter, inner, quantized.y, op))


class QuantizeBeforeConcat(Pattern[Quantize]):
    """Quantize the parts of a concatenation.

        %1 = "nn.quantize"(%0, %scale, %zero) where %0 = "nn.concat"(%x, %y)
    ->
        %0 = "nn.quantize"(%x, %scale, %zero)
        %1 = "nn.quantize"(%y, %scale, %zero)
        %2 = "nn.concat"(%0, %1)
    """

    def rewrite(self, op: Quantize, rewriter: Rewriter) -> None:
        inner = producer(op.x, Concat) or no_match("the operand is no concatenation")
        if not has_one_use(op.x):
            no_match("the operand has other users")
        if not op.per_tensor(op.scale):
            no_match("there is more than one scale")
        fields = {**fields_of(op), "axis": 0}
        parts = [rewriter.create(Quantize, x=x, **fields).y for x in inner.xs]
        rewriter.replace(op, rewriter.create(Concat, xs=parts, axis=inner.axis))


class QuantizeOfDequantize(Pattern[Quantize]):
    """Integers that are dequantized and quantized with the same scale and zero point.

        %1 = "nn.quantize"(%0, %scale, %zero) where %0 = "nn.dequantize"(%x, %scale, %zero)
    ->
        %x
    """

    def rewrite(self, op: Quantize, rewriter: Rewriter) -> None:
        source = producer(op.x, Dequantize) or no_match("the operand is not dequantized")
        if not same_step(op, source):
            no_match("scale, zero point or type differ")
        step_of(rewriter, op)
        if not dequantized_exactly(source):
            no_match("the integers are not exact in the float's type")
        rewriter.replace(op, source.x)


class ClampBeforeQuantize(Pattern[Quantize]):
    """A ReLU or clip that changes nothing because quantization clips as much.

        %1 = "nn.quantize"(%0, %scale) {to = "ui8"} where %0 = "nn.relu"(%x)
    ->
        %0 = "nn.quantize"(%x, %scale) {to = "ui8"}
    """

    def rewrite(self, op: Quantize, rewriter: Rewriter) -> None:
        inner = maker(op.x)
        bounds = clamp_bounds(rewriter, inner)
        if not has_one_use(op.x):
            no_match("the operand has other users")
        step = step_of(rewriter, op)
        least, most = limits(step.dtype)
        low, high = bounds
        if low is not None and step.code(low) != least:
            no_match("the quantized range goes below the lower bound")
        if high is not None and step.code(high) != most:
            no_match("the quantized range goes above the upper bound")
        assert inner is not None
        rewriter.absorb(inner)
        rewriter.replace(op, rewriter.create(Quantize, x=inner.operands[0], **fields_of(op)))


def clamp_bounds(rewriter: Rewriter, op: Op | None) -> tuple[float | None, float | None]:
    """The constant bounds of a ReLU or clip; leaves the pattern for other ops."""
    if isinstance(op, Relu):
        return 0.0, None
    if not isinstance(op, Clip):
        no_match("the operand is neither a ReLU nor a clip")
    found: list[float | None] = []
    for value in (op.low, op.high):
        number = None if value is None else number_of(rewriter, value)
        if value is not None and (number is None or np.isnan(number)):
            no_match("a bound is not a known number")
        found.append(number)
    low, high = found
    if low is not None and high is not None and low > high:
        no_match("the bounds are in the wrong order")
    return low, high


@dataclass(frozen=True)
class MoveQuantize(PatternPass):
    """Move quantization to where elements are computed; what is dequantized and quantized again alike stays."""

    NAME: ClassVar[str] = "nn-move-quantize"
    PATTERNS: ClassVar = (
        QuantizeOfDequantize,
        ClampBeforeQuantize,
        DequantizeBehind,
        AxisOfDequantize,
        DequantizeBehindGather,
        DequantizeBehindConcat,
        ReluOfIntegers,
        QuantizeBefore,
        QuantizeBeforeConcat,
    )
