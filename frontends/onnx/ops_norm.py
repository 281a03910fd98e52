"""Normalizations and softmax."""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.norm import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LayerNorm,
    LpNorm,
    Lrn,
    MeanVarianceNorm,
    RmsNorm,
)
from xcompile.dialects.nn.softmax import AxisOp, Hardmax, LogSoftmax, Softmax
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import onnx_op


@onnx_op("BatchNormalization")
def batch_norm(node: NodeContext) -> list[Value]:
    """Inference; in opset 7 and 8 `spatial` must be 1, and no version's training outputs are supported."""
    if node.attr("training_mode", 0) or any(node.has_output(i) for i in range(1, node.outputs)):
        raise node.error(
            "XC1006",
            "BatchNormalization in training mode is not supported",
            help="export the model for inference",
        )
    if node.attr("spatial", 1) != 1:
        raise node.error("XC1006", "BatchNormalization with spatial = 0 is not supported")
    made = node.make(
        BatchNorm,
        x=node.input(0),
        scale=node.input(1),
        bias=node.input(2),
        mean=node.input(3),
        variance=node.input(4),
        epsilon=node.attr("epsilon", 1e-5),
    )
    return [made.y]


@onnx_op("InstanceNormalization")
def instance_norm(node: NodeContext) -> list[Value]:
    fields = {"scale": node.input(1), "bias": node.input(2), "epsilon": node.attr("epsilon", 1e-5)}
    return [node.make(InstanceNorm, x=node.input(0), **fields).y]


@onnx_op("GroupNormalization", since=21)
def group_norm(node: NodeContext) -> list[Value]:
    made = node.make(
        GroupNorm,
        x=node.input(0),
        scale=node.input(1),
        bias=node.input(2),
        groups=node.attr("num_groups"),
        epsilon=node.attr("epsilon", 1e-5),
    )
    return [made.y]


@onnx_op("LayerNormalization", since=17)
def layer_norm(node: NodeContext) -> list[Value]:
    made = node.make(LayerNorm, bias=node.optional(2), **_trailing(node))
    return [made.y]


@onnx_op("RMSNormalization", since=23)
def rms_norm(node: NodeContext) -> list[Value]:
    return [node.make(RmsNorm, **_trailing(node)).y]


def _trailing(node: NodeContext) -> dict[str, Any]:
    return {
        "x": node.input(0),
        "scale": node.input(1),
        "axis": node.axis(node.attr("axis", -1), node.rank(0)),
        "epsilon": node.attr("epsilon", 1e-5),
    }


@onnx_op("LRN")
def lrn(node: NodeContext) -> list[Value]:
    made = node.make(
        Lrn,
        x=node.input(0),
        size=node.attr("size"),
        alpha=node.attr("alpha", 1e-4),
        beta=node.attr("beta", 0.75),
        k=node.attr("bias", 1.0),
    )
    return [made.y]


@onnx_op("LpNormalization")
def lp_norm(node: NodeContext) -> list[Value]:
    axis = node.axis(node.attr("axis", -1), node.rank(0))
    return [node.make(LpNorm, x=node.input(0), axis=axis, p=node.attr("p", 2)).y]


@onnx_op("MeanVarianceNormalization")
def mean_variance_norm(node: NodeContext) -> list[Value]:
    rank = node.rank(0)
    axes = tuple(node.axis(a, rank) for a in node.attr("axes", (0, 2, 3)))
    return [node.make(MeanVarianceNorm, x=node.input(0), axes=axes).y]


# -- softmax ----------------------------------------------------------------------------------------


def _along_axis(node: NodeContext, cls: type[AxisOp]) -> Sequence[Value]:
    axis = node.axis(node.attr("axis", -1), node.rank(0))
    return [node.make(cls, x=node.input(0), axis=axis).y]


@onnx_op("Softmax", since=13)
def softmax(node: NodeContext) -> Sequence[Value]:
    return _along_axis(node, Softmax)


@onnx_op("LogSoftmax", since=13)
def log_softmax(node: NodeContext) -> Sequence[Value]:
    return _along_axis(node, LogSoftmax)


@onnx_op("Hardmax", since=13)
def hardmax(node: NodeContext) -> Sequence[Value]:
    return _along_axis(node, Hardmax)
