"""nn-fold-scale: factors and shifts of channels around convolutions and matrix products go into the weights."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, maker, no_match, producer
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.binary import Add, Div, Mul
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.matmul import MatMul
from xcompile.passes.common.constants import array_of, constant, narrowed
from xcompile.passes.nn.channels import (
    bias_of,
    channels_of,
    per_channel,
    replace_conv,
    scaled_weights,
)


def _split(op: Mul | Add) -> tuple[Value, Value]:
    """The operand that is computed, and the constant one."""
    for x, c in ((op.a, op.b), (op.b, op.a)):
        if const_of(c) is not None and const_of(x) is None:
            return x, c
    return no_match("no operand is a constant")


def _finite(factor: np.ndarray) -> np.ndarray:
    if not np.isfinite(factor).all():
        no_match("a factor is not finite")
    return factor


def _scale_conv(rewriter: Rewriter, op: Mul | Div, x: Value, factor_of: Value) -> None:
    conv = maker(x)
    if not isinstance(conv, Conv | ConvTranspose):
        no_match("no operand is a convolution")
    if not has_one_use(x):
        no_match("the convolution has other users")
    channels = channels_of(conv)
    factor = per_channel(rewriter, factor_of, x, channels)
    if isinstance(op, Div):
        with np.errstate(all="ignore"):
            factor = 1 / factor
    weights = scaled_weights(rewriter, conv, _finite(factor))
    bias = None if conv.bias is None else bias_of(rewriter, conv, channels) * factor
    replace_conv(rewriter, op, conv, weights=weights, bias=bias)


class MulBehindConv(Pattern[Mul]):
    """A factor of each channel behind a convolution.

        %0 = "nn.conv"(%x, %w, %b)
        %1 = "nn.mul"(%0, %c)
    ->
        %1 = "nn.conv"(%x, %scaled_w, %scaled_b)
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        _scale_conv(rewriter, op, *_split(op))


class DivBehindConv(Pattern[Div]):
    """A divisor of each channel behind a convolution.

        %0 = "nn.conv"(%x, %w, %b)
        %1 = "nn.div"(%0, %c)
    ->
        %1 = "nn.conv"(%x, %scaled_w, %scaled_b)
    """

    def rewrite(self, op: Div, rewriter: Rewriter) -> None:
        _scale_conv(rewriter, op, op.a, op.b)


def _matrix(rewriter: Rewriter, product: MatMul) -> np.ndarray:
    """The constant right operand, `[k, n]`, in float64."""
    if rank_of(product.b) != 2 or rank_of(product.a) < 2:
        no_match("the right operand is not a matrix")
    w = array_of(rewriter, product.b, "the matrix").astype(np.float64)
    return w.T if product.transpose_b else w


def _with_matrix(rewriter: Rewriter, product: MatMul, matrix: np.ndarray, a: Value) -> MatMul:
    """The product with another right operand, given as `[k, n]`."""
    dtype = array_of(rewriter, product.b, "the matrix").dtype
    fields = {**product.attributes(), "transpose_b": False, "a": a}
    return rewriter.create(MatMul, **fields, b=constant(rewriter, narrowed(matrix, dtype)))


class MulBehindMatMul(Pattern[Mul]):
    """A factor of each column behind a matrix product.

        %0 = "nn.matmul"(%x, %w)
        %1 = "nn.mul"(%0, %c)
    ->
        %1 = "nn.matmul"(%x, %scaled_w)
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        x, c = _split(op)
        product = producer(x, MatMul) or no_match("no operand is a matrix product")
        if not has_one_use(x):
            no_match("the matrix product has other users")
        matrix = _matrix(rewriter, product)
        factor = _finite(per_channel(rewriter, c, x, matrix.shape[1], axis=-1))
        rewriter.replace(op, _with_matrix(rewriter, product, matrix * factor, product.a))


class MulBehindAdd(Pattern[Mul]):
    """A factor behind a matrix product with a bias is a factor of both.

        %0 = "nn.add"(%product, %b)
        %1 = "nn.mul"(%0, %c)
    ->
        %0 = "nn.mul"(%product, %c)
        %1 = "nn.add"(%0, %scaled_b)
    """

    def rewrite(self, op: Mul, rewriter: Rewriter) -> None:
        x, c = _split(op)
        shifted = producer(x, Add) or no_match("no operand is a sum")
        if not has_one_use(x):
            no_match("the sum has other users")
        product, b = _split(shifted)
        found = producer(product, MatMul) or no_match("the sum is not behind a matrix product")
        columns = _matrix(rewriter, found).shape[1]
        factor = _finite(per_channel(rewriter, c, x, columns, axis=-1))
        bias = per_channel(rewriter, b, product, columns, axis=-1) * factor
        dtype = array_of(rewriter, b, "the bias").dtype
        scaled = rewriter.create(Mul, a=product, b=c)
        added = constant(rewriter, narrowed(bias, dtype))
        rewriter.replace(op, rewriter.create(Add, a=scaled.y, b=added))


class MulBeforeMatMul(Pattern[MatMul]):
    """A factor of each summed element before a matrix product.

        %0 = "nn.mul"(%x, %c)
        %1 = "nn.matmul"(%0, %w)
    ->
        %1 = "nn.matmul"(%x, %scaled_w)
    """

    def rewrite(self, op: MatMul, rewriter: Rewriter) -> None:
        scaled = producer(op.a, Mul) or no_match("the left operand is not multiplied")
        if op.transpose_a or not has_one_use(op.a):
            no_match("the product has other users, or is transposed")
        matrix = _matrix(rewriter, op)
        x, c = _split(scaled)
        factor = _finite(per_channel(rewriter, c, x, matrix.shape[0], axis=-1))
        rewriter.replace(op, _with_matrix(rewriter, op, matrix * factor.reshape(-1, 1), x))


def _input_scaled(conv: Conv, w: np.ndarray, factor: np.ndarray) -> np.ndarray:
    """Weights `[m, c / groups, …]` times a factor of each input channel, in float64."""
    grouped = w.astype(np.float64).reshape(conv.groups, -1, *w.shape[1:])
    along = factor.reshape(conv.groups, 1, -1, *[1] * (w.ndim - 2))
    return (grouped * along).reshape(w.shape)


def _input_channels(conv: Conv) -> int:
    size = ir.RankedTensorType(conv.w.type).shape[1]
    if size < 0:
        no_match("the number of channels is not fixed")
    return size * conv.groups


class MulBeforeConv(Pattern[Conv]):
    """A factor of each input channel before a convolution; padding stays zero.

        %0 = "nn.mul"(%x, %c)
        %1 = "nn.conv"(%0, %w, %b)
    ->
        %1 = "nn.conv"(%x, %scaled_w, %b)
    """

    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        scaled = producer(op.x, Mul) or no_match("the input is not multiplied")
        if not has_one_use(op.x):
            no_match("the product has other users")
        x, c = _split(scaled)
        factor = _finite(per_channel(rewriter, c, x, _input_channels(op)))
        w = array_of(rewriter, op.w, "the weight")
        weights = narrowed(_input_scaled(op, w, factor), w.dtype)
        replace_conv(rewriter, op, op, weights=weights, x=x)


class AddBeforeConv(Pattern[Conv]):
    """A shift of each input channel before a convolution without padding goes into the bias.

        %0 = "nn.add"(%x, %c)
        %1 = "nn.conv"(%0, %w)
    ->
        %1 = "nn.conv"(%x, %w, %bias)
    """

    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        shifted = producer(op.x, Add) or no_match("the input is no sum")
        if any(op.pads) or op.auto_pad != "notset":
            no_match("the convolution pads, and padding is not shifted")
        if not has_one_use(op.x):
            no_match("the sum has other users")
        x, c = _split(shifted)
        shift = _finite(per_channel(rewriter, c, x, _input_channels(op)))
        w = array_of(rewriter, op.w, "the weight")
        added = _input_scaled(op, w, shift).reshape(w.shape[0], -1).sum(axis=1)
        bias = bias_of(rewriter, op, w.shape[0]) + added
        replace_conv(rewriter, op, op, bias=bias, x=x)


@dataclass(frozen=True)
class FoldScale(PatternPass):
    """Fold constant factors and shifts of channels into the weights of convolutions and matrix products."""

    NAME: ClassVar[str] = "nn-fold-scale"
    PATTERNS: ClassVar = (
        MulBehindConv,
        DivBehindConv,
        MulBehindMatMul,
        MulBehindAdd,
        MulBeforeMatMul,
        MulBeforeConv,
        AddBeforeConv,
    )
