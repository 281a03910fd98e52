"""nn-lower-quantized: ops between dequantization and quantization compute on integers.

Sums of products are exact in int32. What is added, clipped and quantized behind them is computed in float32 in units
of the result: each sum is converted and multiplied once, by a constant that is rounded once; further terms are
multiplied and added one by one; the end is rounded half to even, clipped, converted and shifted by the zero point,
which is a `nn.quantize` with the scale 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.ir.passes import PassContext, PatternPass
from xcompile.compiler.ir.rewrite import (
    Pattern,
    Rewriter,
    apply_phases,
    has_one_use,
    maker,
    no_match,
    producer,
    users,
)
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.binary import Add, Div, Mul, Sub
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.quantize import Dequantize, Quantize, limits
from xcompile.dialects.nn.ternary import Clip
from xcompile.dialects.nn.unary import LeakyRelu, Relu
from xcompile.passes.common.constants import array_of, constant, narrowed, number_of
from xcompile.passes.nn.expression import Expression
from xcompile.passes.nn.integer_products import Product, is_bias, product_of
from xcompile.passes.nn.move_quantize import clamp_bounds
from xcompile.passes.nn.quantized import Step, step_of

_MOST_DEPTH = 16


class _Units:
    """Writes a float expression of quantized values, multiplied by a constant factor."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._e = Expression(rewriter)

    def value(self, x: Value, factor: float, depth: int = 0) -> Value:
        """`x·factor`; leaves the pattern when `x` is made of other values than quantized ones."""
        op, e = maker(x), self._e
        if const_of(x) is not None:
            return self._float(array_of(self._rewriter, x, "a term").astype(np.float64) * factor)
        if isinstance(op, Dequantize):
            return self._dequantized(op, factor)
        if not has_one_use(x) or depth > _MOST_DEPTH:
            no_match("a part of the expression has other users")
        if op is not None:
            self._rewriter.absorb(op)
        if isinstance(op, Relu):
            return e.maximum(self.value(op.x, factor, depth + 1), 0.0)
        if isinstance(op, Clip):
            return self._clipped(op, factor, depth)
        if isinstance(op, LeakyRelu):
            inner = self.value(op.x, factor, depth + 1)
            return e.unary(LeakyRelu, inner, alpha=op.alpha)
        if isinstance(op, Add | Sub) and not self._is_biased(op):
            a, b = (self.value(v, factor, depth + 1) for v in (op.a, op.b))
            return e.add(a, b) if isinstance(op, Add) else e.sub(a, b)
        if isinstance(op, Mul | Div):
            scaled = self._scaled_by_number(op)
            if scaled is not None:
                return self.value(scaled[0], factor * scaled[1], depth + 1)
        return self.product(product_of(self._rewriter, op), factor)

    def _scaled_by_number(self, op: Mul | Div) -> tuple[Value, float] | None:
        """The value that an op multiplies by a positive number, and that."""
        for x, c in ((op.a, op.b), (op.b, op.a))[: 2 if isinstance(op, Mul) else 1]:
            made = const_of(c)
            number = number_of(self._rewriter, c)
            if made is None or number is None or not 0 < number < np.inf:
                continue
            if all(size == 1 for size in made.dims) and len(made.dims) <= rank_of(x):
                return x, number if isinstance(op, Mul) else 1 / number
        return None

    @staticmethod
    def _is_biased(op: Add | Sub) -> bool:
        """Whether it is a matrix product with a bias that may be a part of its sums."""
        return isinstance(op, Add) and any(
            producer(x, MatMul) is not None and is_bias(b) for x, b in ((op.a, op.b), (op.b, op.a))
        )

    def product(self, product: Product, factor: float) -> Value:
        """A product of integers: one multiplication, then its bias where that is apart."""
        e = self._e
        value = self._scaled(e.cast(product.sums, "f32"), product.scale * factor)
        if product.bias is None:
            return value
        return e.add(value, self._float(product.bias * factor))

    def _dequantized(self, op: Dequantize, factor: float) -> Value:
        step, e = step_of(self._rewriter, op), self._e
        wide = e.cast(op.x, "i32")
        if step.zero:
            wide = e.sub(wide, step.zero)
        return self._scaled(e.cast(wide, "f32"), np.float64(step.scale) * factor)

    def _clipped(self, op: Clip, factor: float, depth: int) -> Value:
        low, high = clamp_bounds(self._rewriter, op)
        value = self.value(op.x, factor, depth + 1)
        if low is not None:
            value = self._e.maximum(value, low * factor)
        return value if high is None else self._e.minimum(value, high * factor)

    def _scaled(self, value: Value, scale: np.ndarray | float) -> Value:
        rounded = narrowed(np.asarray(scale), np.dtype(np.float32))
        return (
            value if (rounded == 1).all() else self._e.mul(value, constant(self._rewriter, rounded))
        )

    def _float(self, array: np.ndarray) -> Value:
        return constant(self._rewriter, narrowed(array, np.dtype(np.float32)))


class QuantizedExpression(Pattern[Quantize]):
    """Sums, ReLUs and clips of products and of dequantized values, quantized.

        %0 = "nn.conv"(%x, %w) where %x = "nn.dequantize"(%qx, %sx), %w = "nn.dequantize"(%qw, %sw)
        %1 = "nn.quantize"(%0, %sy, %zero)
    ->
        %0 = "nn.conv_integer"(%qx, %qw)
        %1 = "nn.cast"(%0) {to = "f32"}
        %2 = "nn.mul"(%1, %factor)
        %3 = "nn.quantize"(%2, %one, %zero)
    """

    def rewrite(self, op: Quantize, rewriter: Rewriter) -> None:
        step = step_of(rewriter, op)
        x, low, high = _clamped(rewriter, op.x, step)
        if const_of(x) is not None:
            no_match("a constant is quantized")
        value = _Units(rewriter).value(x, 1.0 / np.float64(step.scale))
        e = Expression(rewriter)
        if low is not None:
            value = e.maximum(value, low)
        if high is not None:
            value = e.minimum(value, high)
        one = constant(rewriter, np.ones((), np.float32))
        made = rewriter.create(Quantize, x=value, scale=one, zero_point=op.zero_point, to=op.to)
        rewriter.replace(op, made)


def _clamped(rewriter: Rewriter, x: Value, step: Step) -> tuple[Value, int | None, int | None]:
    """What is quantized without the ReLU or clip before it, and the bounds in units that replace that.

    A bound and rounding commute: the bound is rounded too.
    """
    inner = maker(x)
    if not isinstance(inner, Relu | Clip) or not has_one_use(x):
        return x, None, None
    least, most = limits(step.dtype)
    bounds = clamp_bounds(rewriter, inner)
    low, high = (None if b is None else step.code(b) for b in bounds)
    rewriter.absorb(inner)
    return (
        inner.x,
        None if low is None or low == least else low - step.zero,
        None if high is None or high == most else high - step.zero,
    )


class ProductOfMatrices(Pattern[MatMul]):
    """A matrix product of dequantized operands that is not quantized.

        %0 = "nn.matmul"(%a, %b) where %a = "nn.dequantize"(%qa, %sa), %b = "nn.dequantize"(%qb, %sb)
    ->
        %0 = "nn.matmul_integer"(%qa, %qb)
        %1 = "nn.cast"(%0) {to = "f32"}
        %2 = "nn.mul"(%1, %factor)
    """

    def rewrite(self, op: MatMul, rewriter: Rewriter) -> None:
        for operation in users(op.y) if has_one_use(op.y) else ():
            adds = view(operation)
            if isinstance(adds, Add) and any(is_bias(v) for v in adds.operands):
                no_match("its bias is behind it")
        product = product_of(rewriter, op)
        rewriter.replace(op, _Units(rewriter).product(product, 1.0))


class ProductWithBias(Pattern[Add]):
    """A matrix product of dequantized operands with a bias of int32 that is not quantized.

        %1 = "nn.add"(%0, %bias) where %0 = "nn.matmul"(%a, %b), %bias = "nn.dequantize"(%qbias, %scale)
    ->
        %0 = "nn.matmul_integer"(%qa, %qb)
        %1 = "nn.add"(%0, %qbias)
        %2 = "nn.cast"(%1) {to = "f32"}
        %3 = "nn.mul"(%2, %factor)
    """

    def rewrite(self, op: Add, rewriter: Rewriter) -> None:
        if not any(is_bias(v) for v in op.operands):
            no_match("no operand is a bias")
        rewriter.replace(op, _Units(rewriter).product(product_of(rewriter, op), 1.0))


class ProductOfImages(Pattern[Conv]):
    """A convolution of dequantized operands that is not quantized.

        %0 = "nn.conv"(%x, %w) where %x = "nn.dequantize"(%qx, %sx), %w = "nn.dequantize"(%qw, %sw)
    ->
        %0 = "nn.conv_integer"(%qx, %qw)
        %1 = "nn.cast"(%0) {to = "f32"}
        %2 = "nn.mul"(%1, %factor)
    """

    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        rewriter.replace(op, _Units(rewriter).product(product_of(rewriter, op), 1.0))


@dataclass(frozen=True)
class LowerQuantized(PatternPass):
    """Compute on integers between dequantization and quantization."""

    NAME: ClassVar[str] = "nn-lower-quantized"
    PATTERNS: ClassVar = (
        QuantizedExpression,
        ProductWithBias,
        ProductOfMatrices,
        ProductOfImages,
    )

    def run(self, module: Module, context: PassContext) -> None:
        """Expressions up to their quantization first, then products without."""
        patterns = self.patterns(context)
        phases = (patterns[:1], patterns[1:])
        stats = apply_phases(module, phases, explain=context.wants_reasons(self.NAME))
        context.record(self.NAME, stats)
