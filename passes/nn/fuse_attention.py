"""nn-fuse-attention: scores, softmax and the weighted sum of values become one op."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, maker, no_match, producer
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.binary import Add, Div, Mul
from xcompile.dialects.nn.fused_attention import FusedAttention
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.reshape import Transpose
from xcompile.dialects.nn.softmax import Softmax
from xcompile.passes.common.constants import number_of
from xcompile.passes.common.shapes import shapes


class AttentionOfSoftmax(Pattern[MatMul]):
    """Attention, with an optional scale and an optional additive mask.

        %0 = "nn.matmul"(%q, %kt)
        %1 = "nn.mul"(%0, %scale)
        %2 = "nn.add"(%1, %mask)
        %3 = "nn.softmax"(%2)
        %4 = "nn.matmul"(%3, %v)
    ->
        %4 = "nn.fused_attention"(%q, %k, %v, %mask)
    """

    def rewrite(self, op: MatMul, rewriter: Rewriter) -> None:
        softmax = producer(op.a, Softmax) or no_match("the first operand is no softmax")
        if op.transpose_a or op.transpose_b:
            no_match("an operand is transposed")
        if softmax.axis != rank_of(softmax.x) - 1:
            no_match("the softmax is not along the keys")
        if dtype_of(op.y) not in ("f32", "f64"):
            no_match(f"elements are {dtype_of(op.y)}")
        _only_user(op.a, "the softmax")
        scores, mask, scale = _scores(rewriter, softmax.x)
        if scores.transpose_a:
            no_match("the queries are transposed")
        known = rewriter.analysis(shapes)
        q, b, v = (known.shape(x) for x in (scores.a, scores.b, op.b))
        if (
            not len(q) == len(b) == len(v)
            or min(len(q), len(v)) < 2
            or not q[:-2] == b[:-2] == v[:-2]
        ):
            no_match("queries, keys and values are not known to have the same batch")
        if not isinstance(q[-1], int) or not isinstance(v[-1], int):
            no_match("a depth is known only at run time")
        if mask is not None and not _broadcasts(known.shape(mask), known.shape(scores.y)):
            no_match("the mask is not known to broadcast to the scores")
        keys = scores.b if scores.transpose_b else _transposed(rewriter, scores.b)
        rewriter.replace(
            op, rewriter.create(FusedAttention, q=scores.a, k=keys, v=op.b, mask=mask, scale=scale)
        )


def _scores(rewriter: Rewriter, value: Value) -> tuple[MatMul, Value | None, float]:
    """The product of queries and keys behind a mask and a scale."""
    mask = None
    add = producer(value, Add)
    if add is not None:
        _only_user(value, "the sum with the mask")
        value, mask = (add.a, add.b) if _product(add.a) else (add.b, add.a)
    scale = 1.0
    scaled = maker(value)
    if isinstance(scaled, Mul | Div):
        _only_user(value, "the scaled product")
        number = number_of(rewriter, scaled.b)
        if number is None or (number == 0 and isinstance(scaled, Div)):
            no_match("the scale is not one number")
        scale = number if isinstance(scaled, Mul) else 1 / number
        value = scaled.a
    scores = producer(value, MatMul) or no_match("the scores are no product")
    _only_user(value, "the product of queries and keys")
    return scores, mask, scale


def _product(value: Value) -> bool:
    """Whether the value is a product, perhaps scaled."""
    made = maker(value)
    if isinstance(made, Mul | Div):
        made = maker(made.a)
    return isinstance(made, MatMul)


def _broadcasts(mask: tuple[object, ...], scores: tuple[object, ...]) -> bool:
    tail = scores[len(scores) - len(mask) :] if len(mask) <= len(scores) else ()
    return bool(tail) and all(m in (1, s) for m, s in zip(mask, tail, strict=True))


def _only_user(value: Value, what: str) -> None:
    if not has_one_use(value):
        no_match(f"{what} has other users")


def _transposed(rewriter: Rewriter, value: Value) -> Value:
    rank = rank_of(value)
    return rewriter.create(Transpose, x=value, perm=(*range(rank - 2), rank - 1, rank - 2)).y


@dataclass(frozen=True)
class FuseAttention(PatternPass):
    """Recognise attention: softmax of a product, times values."""

    NAME: ClassVar[str] = "nn-fuse-attention"
    PATTERNS: ClassVar = (AttentionOfSoftmax,)
