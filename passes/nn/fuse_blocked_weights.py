"""nn-fuse-blocked-weights: products with dequantized constants keep their weights in a few bits."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of, is_integer
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match, producer
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.blocked import MatMulBlocked
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.quantize import Dequantize
from xcompile.dialects.nn.reshape import Transpose
from xcompile.passes.common.constants import array_of, constant

_WORD = 32


class MatMulOfDequantized(Pattern[MatMul]):
    """A float32 product with a dequantized constant matrix.

        %0 = "nn.dequantize"(%weights, %scale, %zero) {axis = 0, block = 32, to = "f32"}
        %1 = "nn.matmul"(%a, %0)
    ->
        %1 = "nn.matmul_blocked"(%a, %weights, %scale, %zero) {block = 32}
    """

    def rewrite(self, op: MatMul, rewriter: Rewriter) -> None:
        value, turned = op.b, op.transpose_b
        transpose = producer(value, Transpose)
        if transpose is not None and rank_of(value) == 2:
            value, turned = transpose.x, turned ^ (transpose.perm == (1, 0))
        weights = producer(value, Dequantize) or no_match("the right operand is not dequantized")
        if weights.to != "f32" or rank_of(op.a) < 2 or op.transpose_a:
            no_match("it is not of float32, or of no plain rows")
        dtype = dtype_of(weights.x)
        if not is_integer(dtype) or bits_of(dtype) > 8 or rank_of(weights.x) != 2:
            no_match(f"the weights are {dtype}, or no matrix")
        if dtype_of(weights.scale) not in ("f32", "f16"):
            no_match(f"the scale is {dtype_of(weights.scale)}")
        given = array_of(rewriter, weights.x, "the matrix")
        depth = 1 if turned else 0
        if min(given.shape) < 1:
            no_match("the matrix is empty")
        block = _block(weights, depth, given.shape[depth])

        def spread(granular: Value | None, what: str) -> Value | None:
            if granular is None:
                return None
            array = array_of(rewriter, granular, what)
            return granular if weights.block else constant(rewriter, _columns(array, given, depth))

        made = rewriter.create(
            MatMulBlocked,
            a=op.a,
            b=weights.x,
            scale=spread(weights.scale, "the scale"),
            zero_point=spread(weights.zero_point, "the zero point"),
            transpose_b=turned,
            block=block,
        )
        rewriter.replace(op, made)


def _block(weights: Dequantize, depth: int, size: int) -> int:
    """How many elements along k have a scale in common; leaves the pattern where kernels have no such blocks."""
    axis = weights.axis % 2
    if not weights.block:
        if rank_of(weights.scale) and axis == depth:
            no_match("the scales are those of rows")
        return size
    if axis != depth:
        no_match("the blocks are not along k")
    if weights.block < size and weights.block % (_WORD // bits_of(dtype_of(weights.x))):
        no_match(f"blocks of {weights.block} are not whole words")
    return weights.block


def _columns(array: np.ndarray, weights: np.ndarray, depth: int) -> np.ndarray:
    """One scale or zero point, or one for each column, as those of a block that is the whole column."""
    columns = np.broadcast_to(array.reshape(-1), weights.shape[1 - depth])
    return np.expand_dims(columns, depth)


@dataclass(frozen=True)
class FuseBlockedWeights(PatternPass):
    """Multiply by dequantized constants where they lie in memory as integers."""

    NAME: ClassVar[str] = "nn-fuse-blocked-weights"
    PATTERNS: ClassVar = (MatMulOfDequantized,)
