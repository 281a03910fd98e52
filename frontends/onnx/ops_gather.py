"""Gathers, scatters, and ops whose result size depends on data."""

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn import gather, scatter
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
    made = node.make(
        gather.OneHot,
        indices=node.input(0),
        depth=as_scalar(node, node.input(1)),
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
    fields = {"condition": node.input(1), "axis": node.attr("axis", None)}
    return [node.make(gather.Compress, x=node.input(0), **fields).y]


@onnx_op("NonZero", since=9)
def nonzero(node: NodeContext) -> list[Value]:
    return [node.make(gather.NonZero, x=node.input(0)).y]


@onnx_op("Unique", since=11)
def unique(node: NodeContext) -> list[Value]:
    ascending = bool(node.attr("sorted", 1))
    made = node.make(
        gather.Unique, x=node.input(0), axis=node.attr("axis", None), ascending=ascending
    )
    return [made.y, made.first, made.inverse, made.counts]
