"""nn-fuse-layer-norm: the parts of a layer normalization become one op."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, no_match, producer
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.binary import Add, Div, Mul, Sub
from xcompile.dialects.nn.norm import LayerNorm
from xcompile.dialects.nn.reduce import ReduceMean
from xcompile.passes.common.shapes import replace_by_operand
from xcompile.passes.nn.norm_parameters import is_one, ones, parameter
from xcompile.passes.nn.reduction import axes_of, check_trailing, over_root, plus_epsilon, square_of
from xcompile.passes.nn.terms import require_wide


def _fuse(rewriter: Rewriter, op: Div | Mul) -> None:
    centered, under = over_root(rewriter, op)
    difference = producer(centered, Sub) or no_match("what is divided is no difference")
    require_wide(op)
    variance, epsilon = plus_epsilon(rewriter, under)
    spread = producer(variance, ReduceMean) or no_match("the variance is no mean")
    squared = producer(square_of(rewriter, spread.x), Sub)
    if squared is None or squared.operands != difference.operands:
        no_match("the variance is of something else")
    mean = producer(difference.b, ReduceMean) or no_match("what is subtracted is no mean")
    if mean.x != difference.a:
        no_match("the mean is of something else")
    if not has_one_use(variance):
        no_match("the variance has other users")
    axes = axes_of(rewriter, mean)
    if axes != axes_of(rewriter, spread):
        no_match("mean and variance are of different axes")
    x = difference.a
    axis = check_trailing(axes, rank_of(x))
    made = rewriter.create(
        LayerNorm, x=x, scale=ones(rewriter, x, axis), axis=axis, epsilon=epsilon
    )
    replace_by_operand(rewriter, op, made.y)


class LayerNormOfQuotient(Pattern[Div]):
    """`(x - mean) / √(variance + ε)` over the last axes.

        %0 = "nn.reduce_mean"(%x)
        %1 = "nn.sub"(%x, %0)
        %2 = "nn.mul"(%1, %1)
        %3 = "nn.reduce_mean"(%2)
        %4 = "nn.add"(%3, %epsilon)
        %5 = "nn.sqrt"(%4)
        %6 = "nn.div"(%1, %5)
    ->
        %6 = "nn.layer_norm"(%x, %ones)
    """

    def rewrite(self, op: Div, rewriter: Rewriter) -> None:
        _fuse(rewriter, op)


class LayerNormOfProduct(Pattern[Mul]):
    """The same with a factor one over the root.

        %5 = "nn.rsqrt"(%4)
        %6 = "nn.mul"(%1, %5)
    ->
        %6 = "nn.layer_norm"(%x, %ones)
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        _fuse(rewriter, op)


class ScaleOfLayerNorm(Pattern[Mul]):
    """A factor behind a layer normalization without scale and bias.

        %0 = "nn.layer_norm"(%x, %ones)
        %1 = "nn.mul"(%0, %gamma)
    ->
        %1 = "nn.layer_norm"(%x, %gamma)
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        for value, factor in ((op.a, op.b), (op.b, op.a)):
            norm = producer(value, LayerNorm)
            if norm is None:
                continue
            if norm.bias is not None or not is_one(rewriter, norm.scale):
                no_match("the normalization has a scale or a bias already")
            require_wide(op)
            scale = parameter(rewriter, norm, factor)
            fields = {**norm.attributes(), "x": norm.x, "scale": scale}
            replace_by_operand(rewriter, op, rewriter.create(LayerNorm, **fields).y)
            return
        no_match("no factor is a layer normalization")


class BiasOfLayerNorm(Pattern[Add]):
    """An addend behind a layer normalization without bias.

        %0 = "nn.layer_norm"(%x, %gamma)
        %1 = "nn.add"(%0, %beta)
    ->
        %1 = "nn.layer_norm"(%x, %gamma, %beta)
    """

    def rewrite(self, op: Add, rewriter: Rewriter) -> None:
        for value, addend in ((op.a, op.b), (op.b, op.a)):
            norm = producer(value, LayerNorm)
            if norm is None:
                continue
            if norm.bias is not None:
                no_match("the normalization has a bias already")
            require_wide(op)
            bias = parameter(rewriter, norm, addend)
            fields = {**norm.attributes(), **norm.operand_fields(), "bias": bias}
            replace_by_operand(rewriter, op, rewriter.create(LayerNorm, **fields).y)
            return
        no_match("no addend is a layer normalization")


@dataclass(frozen=True)
class FuseLayerNorm(PatternPass):
    """Recognise layer normalization over the last axes, and take in its scale and bias."""

    NAME: ClassVar[str] = "nn-fuse-layer-norm"
    PATTERNS: ClassVar = (
        LayerNormOfQuotient,
        LayerNormOfProduct,
        ScaleOfLayerNorm,
        BiasOfLayerNorm,
    )
