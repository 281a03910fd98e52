"""Attention as one kernel computes it."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, nn, rank_of
from xcompile.dialects.nn.elementwise import broadcast_shapes
from xcompile.dialects.nn.numeric import rounded, widen


@nn.op("fused_attention")
class FusedAttention(NnOp):
    """`softmax(scale · q @ kᵀ + mask) @ v` on the last two axes; leading axes are the same for all three.

    q is [batch…, queries, depth], k [batch…, keys, depth], v [batch…, keys, value depth]; the mask is added and
    broadcasts to [batch…, queries, keys]. A query whose scores are all -inf gives NaN, as a softmax does. Not in ONNX
    (its Attention is `nn.attention`): `nn-fuse-attention` makes it of a softmax between two products.
    """

    q: Operand
    k: Operand
    v: Operand
    mask: Operand | None
    y: Result
    scale: float = 1.0

    def verify(self) -> None:
        ranks = {rank_of(x) for x in (self.q, self.k, self.v)}
        if len(ranks) != 1 or min(ranks) < 2:
            raise self.error("XC2003", "queries, keys and values must have one rank of at least 2")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        q, k, v = (sizes.shape(x) for x in (self.q, self.k, self.v))
        batch = tuple(
            sizes.equal(
                sizes.equal(a, b, "the batch of queries and keys"),
                c,
                "the batch of queries and values",
            )
            for a, b, c in zip(q[:-2], k[:-2], v[:-2], strict=True)
        )
        sizes.equal(q[-1], k[-1], "the depth of queries and keys")
        sizes.equal(k[-2], v[-2], "the number of keys and values")
        scores = (*batch, q[-2], k[-2])
        if self.mask is not None:
            broadcast_shapes(self, sizes, [scores, sizes.shape(self.mask)])
        return [(*batch, q[-2], v[-1])]

    def reference(
        self, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None
    ) -> np.ndarray:
        with np.errstate(all="ignore"):
            scores = self.scale * (widen(q) @ np.swapaxes(widen(k), -1, -2))
            if mask is not None:
                scores = scores + widen(mask)
            powers = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
            return rounded(powers / powers.sum(axis=-1, keepdims=True) @ widen(v), q.dtype)
