"""Scaled dot product attention as one op."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn, rank_of
from xcompile.dialects.nn.numeric import rounded
from xcompile.dialects.nn.precision import widened


@nn.op("attention")
class Attention(NnOp):
    """`softmax(softcap(scale·q·kᵀ) + mask)·v` for each head. ONNX Attention on operands of rank 4.

    q [B, H, S, E], k [B, G, T, E], v [B, G, T, F] give [B, H, S, F]; head h reads k and v of head
    h·G/H. `mask` broadcasts to [B, H, S, T]: bools say which keys take part, floats are added; keys
    beyond its last axis take no part. Query i stands at p = i + `offset` (an integer scalar,
    default 0), or at i + length - S where `lengths` [B] are given; keys from the length on take no
    part. `causal` lets only keys j <= p take part, `left` and `right` those with p - left <= j <= p
    + right (-1 is no bound). A query for which no key takes part gives zeros. The softmax is
    computed in float32 or wider.
    """

    q: Operand
    k: Operand
    v: Operand
    mask: Operand | None
    offset: Operand | None
    lengths: Operand | None
    scale: float
    softcap: float = 0.0
    causal: bool = False
    left: int = -1
    right: int = -1
    y: Result

    def verify(self) -> None:
        if any(rank_of(value) != 4 for value in (self.q, self.k, self.v)):
            raise self.error("XC2003", "queries, keys and values of attention have four axes")
        if self.mask is not None and not 1 <= rank_of(self.mask) <= 4:
            raise self.error("XC2003", f"the mask of attention has rank {rank_of(self.mask)}")
        if self.offset is not None and rank_of(self.offset) != 0:
            raise self.error("XC2003", "the offset of attention is a scalar")
        if self.lengths is not None and rank_of(self.lengths) != 1:
            raise self.error("XC2003", "the lengths of attention have one axis")
        if self.offset is not None and self.lengths is not None:
            raise self.error("XC2007", "attention has an offset or lengths, not both")
        if self.left < -1 or self.right < -1:
            raise self.error("XC2007", f"a window of {self.left} and {self.right} keys")
        if len({dtype_of(v) for v in (self.q, self.k)}) > 1:
            raise self.error("XC2002", "queries and keys of attention differ in type")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        (batch, heads, queries, width), k, v = (sizes.shape(x) for x in (self.q, self.k, self.v))
        for have, want, what in (
            (k[0], batch, "batches of keys and queries"),
            (v[0], batch, "batches of values and queries"),
            (k[3], width, "widths of keys and queries"),
            (v[1], k[1], "heads of values and keys"),
            (v[2], k[2], "numbers of values and keys"),
        ):
            sizes.equal(have, want, f"the {what} of attention")
        if isinstance(heads, int) and isinstance(k[1], int) and (k[1] == 0 or heads % k[1]):
            raise self.error(
                "XC2004", f"{k[1]} heads of keys do not divide {heads} heads of queries"
            )
        if self.lengths is not None:
            sizes.equal(sizes.shape(self.lengths)[0], batch, "the lengths and batches of attention")
        if self.mask is not None:
            self._check_mask(sizes, (batch, heads, queries))
        return [(batch, heads, queries, v[3])]

    def _check_mask(self, sizes: Sizes, whole: Shape) -> None:
        lead = sizes.shape(self.mask)[:-1] if self.mask is not None else ()
        what = "the sizes of attention's mask and scores"
        for have, want in zip(lead, whole[len(whole) - len(lead) :], strict=True):
            sizes.equal(sizes.broadcast(have, want, what), want, what)

    def reference(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        mask: np.ndarray | None,
        offset: np.ndarray | None,
        lengths: np.ndarray | None,
    ) -> np.ndarray:
        if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
            raise CompileError("XC2011", f"{k.shape[1]} heads of keys for {q.shape[1]} of queries")
        each = q.shape[1] // k.shape[1]
        wide_k, wide_v = (np.repeat(widened(x), each, axis=1) for x in (k, v))
        scores = widened(q) @ wide_k.swapaxes(-1, -2) * self.scale
        if self.softcap > 0:
            scores = np.tanh(scores / self.softcap) * self.softcap
        if mask is not None:
            scores = scores + _bias(mask, k.shape[2])
        scores = np.where(
            self._takes_part(q.shape[2], k.shape[2], offset, lengths), scores, -np.inf
        )
        top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
        powers = np.exp(scores - np.where(np.isneginf(top), 0, top))
        total = powers.sum(axis=-1, keepdims=True)
        return rounded(powers / np.where(total == 0, 1, total) @ wide_v, np.dtype(q.dtype))

    def _takes_part(
        self, queries: int, keys: int, offset: np.ndarray | None, lengths: np.ndarray | None
    ) -> np.ndarray:
        """Which keys each query may see, [B or 1, 1, S, T]."""
        key = np.arange(keys)
        shift = np.zeros(1, np.int64) if offset is None else offset.reshape(1).astype(np.int64)
        if lengths is not None:
            shift = lengths.astype(np.int64) - queries
        place = shift.reshape(-1, 1, 1, 1) + np.arange(queries).reshape(-1, 1)
        seen = np.ones((len(shift), 1, queries, keys), np.bool_)
        if lengths is not None:
            seen &= key < lengths.reshape(-1, 1, 1, 1)
        if self.causal:
            seen &= key <= place
        if self.left >= 0:
            seen &= key >= place - self.left
        if self.right >= 0:
            seen &= key <= place + self.right
        return seen


def _bias(mask: np.ndarray, keys: int) -> np.ndarray:
    """The mask as numbers to add, for all keys."""
    bias = np.where(mask, 0.0, -np.inf) if mask.dtype == np.bool_ else widened(mask)
    missing = keys - mask.shape[-1] if mask.shape[-1] != 1 else 0
    if missing < 0:
        raise CompileError("XC2011", f"a mask for {mask.shape[-1]} keys, of which there are {keys}")
    widths = [(0, 0)] * (mask.ndim - 1) + [(0, missing)]
    return np.pad(bias, widths, constant_values=-np.inf)
