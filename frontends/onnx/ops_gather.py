"""Gathers, scatters, and ops whose result size depends on data."""

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn import gather, scatter
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.counted import Compress, FindUnique, Leading, NonZero
from xcompile.dialects.nn.reduce import ReduceSum
from xcompile.dialects.nn.reshape import Reshape
from xcompile.dialects.nn.unary import Cast
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_elementwise import as_scalar
from xcompile.frontends.onnx.registry import onnx_op


@onnx_op("Gather")
def gather_axis(node: NodeContext) -> list[Value]:
    x, indices = node.input(0), node.input(1)
    return [node.make(gather.Gather, x=x, indices=indices, axis=node.attr("axis", 0)).y]


@onnx_op("GatherElements", since=11)
def gather_elements(node: NodeContext) -> list[Value]:
    x, indices = node.input(0), node.input(1)
    return [node.make(gather.GatherElements, x=x, indices=indices, axis=node.attr("axis", 0)).y]


@onnx_op("GatherND", since=11)
def gather_nd(node: NodeContext) -> list[Value]:
    x, indices, batch = node.input(0), node.input(1), node.attr("batch_dims", 0)
    return [node.make(gather.GatherND, x=x, indices=indices, batch_dims=batch).y]


@onnx_op("Scatter", since=9)
@onnx_op("ScatterElements", since=11)
def scatter_elements(node: NodeContext) -> list[Value]:
    made = node.make(
        scatter.ScatterElements,
        x=node.input(0),
        indices=node.input(1),
        updates=node.input(2),
        axis=node.attr("axis", 0),
        reduction=node.attr("reduction", "none"),
    )
    return [made.y]


@onnx_op("ScatterND", since=11)
def scatter_nd(node: NodeContext) -> list[Value]:
    made = node.make(
        scatter.ScatterND,
        x=node.input(0),
        indices=node.input(1),
        updates=node.input(2),
        reduction=node.attr("reduction", "none"),
    )
    return [made.y]


@onnx_op("TensorScatter", since=24)
def tensor_scatter(node: NodeContext) -> list[Value]:
    """Update i of a batch goes to its write index plus i along the axis, which may wrap around."""
    c, cache, update = Composition(node), node.input(0), node.input(1)
    rank = node.rank(0)
    axis, mode = node.axis(node.attr("axis", -2), rank), node.attr("mode", "linear")
    if mode not in ("linear", "circular") or axis == 0:
        raise node.error("XC2007", f"TensorScatter along axis {axis} in the mode '{mode}'")
    places = c.reshape(c.range(c.size(update, axis)), (-1, *[1] * (rank - 1 - axis)))
    if node.has_input(2):
        places = c.add(places, c.reshape(node.input(2), (-1, *[1] * (rank - 1))))
    if mode == "circular":
        places = c.mod(places, c.size(cache, axis))
    indices = c.expand(places, c.shape(update))
    made = node.make(scatter.ScatterElements, x=cache, indices=indices, updates=update, axis=axis)
    return [made.y]


@onnx_op("OneHot", since=9)
def one_hot(node: NodeContext) -> list[Value]:
    depth = as_scalar(node, node.input(1))
    if dtype_of(depth) != "i64":
        depth = node.make(Cast, x=depth, to="i64").y
    made = node.make(
        gather.OneHot,
        indices=node.input(0),
        depth=depth,
        values=node.input(2),
        axis=node.attr("axis", -1),
    )
    return [made.y]


@onnx_op("ReverseSequence", since=10)
def reverse_sequence(node: NodeContext) -> list[Value]:
    made = node.make(
        gather.ReverseSequence,
        x=node.input(0),
        lengths=node.input(1),
        batch_axis=node.attr("batch_axis", 1),
        time_axis=node.attr("time_axis", 0),
    )
    return [made.y]


@onnx_op("Compress", since=9)
def compress(node: NodeContext) -> list[Value]:
    condition = node.input(1)
    fields = {"condition": condition, "count": _count(node, condition)}
    return [node.make(Compress, x=node.input(0), axis=node.attr("axis", None), **fields).y]


@onnx_op("NonZero", since=9)
def nonzero(node: NodeContext) -> list[Value]:
    x = node.input(0)
    return [node.make(NonZero, x=x, count=_count(node, x)).y]


def _count(node: NodeContext, x: Value) -> Value:
    """How many elements are not zero, as an int64 scalar."""
    ones = node.make(Cast, x=node.make(Cast, x=x, to="i1").y, to="i64").y
    return node.make(ReduceSum, x=ones, axes=tuple(range(rank_of(x))), keepdims=False).y


@onnx_op("Unique", since=11)
def unique(node: NodeContext) -> list[Value]:
    x, axis = node.input(0), node.attr("axis", None)
    ascending = bool(node.attr("sorted", 1))
    found = node.make(FindUnique, x=x, axis=axis, ascending=ascending)
    first, counts = (
        node.make(Leading, x=v, count=found.count).y for v in (found.first, found.counts)
    )
    source = x if axis is not None else node.make(Reshape, x=x, shape=_ints(node, [-1])).y
    y = node.make(gather.Gather, x=source, indices=first, axis=axis or 0).y
    return [y, first, found.inverse, counts]


def _ints(node: NodeContext, values: list[int]) -> Value:
    return node.constant(np.array(values, np.int64))
