"""The patterns of nn-canonicalize on elementwise ops."""

import math

from xcompile.compiler.ir.dtypes import is_float
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, maker, no_match, producer
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.binary import Add, Div, Mul, Pow, Sub
from xcompile.dialects.nn.elementwise import Binary, Unary
from xcompile.dialects.nn.ternary import Clip
from xcompile.dialects.nn.unary import Relu
from xcompile.passes.common.constants import number_of, scalar_like
from xcompile.passes.common.shapes import replace_by_operand

NEVER_MINUS_ZERO = frozenset({"nn.abs", "nn.exp", "nn.sigmoid", "nn.softmax"})
"""Ops whose results are positive, +0 or NaN."""

IDEMPOTENT = frozenset({"nn.abs", "nn.relu", "nn.sign", "nn.floor", "nn.ceil", "nn.round"})
"""Ops that change nothing the second time."""

INVOLUTIONS = frozenset({"nn.neg", "nn.not", "nn.bitwise_not"})
"""Ops that undo themselves."""


def _is_zero(number: float | None, *, negative: bool) -> bool:
    return number == 0 and (math.copysign(1, number) < 0) == negative


class AddZero(Pattern[Add]):
    """Adding zero does nothing: -0 always, +0 to integers and to what can't be -0.

        %0 = "nn.add"(%x, %zero)
    ->
        %x
    """

    def rewrite(self, op: Add, rewriter: Rewriter) -> None:
        for x, c in ((op.a, op.b), (op.b, op.a)):
            number = number_of(rewriter, c)
            if number != 0:
                continue
            made_by = maker(x)
            if not is_float(dtype_of(x)) or _is_zero(number, negative=True):
                replace_by_operand(rewriter, op, x)
                return
            if made_by is not None and made_by.NAME in NEVER_MINUS_ZERO:
                replace_by_operand(rewriter, op, x)
                return
            no_match("adding +0 makes +0 of -0")
        no_match("no operand is zero")


class SubtractZero(Pattern[Sub]):
    """Subtracting +0 does nothing.

        %0 = "nn.sub"(%x, %zero)
    ->
        %x
    """

    def rewrite(self, op: Sub, rewriter: Rewriter) -> None:
        number = number_of(rewriter, op.b)
        if number != 0:
            no_match("it does not subtract zero")
        if is_float(dtype_of(op.a)) and _is_zero(number, negative=True):
            no_match("subtracting -0 makes +0 of -0")
        replace_by_operand(rewriter, op, op.a)


class MultiplyByOne(Pattern[Mul]):
    """Multiplying by one does nothing.

        %0 = "nn.mul"(%x, %one)
    ->
        %x
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        for x, c in ((op.a, op.b), (op.b, op.a)):
            if number_of(rewriter, c) == 1:
                replace_by_operand(rewriter, op, x)
                return
        no_match("no operand is one")


class DivideByOne(Pattern[Div]):
    """Dividing by one does nothing.

        %0 = "nn.div"(%x, %one)
    ->
        %x
    """

    def rewrite(self, op: Div, rewriter: Rewriter) -> None:
        if number_of(rewriter, op.b) != 1:
            no_match("it does not divide by one")
        replace_by_operand(rewriter, op, op.a)


class PowerOfConstant(Pattern[Pow]):
    """The first power is the operand, the second a product.

        %0 = "nn.pow"(%x, %two)
    ->
        %0 = "nn.mul"(%x, %x)
    """

    def rewrite(self, op: Pow, rewriter: Rewriter) -> None:
        exponent = number_of(rewriter, op.b)
        if exponent == 1:
            replace_by_operand(rewriter, op, op.a)
            return
        if exponent != 2:
            no_match("the exponent is neither 1 nor 2")
        made = rewriter.create(Mul, a=op.a, b=op.a)
        replace_by_operand(rewriter, op, made.y)


class Undone(Pattern[Unary]):
    """An op that undoes itself, applied twice.

        %1 = "nn.neg"(%0) where %0 = "nn.neg"(%x)
    ->
        %x
    """

    def rewrite(self, op: Unary, rewriter: Rewriter) -> None:
        if op.NAME not in INVOLUTIONS:
            no_match("the op does not undo itself")
        inner = producer(op.x, type(op)) or no_match("the operand is not of the same op")
        replace_by_operand(rewriter, op, inner.x)


class Idempotent(Pattern[Unary]):
    """An op that changes nothing the second time.

        %1 = "nn.relu"(%0) where %0 = "nn.relu"(%x)
    ->
        %0
    """

    def rewrite(self, op: Unary, rewriter: Rewriter) -> None:
        if op.NAME not in IDEMPOTENT:
            no_match("applying the op twice is not the same as once")
        if producer(op.x, type(op)) is None:
            no_match("the operand is not of the same op")
        replace_by_operand(rewriter, op, op.x)


def _bounds(rewriter: Rewriter, clip: Clip) -> tuple[float, float]:
    """The constant bounds, infinite where there are none; leaves the pattern for others."""
    found: list[float] = []
    for value, missing in ((clip.low, -math.inf), (clip.high, math.inf)):
        number = missing if value is None else number_of(rewriter, value)
        if number is None or math.isnan(number):
            no_match("a bound is not a constant number")
        found.append(number)
    return found[0], found[1]


def _clip(rewriter: Rewriter, op: Unary | Clip, x: Value, low: float, high: float) -> None:
    """Replace `op` by a clip of `x`."""
    if low > high:
        no_match("the bounds cross")
    fields = {
        name: scalar_like(rewriter, number, x)
        for name, number in (("low", low), ("high", high))
        if math.isfinite(number)
    }
    replace_by_operand(rewriter, op, rewriter.create(Clip, x=x, **fields).y)


def _check_exact(clip: Binary | Clip) -> None:
    if not is_float(dtype_of(clip.operands[0])) and dtype_of(clip.operands[0]) in ("i64", "ui64"):
        no_match("bounds of 64-bit integers are not exact as numbers")


class ClipOfNothing(Pattern[Clip]):
    """A clip without bounds, or with infinite ones.

        %0 = "nn.clip"(%x)
    ->
        %x
    """

    def rewrite(self, op: Clip, rewriter: Rewriter) -> None:
        if _bounds(rewriter, op) != (-math.inf, math.inf):
            no_match("it has a bound")
        replace_by_operand(rewriter, op, op.x)


class ClipOfClip(Pattern[Clip]):
    """Two clips are one with the inner bounds of both.

        %1 = "nn.clip"(%0, %low1, %high1) where %0 = "nn.clip"(%x, %low0, %high0)
    ->
        %1 = "nn.clip"(%x, %low, %high)
    """

    def rewrite(self, op: Clip, rewriter: Rewriter) -> None:
        inner = producer(op.x, Clip) or no_match("the operand is not a clip")
        if not has_one_use(op.x):
            no_match("the inner clip has other users")
        _check_exact(op)
        (low0, high0), (low1, high1) = _bounds(rewriter, inner), _bounds(rewriter, op)
        _clip(rewriter, op, inner.x, max(low0, low1), min(high0, high1))


class ClipOfRelu(Pattern[Clip]):
    """A clip of a ReLU is a clip from 0 on.

        %1 = "nn.clip"(%0, %low, %high) where %0 = "nn.relu"(%x)
    ->
        %1 = "nn.clip"(%x, %zero, %high)
    """

    def rewrite(self, op: Clip, rewriter: Rewriter) -> None:
        inner = producer(op.x, Relu) or no_match("the operand is not a ReLU")
        if not has_one_use(op.x):
            no_match("the ReLU has other users")
        _check_exact(op)
        low, high = _bounds(rewriter, op)
        _clip(rewriter, op, inner.x, max(0.0, low), high)


class ReluOfClip(Pattern[Relu]):
    """A ReLU of a clip is a clip from 0 on.

        %1 = "nn.relu"(%0) where %0 = "nn.clip"(%x, %low, %high)
    ->
        %1 = "nn.clip"(%x, %zero, %high)
    """

    def rewrite(self, op: Relu, rewriter: Rewriter) -> None:
        inner = producer(op.x, Clip) or no_match("the operand is not a clip")
        if not has_one_use(op.x):
            no_match("the clip has other users")
        _check_exact(inner)
        low, high = _bounds(rewriter, inner)
        _clip(rewriter, op, inner.x, max(0.0, low), high)
