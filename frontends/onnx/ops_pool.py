"""Pools over windows and over everything."""

from typing import Any

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.pool import AveragePool, LpPool, MaxPool, MaxPoolWithIndices, MaxUnpool
from xcompile.dialects.nn.reduce import Reduce, ReduceL1, ReduceL2, ReduceMax, ReduceMean
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_conv import static_sizes, window_pads
from xcompile.frontends.onnx.registry import onnx_op


def window_of(node: NodeContext, x: Value) -> dict[str, Any]:
    """The fields that every pool of `x` has, from the attributes that every version has."""
    if rank_of(x) < 3:
        raise node.error("XC2003", f"{node.op_type} of an input of rank {rank_of(x)}")
    kernel = node.attr("kernel_shape")
    sizes = static_sizes(x)[2:]
    if len(kernel) != len(sizes):
        raise node.error("XC2007", f"kernel_shape {kernel} does not fit {len(sizes)} spatial axes")
    ones = (1,) * len(kernel)
    window = {"strides": node.attr("strides", ones), "dilations": node.attr("dilations", ones)}
    return {
        "x": x,
        "kernel": kernel,
        "ceil_mode": bool(node.attr("ceil_mode", 0)),
        **window,
        **window_pads(node, sizes, kernel, window),
    }


@onnx_op("MaxPool")
def max_pool(node: NodeContext) -> list[Value]:
    fields = window_of(node, node.input(0))
    if not node.has_output(1):
        return [node.make(MaxPool, **fields).y]
    column_major = node.attr("storage_order", 0) == 1
    made = node.make(MaxPoolWithIndices, column_major=column_major, **fields)
    return [made.y, made.indices]


@onnx_op("AveragePool")
def average_pool(node: NodeContext) -> list[Value]:
    include = bool(node.attr("count_include_pad", 0))
    return [node.make(AveragePool, count_include_pad=include, **window_of(node, node.input(0))).y]


@onnx_op("LpPool")
def lp_pool(node: NodeContext) -> list[Value]:
    return [node.make(LpPool, p=node.attr("p", 2), **window_of(node, node.input(0))).y]


def _global(node: NodeContext, cls: type[Reduce]) -> list[Value]:
    rank = node.rank(0)
    if rank < 2:
        raise node.error("XC2003", f"{node.op_type} of an input of rank {rank}")
    return [node.make(cls, x=node.input(0), axes=tuple(range(2, rank))).y]


@onnx_op("GlobalAveragePool")
def global_average_pool(node: NodeContext) -> list[Value]:
    return _global(node, ReduceMean)


@onnx_op("GlobalMaxPool")
def global_max_pool(node: NodeContext) -> list[Value]:
    return _global(node, ReduceMax)


@onnx_op("GlobalLpPool")
def global_lp_pool(node: NodeContext) -> list[Value]:
    """A norm over the spatial axes; other powers than 1 and 2 are a window over everything."""
    p = node.attr("p", 2)
    if p in (1, 2):
        return _global(node, ReduceL1 if p == 1 else ReduceL2)
    sizes = static_sizes(node.input(0))[2:]
    if not sizes or None in sizes:
        raise node.error("XC2010", f"GlobalLpPool with p = {p} needs an input of known size")
    ones = (1,) * len(sizes)
    pads = (0,) * (2 * len(sizes))
    made = node.make(
        LpPool, x=node.input(0), kernel=tuple(sizes), strides=ones, dilations=ones, pads=pads, p=p
    )
    return [made.y]


@onnx_op("MaxUnpool")
def max_unpool(node: NodeContext) -> list[Value]:
    kernel = node.attr("kernel_shape")
    made = node.make(
        MaxUnpool,
        x=node.input(0),
        indices=node.input(1),
        shape=node.optional(2),
        kernel=kernel,
        strides=node.attr("strides", (1,) * len(kernel)),
        pads=node.attr("pads", (0,) * (2 * len(kernel))),
    )
    return [made.y]
