"""Reductions, and the places of extremes."""

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.reduce import (
    ArgExtreme,
    ArgMax,
    ArgMin,
    Reduce,
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    ReduceSumSquare,
)
from xcompile.dialects.nn.topk import TopK
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import Converter, onnx_op

_REDUCTIONS: dict[str, type[Reduce]] = {
    "ReduceL1": ReduceL1,
    "ReduceL2": ReduceL2,
    "ReduceLogSum": ReduceLogSum,
    "ReduceLogSumExp": ReduceLogSumExp,
    "ReduceMax": ReduceMax,
    "ReduceMean": ReduceMean,
    "ReduceMin": ReduceMin,
    "ReduceProd": ReduceProd,
    "ReduceSum": ReduceSum,
    "ReduceSumSquare": ReduceSumSquare,
}


def _reduction(cls: type[Reduce]) -> Converter:
    def convert(node: NodeContext) -> list[Value]:
        keepdims = bool(node.attr("keepdims", 1))
        noop = bool(node.attr("noop_with_empty_axes", 0))
        axes = node.attr("axes", None)
        if node.has_input(1):
            axes = node.const_ints(1)
            if axes is None:
                fields = {"dynamic_axes": node.input(1), "noop_with_empty_axes": noop}
                return [node.make(cls, x=node.input(0), keepdims=keepdims, **fields).y]
        return [node.make(cls, x=node.input(0), axes=_axes(node, axes, noop), keepdims=keepdims).y]

    return convert


def _axes(node: NodeContext, axes: tuple[int, ...] | None, noop: bool) -> tuple[int, ...]:
    rank = node.rank(0)
    if not axes:
        return () if noop else tuple(range(rank))
    return tuple(sorted({node.axis(a, rank) for a in axes}))


for _name, _cls in _REDUCTIONS.items():
    onnx_op(_name)(_reduction(_cls))


def _place(node: NodeContext, cls: type[ArgExtreme]) -> list[Value]:
    made = node.make(
        cls,
        x=node.input(0),
        axis=node.axis(node.attr("axis", 0), node.rank(0)),
        keepdims=bool(node.attr("keepdims", 1)),
        select_last=bool(node.attr("select_last_index", 0)),
    )
    return [made.y]


@onnx_op("ArgMax")
def arg_max(node: NodeContext) -> list[Value]:
    return _place(node, ArgMax)


@onnx_op("ArgMin")
def arg_min(node: NodeContext) -> list[Value]:
    return _place(node, ArgMin)


@onnx_op("TopK")
def top_k(node: NodeContext) -> list[Value]:
    """Before opset 10 k is an attribute."""
    k = node.input(1) if node.opset >= 10 else node.constant(np.array([node.attr("k")], np.int64))
    made = node.make(
        TopK,
        x=node.input(0),
        k=k,
        axis=node.axis(node.attr("axis", -1), node.rank(0)),
        largest=bool(node.attr("largest", 1)),
        sorted=bool(node.attr("sorted", 1)),
    )
    return [made.values, made.indices]
