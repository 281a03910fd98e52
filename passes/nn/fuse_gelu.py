"""nn-fuse-gelu: the parts of a GELU become one op."""

import math
from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, no_match, producer
from xcompile.dialects.nn.binary import Add, Div, Mul
from xcompile.dialects.nn.unary import Erf, Gelu, Tanh
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

ERF_ARGUMENT = {1: 1 / math.sqrt(2)}
TANH_ARGUMENT = {1: math.sqrt(2 / math.pi), 3: math.sqrt(2 / math.pi) * 0.044715}


def _one_plus(rewriter: Rewriter, total: Add) -> Value:
    for value, c in ((total.a, total.b), (total.b, total.a)):
        if number_of(rewriter, c) == 1 and has_one_use(value):
            return value
    return no_match("the sum is not 1 plus something")


def _fuse(rewriter: Rewriter, op: Mul | Div) -> None:
    number, rest = factors(rewriter, op)
    if not close(number, 0.5):
        no_match("the constant factor is not 0.5")
    require_wide(op)
    x, total = other_factor(rest, Add, "no factor is a sum")
    inner = _one_plus(rewriter, total)
    for kind, wanted, approximate in ((Erf, ERF_ARGUMENT, "none"), (Tanh, TANH_ARGUMENT, "tanh")):
        found = producer(inner, kind)
        if found is not None:
            if not same_polynomial(polynomial(rewriter, found.x, x), wanted):
                no_match(f"the argument of {found.NAME} is not that of a GELU of the other factor")
            made = rewriter.create(Gelu, x=x, approximate=approximate)
            replace_by_operand(rewriter, op, made.y)
            return
    no_match("the sum is of neither erf nor tanh")


class GeluOfProduct(Pattern[Mul]):
    """`x·0.5·(1 + erf(x/√2))` in any order, or its approximation `x·0.5·(1 + tanh(√(2/π)·(x + 0.044715·x³)))`.

        %0 = "nn.erf"(%scaled)
        %1 = "nn.add"(%0, %one)
        %2 = "nn.mul"(%x, %1)
        %3 = "nn.mul"(%2, %half)
    ->
        %3 = "nn.gelu"(%x)
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        _fuse(rewriter, op)


class GeluOfQuotient(Pattern[Div]):
    """The same, ending in a division by 2.

        %2 = "nn.mul"(%x, %1)
        %3 = "nn.div"(%2, %two)
    ->
        %3 = "nn.gelu"(%x)
    """

    def rewrite(self, op: Div, rewriter: Rewriter) -> None:
        _fuse(rewriter, op)


@dataclass(frozen=True)
class FuseGelu(PatternPass):
    """Recognise GELU by erf and by tanh."""

    NAME: ClassVar[str] = "nn-fuse-gelu"
    PATTERNS: ClassVar = (GeluOfProduct, GeluOfQuotient)
