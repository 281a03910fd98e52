"""Whole layers of the domain com.microsoft with quantized weights: attention, embeddings, LSTM."""

import math
from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.attention import Attention
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.dynamic import dynamically_quantized
from xcompile.dialects.nn.norm import LayerNorm
from xcompile.dialects.nn.quantize import Dequantize
from xcompile.dialects.nn.recurrent import Lstm
from xcompile.dialects.nn.reduce import ReduceSum
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_conv import static_sizes
from xcompile.frontends.onnx.ops_quantize import integer_matmul, scalar_of
from xcompile.frontends.onnx.ops_quantize_linear import MICROSOFT, dequantized, one_or_columns
from xcompile.frontends.onnx.ops_recurrent import activations_of
from xcompile.frontends.onnx.registry import onnx_op


@onnx_op("QAttention", domain=MICROSOFT)
def qattention(node: NodeContext) -> list[Value | None]:
    """Self-attention: one integer product makes queries, keys and values; the rest is in float.

    Keys and values of before are put in front; the second result, [2, batch, heads, tokens, width of a head], is all of
    them.
    """
    for flag in ("do_rotary", "past_present_share_buffer"):
        if node.attr(flag, 0):
            raise node.error("XC1006", f"QAttention with {flag}")
    if node.rank(0) != 3 or node.rank(1) != 2:
        raise node.error("XC2003", "QAttention takes [batch, tokens, width] and a matrix")
    heads, width = node.attr("num_heads"), static_sizes(node.input(1))[1]
    if width is None or heads < 1 or width % (3 * heads):
        raise node.error("XC2007", f"QAttention with {heads} heads and weights of {width} columns")
    c, size = Composition(node), width // (3 * heads)
    zeros = scalar_of(c, node.optional(6)), node.optional(7)
    columns = zeros[1] if zeros[1] is None else one_or_columns(c, zeros[1])
    total = integer_matmul(node, (node.input(0), node.input(1)), (zeros[0], columns))
    step = c.mul(scalar_of(c, node.input(3)), one_or_columns(c, node.input(4)))
    made = c.add(c.mul(c.cast(total, "f32"), step), node.input(2))
    split = c.transpose(c.reshape(made, (0, 0, 3, heads, size)), (2, 0, 3, 1, 4))
    q, k, v = (c.squeeze(c.slice(split, 0, i, i + 1), 0) for i in range(3))
    offset = None
    if node.has_input(8):
        past = node.input(8)
        if rank_of(past) != 5:
            raise node.error(
                "XC2003", f"keys and values of before have rank {rank_of(past)}, not 5"
            )
        offset = scalar_of(c, c.shape(past, 3, 4))
        before = (c.squeeze(c.slice(past, 0, i, i + 1), 0) for i in range(2))
        k, v = (c.concat([old, new], 2) for old, new in zip(before, (k, v), strict=True))
    y = node.make(
        Attention,
        q=q,
        k=k,
        v=v,
        mask=_mask(node, c, k),
        offset=offset,
        lengths=None,
        scale=node.attr("scale", 0.0) or 1 / math.sqrt(size),
        causal=bool(node.attr("unidirectional", 0)),
    ).y
    merged = c.reshape(c.transpose(y, (0, 2, 1, 3)), (0, 0, -1))
    if not node.has_output(1):
        return [merged]
    return [merged, c.concat([c.unsqueeze(k, 0), c.unsqueeze(v, 0)], 0)]


def _mask(node: NodeContext, c: Composition, keys: Value) -> Value | None:
    """What is added to scores: a large negative number for keys that a mask of 0 and 1, or a length, excludes."""
    if not node.has_input(5):
        return None
    mask = node.input(5)
    if rank_of(mask) == 1:
        places = c.cast(c.range(c.size(keys, 2)), dtype_of(mask))
        kept = c.less(places, c.unsqueeze(mask, 1))
    elif rank_of(mask) == 2:
        kept = c.greater(mask, 0)
    else:
        raise node.error("XC1006", f"QAttention with a mask of rank {rank_of(mask)}")
    excluded = node.attr("mask_filter_value", -10000.0)
    zero = node.scalar(0.0, node.input(2))
    return c.unsqueeze(c.where(kept, zero, node.scalar(excluded, zero)), 1, 2)


@onnx_op("QEmbedLayerNormalization", domain=MICROSOFT)
def qembed_layer_normalization(node: NodeContext) -> list[Value | None]:
    """Sums of rows of quantized tables for words, positions and segments, normalized."""
    c, ids = Composition(node), node.input(0)
    if node.rank(0) != 2:
        raise node.error("XC2003", f"the words of {node.op_type} have rank {node.rank(0)}, not 2")
    words = c.gather(dequantized(node, 2, 8, 13), ids, 0)
    places = c.range(c.size(ids, 1))
    total = c.add(words, c.gather(dequantized(node, 3, 9, 14), places, 0))
    if node.has_input(1) and node.has_input(4):
        total = c.add(total, c.gather(dequantized(node, 4, 10, 15), node.input(1), 0))
    scale, bias = dequantized(node, 5, 11, 16), dequantized(node, 6, 12, 17)
    epsilon = node.attr("epsilon", 1e-12)
    y = node.make(LayerNorm, x=total, scale=scale, bias=bias, axis=2, epsilon=epsilon).y
    if not node.has_output(1):
        return [y]
    if node.has_input(7):
        return [y, c.reduce(ReduceSum, node.input(7), (1,), keepdims=False)]
    none = c.reduce(ReduceSum, c.mul(ids, 0), (1,), keepdims=False)
    return [y, c.cast(none, "i32")]


@onnx_op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(node: NodeContext) -> list[Value]:
    """Inputs are quantized to uint8 over the range of all of them and multiplied as integers.

    So are hidden states, each sequence by itself in each step, where the recurrence's weights are constants around the
    middle of their type; other weights are dequantized.
    """
    if node.rank(0) != 3 or node.rank(1) != 3:
        raise node.error("XC2003", f"{node.op_type} of an input of rank {node.rank(0)}, not 3")
    c, direction = Composition(node), node.attr("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    x, step, zero = dynamically_quantized(c, node.input(0))
    products: list[Value] = []
    for i in range(directions):
        w, scale, point = (_of_direction(node, j, i) for j in (1, 8, 9))
        total = integer_matmul(node, (x, w), (zero, point))
        products.append(c.mul(c.cast(total, "f32"), c.mul(step, scale)))
    made = c.concat(products, 2)
    if node.has_input(3):
        made = c.add(made, _biases(c, node.input(3)))
    names = ("sigmoid", "tanh", "tanh") * directions
    lstm = node.make(
        Lstm,
        x=made,
        w=None,
        **_recurrence(node, c, directions),
        bias=None,
        lengths=node.optional(4),
        initial_h=node.optional(5),
        initial_c=node.optional(6),
        peephole=node.optional(7),
        hidden=node.attr("hidden_size"),
        direction=direction,
        clip=node.attr("clip", None),
        input_forget=bool(node.attr("input_forget", 0)),
        **activations_of(node, names),
    )
    return lstm.results


def _of_direction(node: NodeContext, index: int, direction: int) -> Value:
    """The part of an input for one direction; a vector of one element is a number."""
    c, known = Composition(node), node.const(index)
    if known is not None and direction < len(known):
        part = known[direction]
        return c.constant(part.reshape(()) if part.size == 1 else part)
    value = node.input(index)
    if rank_of(value) == 1:
        return scalar_of(c, c.slice(value, 0, direction, direction + 1))
    part = c.squeeze(c.slice(value, 0, direction, direction + 1), 0)
    return one_or_columns(c, part) if rank_of(part) == 1 else part


def _biases(c: Composition, bias: Value) -> Value:
    """The biases of inputs and recurrence, which are added to the same sums, for all directions in a row."""
    size = static_sizes(bias)[1]
    assert size is not None
    both = c.add(c.slice(bias, 1, 0, size // 2), c.slice(bias, 1, size // 2, size))
    return c.reshape(both, (-1,))


def _recurrence(node: NodeContext, c: Composition, directions: int) -> dict[str, Any]:
    """The layer's operands for the recurrence's weights [directions, 4·hidden, hidden]: as int8, or as floats."""
    r, scale, point = (node.const(j) for j in (2, 10, 11))
    middle = 128 if r is not None and r.dtype == np.uint8 else 0
    if r is not None and scale is not None and (point is None or (point == middle).all()):
        codes = (r.astype(np.int16) - middle).astype(np.int8).swapaxes(1, 2)
        rows = np.broadcast_to(scale.reshape(directions, -1), codes.shape[:2])
        consts = (c.constant(np.ascontiguousarray(each)) for each in (codes, rows))
        return {**dict(zip(("r", "r_scale"), consts, strict=True)), "quantize_state": True}
    parts: list[Value] = []
    for i in range(directions):
        r, scale, point = (_of_direction(node, j, i) for j in (2, 10, 11))
        made = node.make(Dequantize, x=r, scale=scale, zero_point=point, axis=1, to="f32")
        parts.append(c.unsqueeze(c.transpose(made.y, (1, 0)), 0))
    return {"r": c.concat(parts, 0)}
