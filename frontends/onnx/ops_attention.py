"""Attention."""

import math
from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.attention import Attention
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.reshape import Reshape, Squeeze, Transpose
from xcompile.dialects.nn.sizes import ShapeOf
from xcompile.dialects.nn.slicing import Concat
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.conversion import expand
from xcompile.frontends.onnx.ops_conv import static_sizes
from xcompile.frontends.onnx.registry import onnx_op
from xcompile.frontends.onnx.sequences import Known


@onnx_op("Attention", since=23)
def attention(node: NodeContext) -> Sequence[Known | None]:
    """On operands of rank 3 the heads are split off first; past keys and values are put in front.

    Where the scores (`qk_matmul_output`) are wanted the op is what its definition says.
    """
    if node.has_output(3):
        return expand(node)
    flat = node.rank(0) == 3
    q, k, v = (_heads(node, i) if flat else node.input(i) for i in range(3))
    if node.has_input(4) != node.has_input(5):
        raise node.error("XC1011", "Attention has past keys or past values, but not both")
    q, scale = _scaled(node, q)
    offset = None
    if node.has_input(4):
        length = node.make(ShapeOf, x=node.input(4), start=2, end=3).y
        offset = node.make(Squeeze, x=length, axes=(0,)).y
        k = node.make(Concat, xs=[node.input(4), k], axis=2).y
        v = node.make(Concat, xs=[node.input(5), v], axis=2).y
    y = node.make(
        Attention,
        q=q,
        k=k,
        v=v,
        mask=node.optional(3),
        offset=offset,
        lengths=node.optional(6),
        scale=scale,
        softcap=node.attr("softcap", 0.0),
        causal=bool(node.attr("is_causal", 0)),
        left=node.attr("left_window_size", -1),
        right=node.attr("right_window_size", -1),
    ).y
    if flat:
        swapped = node.make(Transpose, x=y, perm=(0, 2, 1, 3)).y
        shape = node.constant(np.array([0, 0, -1], np.int64))
        y = node.make(Reshape, x=swapped, shape=shape).y
    return [y, k, v]


def _heads(node: NodeContext, index: int) -> Value:
    """[B, S, H·E] to [B, H, S, E]."""
    heads = node.attr("q_num_heads" if index == 0 else "kv_num_heads")
    if node.rank(index) != 3 or heads < 1:
        raise node.error(
            "XC2003", f"input {index} of Attention has rank {node.rank(index)}, {heads} heads"
        )
    shape = node.constant(np.array([0, 0, heads, -1], np.int64))
    split = node.make(Reshape, x=node.input(index), shape=shape).y
    return node.make(Transpose, x=split, perm=(0, 2, 1, 3)).y


def _scaled(node: NodeContext, q: Value) -> tuple[Value, float]:
    """Queries and their scale; where their width is known only when the model runs, they are multiplied before."""
    scale = node.attr("scale", None)
    if scale is not None:
        return q, scale
    if node.rank(2) != node.rank(0) or rank_of(q) != 4:
        raise node.error("XC2003", f"Attention of operands of rank {rank_of(q)}")
    width = static_sizes(q)[3]
    if width:
        return q, 1 / math.sqrt(width)
    c = Composition(node)
    root = c.sqrt(c.cast(c.shape(q, 3, 4), "f32"))
    return c.mul(q, c.cast(c.div(1, root), dtype_of(q))), 1.0
