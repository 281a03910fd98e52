"""nn-fuse-softmax: the parts of a softmax become one op."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match, producer, users
from xcompile.dialects.nn.binary import Div, Sub
from xcompile.dialects.nn.reduce import ReduceMax, ReduceSum
from xcompile.dialects.nn.softmax import Softmax
from xcompile.dialects.nn.unary import Exp
from xcompile.passes.common.shapes import replace_by_operand
from xcompile.passes.nn.reduction import axes_of
from xcompile.passes.nn.terms import require_wide


class SoftmaxOfQuotient(Pattern[Div]):
    """`exp(x - max) / Σ exp(x - max)` along one axis; without the maximum it may overflow and is left alone.

        %0 = "nn.reduce_max"(%x)
        %1 = "nn.sub"(%x, %0)
        %2 = "nn.exp"(%1)
        %3 = "nn.reduce_sum"(%2)
        %4 = "nn.div"(%2, %3)
    ->
        %4 = "nn.softmax"(%x)
    """

    def rewrite(self, op: Div, rewriter: Rewriter) -> None:
        total = producer(op.b, ReduceSum) or no_match("the divisor is no sum")
        powers = producer(op.a, Exp) or no_match("the dividend is no exponential")
        require_wide(op)
        if total.x != op.a:
            no_match("the sum is of something else")
        if len(users(op.a)) != 2:
            no_match("the exponential has other users")
        shifted = producer(powers.x, Sub) or no_match("no maximum is subtracted: it may overflow")
        most = producer(shifted.b, ReduceMax) or no_match("what is subtracted is no maximum")
        if most.x != shifted.a:
            no_match("the maximum is of something else")
        axes = axes_of(rewriter, total)
        if len(axes) != 1 or axes != axes_of(rewriter, most):
            no_match("sum and maximum are not along one and the same axis")
        made = rewriter.create(Softmax, x=shifted.a, axis=axes[0])
        replace_by_operand(rewriter, op, made.y)


@dataclass(frozen=True)
class FuseSoftmax(PatternPass):
    """Recognise softmax along one axis."""

    NAME: ClassVar[str] = "nn-fuse-softmax"
    PATTERNS: ClassVar = (SoftmaxOfQuotient,)
