"""nn-fuse-hard-swish: the parts of a hard swish become one op."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.binary import Div, Mul
from xcompile.dialects.nn.ternary import Clip
from xcompile.dialects.nn.unary import HardSigmoid, HardSwish
from xcompile.passes.common.constants import number_of
from xcompile.passes.common.shapes import replace_by_operand
from xcompile.passes.nn.terms import (
    close,
    factors,
    other_factor,
    polynomial,
    require_wide,
    same_polynomial,
)


def _fuse_clip(rewriter: Rewriter, op: Mul | Div) -> None:
    number, rest = factors(rewriter, op)
    if not close(number, 1 / 6):
        no_match("the constant factor is not 1/6")
    require_wide(op)
    x, clip = other_factor(rest, Clip, "no factor is a clip")
    low = None if clip.low is None else number_of(rewriter, clip.low)
    high = None if clip.high is None else number_of(rewriter, clip.high)
    if low != 0 or high != 6:
        no_match("the clip is not to [0, 6]")
    if not same_polynomial(polynomial(rewriter, clip.x, x), {0: 3.0, 1: 1.0}):
        no_match("the clip is not of the other factor plus 3")
    replace_by_operand(rewriter, op, rewriter.create(HardSwish, x=x).y)


class HardSwishOfProduct(Pattern[Mul]):
    """`x·clip(x + 3, 0, 6)·(1/6)` in any order.

        %0 = "nn.clip"(%shifted, %zero, %six)
        %1 = "nn.mul"(%x, %0)
        %2 = "nn.mul"(%1, %sixth)
    ->
        %2 = "nn.hard_swish"(%x)
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        _fuse_clip(rewriter, op)


class HardSwishOfQuotient(Pattern[Div]):
    """`x·clip(x + 3, 0, 6)/6`.

        %1 = "nn.mul"(%x, %0)
        %2 = "nn.div"(%1, %six)
    ->
        %2 = "nn.hard_swish"(%x)
    """

    def rewrite(self, op: Div, rewriter: Rewriter) -> None:
        _fuse_clip(rewriter, op)


class HardSwishOfHardSigmoid(Pattern[Mul]):
    """`x·hard_sigmoid(x)` with slope 1/6.

        %0 = "nn.hard_sigmoid"(%x) {alpha = 0.16666667}
        %1 = "nn.mul"(%x, %0)
    ->
        %1 = "nn.hard_swish"(%x)
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        x, gate = other_factor([op.a, op.b], HardSigmoid, "no factor is a hard sigmoid")
        require_wide(op)
        if gate.x != x:
            no_match("the hard sigmoid is not of the other factor")
        if not close(gate.alpha, 1 / 6) or not close(gate.beta, 0.5):
            no_match("the hard sigmoid has another slope or offset")
        replace_by_operand(rewriter, op, rewriter.create(HardSwish, x=x).y)


@dataclass(frozen=True)
class FuseHardSwish(PatternPass):
    """Recognise hard swish by clip and by hard sigmoid."""

    NAME: ClassVar[str] = "nn-fuse-hard-swish"
    PATTERNS: ClassVar = (HardSwishOfProduct, HardSwishOfQuotient, HardSwishOfHardSigmoid)
