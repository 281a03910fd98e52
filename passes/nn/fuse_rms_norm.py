"""nn-fuse-rms-norm: the parts of a root mean square normalization become one op."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, no_match, producer
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.binary import Div, Mul
from xcompile.dialects.nn.norm import RmsNorm
from xcompile.dialects.nn.reduce import ReduceMean
from xcompile.passes.common.shapes import replace_by_operand
from xcompile.passes.nn.norm_parameters import is_one, ones, parameter
from xcompile.passes.nn.reduction import axes_of, check_trailing, over_root, plus_epsilon, square_of
from xcompile.passes.nn.terms import require_wide


def _fuse(rewriter: Rewriter, op: Div | Mul) -> None:
    x, under = over_root(rewriter, op)
    require_wide(op)
    square, epsilon = plus_epsilon(rewriter, under)
    mean = producer(square, ReduceMean) or no_match("what is under the root is no mean")
    if square_of(rewriter, mean.x) != x:
        no_match("the mean is of something else")
    if not has_one_use(square):
        no_match("the mean has other users")
    axis = check_trailing(axes_of(rewriter, mean), rank_of(x))
    made = rewriter.create(RmsNorm, x=x, scale=ones(rewriter, x, axis), axis=axis, epsilon=epsilon)
    replace_by_operand(rewriter, op, made.y)


class RmsNormOfQuotient(Pattern[Div]):
    """`x / √(mean of x² + ε)` over the last axes.

        %0 = "nn.mul"(%x, %x)
        %1 = "nn.reduce_mean"(%0)
        %2 = "nn.add"(%1, %epsilon)
        %3 = "nn.sqrt"(%2)
        %4 = "nn.div"(%x, %3)
    ->
        %4 = "nn.rms_norm"(%x, %ones)
    """

    def rewrite(self, op: Div, rewriter: Rewriter) -> None:
        _fuse(rewriter, op)


class RmsNormOfProduct(Pattern[Mul]):
    """The same with a factor one over the root.

        %3 = "nn.rsqrt"(%2)
        %4 = "nn.mul"(%x, %3)
    ->
        %4 = "nn.rms_norm"(%x, %ones)
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        _fuse(rewriter, op)


class ScaleOfRmsNorm(Pattern[Mul]):
    """A factor behind a root mean square normalization without scale.

        %0 = "nn.rms_norm"(%x, %ones)
        %1 = "nn.mul"(%0, %gamma)
    ->
        %1 = "nn.rms_norm"(%x, %gamma)
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        for value, factor in ((op.a, op.b), (op.b, op.a)):
            norm = producer(value, RmsNorm)
            if norm is None:
                continue
            if not is_one(rewriter, norm.scale):
                no_match("the normalization has a scale already")
            require_wide(op)
            scale = parameter(rewriter, norm, factor)
            fields = {**norm.attributes(), "x": norm.x, "scale": scale}
            replace_by_operand(rewriter, op, rewriter.create(RmsNorm, **fields).y)
            return
        no_match("no factor is a root mean square normalization")


@dataclass(frozen=True)
class FuseRmsNorm(PatternPass):
    """Recognise root mean square normalization over the last axes, and take in its scale."""

    NAME: ClassVar[str] = "nn-fuse-rms-norm"
    PATTERNS: ClassVar = (RmsNormOfQuotient, RmsNormOfProduct, ScaleOfRmsNorm)
