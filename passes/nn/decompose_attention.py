"""nn-decompose-attention: ONNX's attention as products, a softmax and conditions on the keys."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.attention import Attention
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.binary import GreaterEqual, Less, LessEqual
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.reduce import ReduceMax
from xcompile.dialects.nn.reshape import Expand, Squeeze, Unsqueeze
from xcompile.dialects.nn.sizes import Range, ShapeOf
from xcompile.dialects.nn.softmax import Softmax
from xcompile.dialects.nn.ternary import Where
from xcompile.dialects.nn.unary import Tanh
from xcompile.passes.common.constants import constant, scalar_like
from xcompile.passes.common.shapes import shapes
from xcompile.passes.nn.expression import Expression


class AttentionOfParts(Pattern[Attention]):
    """Scores, their softmax over the keys that take part, and the weighted sum of the values.

        %0 = "nn.attention"(%q, %k, %v)
    ->
        %0 = "nn.matmul"(%q, %k) {transpose_b = true}
        %1 = "nn.mul"(%0, %scale)
        %2 = "nn.softmax"(%1)
        %3 = "nn.matmul"(%2, %v)
    """

    def rewrite(self, op: Attention, rewriter: Rewriter) -> None:
        known = rewriter.analysis(shapes)
        q, k = known.shape(op.q), known.shape(op.k)
        if not isinstance(q[1], int) or not isinstance(k[1], int):
            no_match("the number of heads is known only at run time")
        if op.mask is not None and known.shape(op.mask)[-1] not in (1, k[2]):
            no_match("the mask is not known to have all keys")
        e = Expression(rewriter)
        keys, values = (
            _repeated(e, rewriter, e.widened(x), k[1], q[1] // k[1], known.shape(x)[3])
            for x in (op.k, op.v)
        )
        scores = e.mul(e.make(MatMul, a=e.widened(op.q), b=keys, transpose_b=True), op.scale)
        if op.softcap > 0:
            scores = e.mul(e.make(Tanh, x=e.div(scores, op.softcap)), op.softcap)
        seen = _positions(e, rewriter, op)
        if op.mask is not None and dtype_of(op.mask) == "i1":
            seen.append(op.mask)
        elif op.mask is not None:
            scores = e.add(scores, e.cast(op.mask, dtype_of(scores)))
        for condition in seen:
            lowest = scalar_like(rewriter, -np.inf, scores)
            scores = e.make(Where, condition=condition, a=scores, b=lowest)
        weights = e.make(Softmax, x=scores, axis=3)
        if seen or op.mask is not None:
            top = e.reduce(ReduceMax, scores, (3,))
            weights = e.where(e.equal(top, -np.inf), 0.0, weights)
        y = e.make(MatMul, a=weights, b=values)
        rewriter.replace(op, e.cast(y, dtype_of(op.q)))


def _repeated(
    e: Expression, rewriter: Rewriter, x: Value, heads: int, each: int, width: Dim
) -> Value:
    """Keys or values [B, G, T, E] as [B, G·each, T, E]: each head as often as queries read it."""
    if each == 1:
        return x
    if not isinstance(width, int):
        no_match("keys and values are shared by heads and of unknown width")
    shape = constant(rewriter, np.array([1, 1, each, 1, 1], np.int64))
    copies = e.make(Expand, x=e.make(Unsqueeze, x=x, axes=(2,)), shape=shape)
    return e.reshape(copies, (0, heads * each, -1, width))


def _positions(e: Expression, rewriter: Rewriter, op: Attention) -> list[Value]:
    """Which keys each query may see by their places: conditions that broadcast to the scores."""
    if not (op.causal or op.left >= 0 or op.right >= 0 or op.lengths is not None):
        return []
    key = _numbers(e, rewriter, op.k)
    place = e.make(Unsqueeze, x=_numbers(e, rewriter, op.q), axes=(1,))
    seen: list[Value] = []
    if op.offset is not None:
        place = e.add(place, e.cast(op.offset, "i64"))
    if op.lengths is not None:
        lengths = e.make(Unsqueeze, x=e.cast(op.lengths, "i64"), axes=(1, 2, 3))
        place = e.add(e.sub(lengths, _count(e, op.q)), place)
        seen.append(e.make(Less, a=key, b=lengths))
    if op.causal:
        seen.append(e.make(LessEqual, a=key, b=place))
    if op.left >= 0:
        seen.append(e.make(GreaterEqual, a=key, b=e.sub(place, op.left)))
    if op.right >= 0:
        seen.append(e.make(LessEqual, a=key, b=e.add(place, op.right)))
    return seen


def _count(e: Expression, x: Value) -> Value:
    """The size of axis 2, a scalar."""
    return e.make(Squeeze, x=e.make(ShapeOf, x=x, start=2, end=3), axes=(0,))


def _numbers(e: Expression, rewriter: Rewriter, x: Value) -> Value:
    """0, 1, … for the elements of axis 2."""
    zero, one = (constant(rewriter, np.array(n, np.int64)) for n in (0, 1))
    count = _count(e, x)
    return e.make(Range, start=zero, limit=count, delta=one, count=count)


@dataclass(frozen=True)
class DecomposeAttention(PatternPass):
    """Write ONNX's attention as products and a softmax, which nn-fuse-attention may take."""

    NAME: ClassVar[str] = "nn-decompose-attention"
    PATTERNS: ClassVar = (AttentionOfParts,)
