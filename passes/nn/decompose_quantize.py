"""nn-decompose-quantize: quantization as arithmetic, which fuses with what is around it."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.dtypes import is_float
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PassContext, PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, apply_phases
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.quantize import Dequantize, Quantization, Quantize, limits
from xcompile.dialects.nn.unary import Cast, Round
from xcompile.passes.common.constants import array_of, constant
from xcompile.passes.nn.expression import Expression


def _spread(e: Expression, op: Quantization, value: Value) -> Value:
    """A scale or zero point so that it broadcasts to the operand."""
    if op.per_tensor(value):
        return value
    rank = rank_of(op.x)
    axis = op.axis % max(rank, 1)
    if op.block and ir.RankedTensorType(value.type).shape[axis] == 1:
        return value
    if op.block:
        places = e.div(e.range(e.size(op.x, axis)), op.block)
        return e.gather(value, places, axis)
    return e.reshape(value, (-1, *[1] * (rank - 1 - axis))) if rank else e.reshape(value, ())


class DequantizedConstant(Pattern[Dequantize]):
    """A constant that floats are computed with.

        %0 = "nn.dequantize"(%c, %scale)
    ->
        %0 = "nn.const"() {value = …}
    """

    def rewrite(self, op: Dequantize, rewriter: Rewriter) -> None:
        x, scale = (array_of(rewriter, v, "an operand") for v in (op.x, op.scale))
        zero = op.zero_point
        zeros = None if zero is None else array_of(rewriter, zero, "the zero point")
        rewriter.replace(op, constant(rewriter, op.reference(x, scale, zeros)))


class QuantizeOfParts(Pattern[Quantize]):
    """Divide, clip, round, convert, add the zero point: the clip is in floats, so that nothing overflows.

    Bounds are whole numbers, so it makes no difference that what is rounded is clipped before.

        %0 = "nn.quantize"(%x, %scale, %zero) {to = "ui8"}
    ->
        %0 = "nn.div"(%x, %scale)
        %1 = "nn.maximum"(%0, %least)
        %2 = "nn.minimum"(%1, %most)
        %3 = "nn.round"(%2)
        %4 = "nn.cast"(%3) {to = "i32"}
        %5 = "nn.add"(%4, %zero32)
        %6 = "nn.cast"(%5) {to = "ui8"}
    """

    def rewrite(self, op: Quantize, rewriter: Rewriter) -> None:
        e = Expression(rewriter)
        x, scale = (e.cast(v, op.precision) for v in (op.x, _spread(e, op, op.scale)))
        quotient = e.div(x, scale)
        if is_float(op.to):
            made = rewriter.create(Cast, x=quotient, to=op.to, saturate=op.saturate)
            rewriter.replace(op, made)
            return
        quotient = e.widened(quotient)
        least, most = limits(op.to)
        if op.zero_point is None:
            within = e.minimum(e.maximum(quotient, least), most)
            rewriter.replace(op, e.cast(e.unary(Round, within), op.to))
            return
        zero = e.cast(_spread(e, op, op.zero_point), "i32")
        shift = e.cast(zero, dtype_of(quotient))
        within = e.minimum(e.maximum(quotient, e.sub(least, shift)), e.sub(most, shift))
        whole = e.cast(e.unary(Round, within), "i32")
        rewriter.replace(op, e.cast(e.add(whole, zero), op.to))


class DequantizeOfParts(Pattern[Dequantize]):
    """Subtract the zero point in integers, convert, multiply.

        %0 = "nn.dequantize"(%x, %scale, %zero) {to = "f32"}
    ->
        %0 = "nn.cast"(%x) {to = "i32"}
        %1 = "nn.sub"(%0, %zero32)
        %2 = "nn.cast"(%1) {to = "f32"}
        %3 = "nn.mul"(%2, %scale)
    """

    def rewrite(self, op: Dequantize, rewriter: Rewriter) -> None:
        e = Expression(rewriter)
        wide = "f64" if op.to == "f64" else "f32"
        x = op.x
        if op.zero_point is not None and not is_float(dtype_of(x)):
            x = e.sub(e.cast(x, "i32"), e.cast(_spread(e, op, op.zero_point), "i32"))
        x = e.cast(x, wide)
        if op.zero_point is not None and is_float(dtype_of(op.x)):
            x = e.sub(x, e.cast(_spread(e, op, op.zero_point), wide))
        scaled = e.mul(x, e.cast(_spread(e, op, op.scale), wide))
        rewriter.replace(op, e.cast(scaled, op.to))


@dataclass(frozen=True)
class DecomposeQuantize(PatternPass):
    """Write quantization as arithmetic; constants that are dequantized for floats are floats."""

    NAME: ClassVar[str] = "nn-decompose-quantize"
    PATTERNS: ClassVar = (DequantizedConstant, QuantizeOfParts, DequantizeOfParts)

    def run(self, module: Module, context: PassContext) -> None:
        """Constants first."""
        patterns = self.patterns(context)
        phases = (patterns[:1], patterns[1:])
        stats = apply_phases(module, phases, explain=context.wants_reasons(self.NAME))
        context.record(self.NAME, stats)
