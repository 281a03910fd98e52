"""nn-fold-batch-norm: batch normalization becomes part of the op before it, or a multiplication and an addition."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, no_match, producer
from xcompile.dialects.nn.base import numpy_dtype, rank_of
from xcompile.dialects.nn.binary import Add, Mul
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.norm import BatchNorm
from xcompile.passes.common.constants import array_of, constant, narrowed
from xcompile.passes.nn.channels import bias_of, channels_of, replace_conv, scaled_weights


def _affine(rewriter: Rewriter, norm: BatchNorm) -> tuple[np.ndarray, np.ndarray]:
    """The factor γ/√(σ²+ε) and the shift β-μ·factor of each channel, in float64."""
    scale, bias, mean, variance = (
        array_of(rewriter, value, f"the {name}").astype(np.float64)
        for name, value in norm.operand_fields().items()
        if name != "x"
    )
    if not (variance + norm.epsilon > 0).all():
        no_match("variance plus epsilon is not positive")
    factor = scale / np.sqrt(variance + norm.epsilon)
    shift = bias - mean * factor
    if not (np.isfinite(factor).all() and np.isfinite(shift).all()):
        no_match("a parameter is not finite")
    return factor, shift


def _check_use(norm: BatchNorm, what: str) -> None:
    if not has_one_use(norm.x):
        no_match(f"the {what} has other users")


class FoldIntoConv(Pattern[BatchNorm]):
    """Fold inference batch normalization into the convolution that feeds it.

    w' = w·γ/√(σ²+ε),  b' = (b-μ)·γ/√(σ²+ε)+β

        %0 = "nn.conv"(%x, %w, %b)
        %1 = "nn.batch_norm"(%0, %scale, %bias, %mean, %variance)
    ->
        %1 = "nn.conv"(%x, %folded_w, %folded_b)
    """

    KIND: ClassVar[type[Conv] | type[ConvTranspose]] = Conv

    def rewrite(self, norm: BatchNorm, rewriter: Rewriter) -> None:
        conv: Any = producer(norm.x, self.KIND)
        if conv is None:
            no_match(f"the input is not made by {self.KIND.NAME}")
        _check_use(norm, "convolution")
        factor, shift = _affine(rewriter, norm)
        bias = bias_of(rewriter, conv, channels_of(conv)) * factor + shift
        weights = scaled_weights(rewriter, conv, factor)
        replace_conv(rewriter, norm, conv, weights=weights, bias=bias)


class FoldIntoConvTranspose(FoldIntoConv):
    """The same for transposed convolutions, whose weights count output channels on axis 1 within a group.

        %0 = "nn.conv_transpose"(%x, %w, %b)
        %1 = "nn.batch_norm"(%0, %scale, %bias, %mean, %variance)
    ->
        %1 = "nn.conv_transpose"(%x, %folded_w, %folded_b)
    """

    KIND = ConvTranspose


class FoldIntoMatMul(Pattern[BatchNorm]):
    """Fold batch normalization of rows into the matrix that made them.

        %0 = "nn.matmul"(%x, %w)
        %1 = "nn.batch_norm"(%0, %scale, %bias, %mean, %variance)
    ->
        %0 = "nn.matmul"(%x, %folded_w)
        %1 = "nn.add"(%0, %shift)
    """

    def rewrite(self, norm: BatchNorm, rewriter: Rewriter) -> None:
        product = producer(norm.x, MatMul) or no_match("the input is not made by nn.matmul")
        _check_use(norm, "matrix product")
        if rank_of(norm.x) != 2 or rank_of(product.b) != 2:
            no_match("the channels are not the columns of a matrix")
        factor, shift = _affine(rewriter, norm)
        w = array_of(rewriter, product.b, "the matrix")
        along = factor.reshape(-1, 1) if product.transpose_b else factor
        weights = narrowed(w.astype(np.float64) * along, w.dtype)
        fields = {**product.operand_fields(), **product.attributes()}
        fields["b"] = constant(rewriter, weights)
        made = rewriter.create(MatMul, **fields)
        shifted = constant(rewriter, narrowed(shift, w.dtype))
        rewriter.replace(norm, rewriter.create(Add, a=made.y, b=shifted))


class ToMulAdd(Pattern[BatchNorm]):
    """Write batch normalization as a multiplication and an addition, which fuse with their neighbours.

        %0 = "nn.batch_norm"(%x, %scale, %bias, %mean, %variance)
    ->
        %0 = "nn.mul"(%x, %factor)
        %1 = "nn.add"(%0, %shift)
    """

    def rewrite(self, norm: BatchNorm, rewriter: Rewriter) -> None:
        dtype, rank = numpy_dtype(norm.x), rank_of(norm.x)
        if dtype.itemsize < 4:
            no_match(f"a product rounded to {dtype.name} would lose accuracy")
        shape = (-1, *[1] * (rank - 2))
        factor, shift = (narrowed(v, dtype).reshape(shape) for v in _affine(rewriter, norm))
        scaled = rewriter.create(Mul, a=norm.x, b=constant(rewriter, factor))
        rewriter.replace(norm, rewriter.create(Add, a=scaled.y, b=constant(rewriter, shift)))


@dataclass(frozen=True)
class FoldBatchNorm(PatternPass):
    """Fold batch normalization with constant parameters into the convolution or matrix product that feeds it.

    Where that can't be, it becomes a multiplication and an addition.
    """

    NAME: ClassVar[str] = "nn-fold-batch-norm"
    PATTERNS: ClassVar = (FoldIntoConv, FoldIntoConvTranspose, FoldIntoMatMul, ToMulAdd)
