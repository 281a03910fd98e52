"""A pass of your own in one file: fold batch normalization into the convolution before it."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.passes import PASS_REGISTRY, PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, no_match, producer
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.norm import BatchNorm
from xcompile.passes.common.constants import array_of, constant


class FoldNorm(Pattern[BatchNorm]):
    """w' = w·γ/√(σ²+ε), b' = (b-μ)·γ/√(σ²+ε)+β."""

    def rewrite(self, op: BatchNorm, rewriter: Rewriter) -> None:
        conv = producer(op.x, Conv) or no_match("the input is not a convolution")
        if not has_one_use(op.x):
            no_match("the convolution has other users")
        scale, bias, mean, variance = (
            array_of(rewriter, v, "a parameter") for v in op.operands[1:]
        )
        factor = scale / np.sqrt(variance + np.float32(op.epsilon))
        old = 0 if conv.bias is None else array_of(rewriter, conv.bias, "the bias")
        w = array_of(rewriter, conv.w, "the weight")
        folded = {
            "w": constant(rewriter, w * factor.reshape(-1, *[1] * (w.ndim - 1))),
            "bias": constant(rewriter, (old - mean) * factor + bias),
        }
        fields = {**conv.attributes(), "x": conv.x, **folded}
        rewriter.replace(op, rewriter.create(Conv, **fields))


@PASS_REGISTRY.register
@dataclass(frozen=True)
class BnFold(PatternPass):
    """Fold batch normalization into the convolution before it."""

    NAME: ClassVar[str] = "bn-fold"
    PATTERNS: ClassVar = (FoldNorm,)
