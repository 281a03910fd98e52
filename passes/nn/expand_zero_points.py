"""nn-expand-zero-points: integer products without zero points, and what these add to the sums.

Σ(x-zx)(w-zw) = Σx·w - zw·Σx - zx·Σ(w-zw), where what pads add to x is zx. With constant weights the last sum is a
constant of each output channel; the middle one vanishes where the weights without their zero point fit 8 bits.
Sums wrap around at 32 bits, so every step may leave them as long as the whole does not.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, no_match, producer
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.binary import Add
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.integer import ConvInteger, MatMulInteger
from xcompile.dialects.nn.reduce import ReduceSum
from xcompile.passes.common.constants import array_of, constant
from xcompile.passes.nn.expression import Expression
from xcompile.passes.nn.quantized import is_zero


class _Terms:
    """Makes what zero points add to sums, in int32. Constants are computed at once."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._e = Expression(rewriter)

    def array(self, value: Value | None) -> np.ndarray | None:
        """A constant in int64, None for other values."""
        if value is None or const_of(value) is None:
            return None
        return array_of(self._rewriter, value, "it").astype(np.int64)

    def constant(self, array: np.ndarray) -> Value:
        """Integers as int32, wrapped around."""
        return constant(self._rewriter, array.astype(np.int32))

    def column(self, value: Value, axes_behind: int) -> Value:
        """A zero point in int32, so that a vector runs along the axis with so many axes behind it."""
        known = self.array(value)
        if known is not None:
            behind = [1] * axes_behind
            return self.constant(known.reshape(-1, *behind) if known.ndim else known)
        wide = self._e.cast(value, "i32")
        if rank_of(value) and axes_behind:
            wide = self._e.reshape(wide, (-1, *[1] * axes_behind))
        return wide

    def sums(self, x: Value, axes: tuple[int, ...], zero: Value | None) -> Value:
        """The sums of `x - zero` over axes, which are gone; `zero` broadcasts to x."""
        known, shift = self.array(x), None if zero is None else self.array(zero)
        if known is not None and (zero is None or shift is not None):
            return self.constant((known if shift is None else known - shift).sum(axis=axes))
        wide = self._e.cast(x, "i32")
        if zero is not None:
            wide = self._e.sub(wide, zero)
        return self._e.reduce(ReduceSum, wide, axes, keepdims=False)

    def shaped(self, sums: Value, shape: tuple[int, ...]) -> Value:
        """A vector in another shape, at once if it is a constant."""
        known = self.array(sums)
        return (
            self._e.reshape(sums, shape) if known is None else self.constant(known.reshape(shape))
        )

    def raised(self, sums: Value, axis: int) -> Value:
        """With an axis of size 1, at once if it is a constant."""
        known = self.array(sums)
        if known is None:
            return self._e.unsqueeze(sums, axis)
        return self.constant(np.expand_dims(known, axis))

    def minus(self, total: Value, a: Value, b: Value) -> Value:
        """`total - a·b`; a constant is added, so that constants meet."""
        left, right = self.array(a), self.array(b)
        if left is not None and right is not None:
            return self._e.add(total, self.constant(-left * right))
        return self._e.sub(total, self._e.mul(a, b))

    def without_zero(self, w: Value, zero: Value, axes_behind: int) -> Value | None:
        """Constant weights minus their zero points as int8, None when they do not fit."""
        known, shift = self.array(w), self.array(zero)
        if known is None or shift is None:
            return None
        moved = known - (shift.reshape(-1, *[1] * axes_behind) if shift.ndim else shift)
        fits = moved.min(initial=0) >= -128 and moved.max(initial=0) <= 127
        return constant(self._rewriter, moved.astype(np.int8)) if fits else None


def _given(zero: Value | None) -> Value | None:
    return None if zero is None or is_zero(zero) else zero


class ZeroPointsOfConv(Pattern[ConvInteger]):
    """The zero points of a convolution. The sum of the inputs under a window is a convolution with ones.

        %0 = "nn.conv_integer"(%x, %w, %zero)
    ->
        %1 = "nn.conv_integer"(%x, %w, %zero) : … pads hold %zero
        %0 = "nn.add"(%1, %correction)
    """

    def rewrite(self, op: ConvInteger, rewriter: Rewriter) -> None:
        zx, zw = op.x_zero_point, op.w_zero_point
        if zx is None and zw is None:
            no_match("it has no zero points")
        zx, zw = _given(zx), _given(zw)
        fill = op.fill if op.fill is not None else zx
        if op.auto_pad != "notset" and fill is not None:
            no_match("its padding is not written down")
        fields = {**op.attributes(), "x": op.x, "fill": fill if any(op.pads) else None}
        terms, behind = _Terms(rewriter), rank_of(op.w) - 2
        w = op.w
        narrow = None if zw is None else terms.without_zero(w, zw, behind + 1)
        if narrow is not None:
            w, zw = narrow, None
        total = rewriter.create(ConvInteger, **fields, w=w).y
        if zw is not None:
            ones = self._ones(rewriter, op)
            under = rewriter.create(ConvInteger, **fields, w=ones).y
            total = terms.minus(total, terms.column(zw, behind), under)
        if zx is not None:
            shift = None if zw is None else terms.column(zw, behind + 1)
            sums = terms.sums(w, tuple(range(1, behind + 2)), shift)
            sums = terms.shaped(sums, (-1, *[1] * behind))
            total = terms.minus(total, terms.column(zx, 0), sums)
        rewriter.replace(op, total)

    @staticmethod
    def _ones(rewriter: Rewriter, op: ConvInteger) -> Value:
        """Weights that sum the inputs under a window: for all output channels at once, or for those of each group."""
        shape = ir.RankedTensorType(op.w.type).shape
        if min(shape) < 0:
            no_match("the weights have sizes that are not known")
        count = 1 if op.groups == 1 else shape[0]
        return constant(rewriter, np.ones((count, *shape[1:]), np.int8))


class ZeroPointsOfMatMul(Pattern[MatMulInteger]):
    """The zero points of a matrix product: sums of the rows of a and of the columns of b.

        %0 = "nn.matmul_integer"(%a, %b, %zero)
    ->
        %1 = "nn.matmul_integer"(%a, %b)
        %0 = "nn.add"(%1, %correction)
    """

    def rewrite(self, op: MatMulInteger, rewriter: Rewriter) -> None:
        za, zb = op.a_zero_point, op.b_zero_point
        if za is None and zb is None:
            no_match("it has no zero points")
        if min(rank_of(op.a), rank_of(op.b)) < 2:
            no_match("an operand is a vector")
        za, zb, b = _given(za), _given(zb), op.b
        terms = _Terms(rewriter)
        columns = 1 if op.transpose_b else 0
        narrow = None if zb is None else terms.without_zero(b, zb, columns)
        if narrow is not None:
            b, zb = narrow, None
        total = rewriter.create(MatMulInteger, **{**op.attributes(), "a": op.a, "b": b}).y
        if zb is not None:
            inner = rank_of(op.a) - (2 if op.transpose_a else 1)
            rows = terms.raised(terms.sums(op.a, (inner,), None), -1)
            total = terms.minus(total, rows, terms.column(zb, 0))
        if za is not None:
            inner = rank_of(b) - (1 if op.transpose_b else 2)
            shift = None if zb is None else terms.column(zb, columns)
            sums = terms.sums(b, (inner,), shift)
            sums = sums if rank_of(b) == 2 else terms.raised(sums, -2)
            total = terms.minus(total, terms.column(za, 1), sums)
        rewriter.replace(op, total)


class SumOfConstants(Pattern[Add]):
    """Two constants that are added to integers one after the other.

        %1 = "nn.add"(%0, %c) where %0 = "nn.add"(%x, %d)
    ->
        %1 = "nn.add"(%x, %sum)
    """

    def rewrite(self, op: Add, rewriter: Rewriter) -> None:
        if dtype_of(op.y) != "i32":
            no_match("it does not add int32")
        terms = _Terms(rewriter)
        x, c = (op.a, op.b) if const_of(op.b) is not None else (op.b, op.a)
        inner, outer = producer(x, Add), terms.array(c)
        if inner is None or outer is None:
            no_match("it does not add a constant to a sum")
        if not has_one_use(x):
            no_match("the sum has other users")
        y, d = (inner.a, inner.b) if const_of(inner.b) is not None else (inner.b, inner.a)
        known = terms.array(d)
        if known is None:
            no_match("the sum is not one with a constant")
        rewriter.replace(op, rewriter.create(Add, a=y, b=terms.constant(outer + known)))


@dataclass(frozen=True)
class ExpandZeroPoints(PatternPass):
    """Write zero points of integer products as terms of the sums; with constant weights these are constants."""

    NAME: ClassVar[str] = "nn-expand-zero-points"
    PATTERNS: ClassVar = (ZeroPointsOfConv, ZeroPointsOfMatMul, SumOfConstants)
