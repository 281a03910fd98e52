"""Normalizations and softmax."""

from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.binary import Add, Mul, Sub
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
from xcompile.dialects.nn.reduce import ReduceMean
from xcompile.dialects.nn.reshape import Expand, Flatten, Reshape
from xcompile.dialects.nn.sizes import ShapeOf
from xcompile.dialects.nn.softmax import AxisOp, Hardmax, LogSoftmax, Softmax
from xcompile.dialects.nn.unary import Cast, Rsqrt
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_conv import static_sizes
from xcompile.frontends.onnx.registry import Converter, onnx_op


@onnx_op("BatchNormalization", since=14)
def batch_norm(node: NodeContext) -> list[Value]:
    if not node.attr("training_mode", 0):
        return batch_norm_in_inference(node)
    return _batch_norm_in_training(node)


def _batch_norm_in_training(node: NodeContext) -> list[Value]:
    """Normalized by the batch's own mean and variance, which move the running ones; statistics are in float32."""
    c, x, rank = Composition(node), node.input(0), node.rank(0)
    axes = [axis for axis in range(rank) if axis != 1]
    wide = c.widened(x)
    centered, variance = c.normalized(wide, axes)
    mean = c.reduce(ReduceMean, wide, axes)
    root = c.sqrt(c.add(variance, node.attr("epsilon", 1e-5)))
    y = c.affine(c.div(centered, root), node.input(1), node.input(2))
    keep = node.attr("momentum", 0.9)
    running: list[Value] = []
    for before, now in ((node.input(3), mean), (node.input(4), variance)):
        flat = c.reshape(now, (-1,))
        old = c.mul(c.cast(before, dtype_of(flat)), keep)
        running.append(c.cast(c.add(old, c.mul(flat, 1 - keep)), dtype_of(before)))
    return [c.cast(y, dtype_of(x)), *running]


@onnx_op("BatchNormalization", since=7)
def batch_norm_in_inference(node: NodeContext) -> list[Value]:
    """In opset 7 and 8 `spatial` must be 1; before opset 14 training is told by its outputs, and not supported."""
    if any(node.has_output(i) for i in range(1, node.outputs)):
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


@onnx_op("GroupNormalization", since=18)
def group_norm_by_group(node: NodeContext) -> list[Value]:
    """Until opset 21 scale and bias have one element a group; each is repeated for the group's channels."""
    groups, channels = node.attr("num_groups"), static_sizes(node.input(0))[1]
    if channels is None or groups < 1 or channels % groups:
        raise node.error("XC2007", f"GroupNormalization of {channels} channels in {groups} groups")
    column = node.constant(np.array([-1, 1], np.int64))
    matrix = node.constant(np.array([groups, channels // groups], np.int64))
    flat = node.constant(np.array([channels], np.int64))
    repeated: list[Value] = []
    for i in (1, 2):
        each = node.make(Reshape, x=node.input(i), shape=column).y
        wide = node.make(Expand, x=each, shape=matrix).y
        repeated.append(node.make(Reshape, x=wide, shape=flat).y)
    return _group_norm(node, *repeated)


@onnx_op("GroupNormalization", since=21)
def group_norm(node: NodeContext) -> list[Value]:
    return _group_norm(node, node.input(1), node.input(2))


def _group_norm(node: NodeContext, scale: Value, bias: Value) -> list[Value]:
    made = node.make(
        GroupNorm,
        x=node.input(0),
        scale=scale,
        bias=bias,
        groups=node.attr("num_groups"),
        epsilon=node.attr("epsilon", 1e-5),
    )
    return [made.y]


@onnx_op("LayerNormalization", since=17)
def layer_norm(node: NodeContext) -> list[Value]:
    """The statistics are ops of their own, so that the usual node without them is one op."""
    fields = _trailing(node)
    y = node.make(LayerNorm, bias=node.optional(2), **fields).y
    if not node.has_output(1) and not node.has_output(2):
        return [y]
    x, stash = fields["x"], node.attr("stash_type", 1)
    if stash != 1:
        raise node.error("XC1006", f"LayerNormalization with stash_type {stash} is not supported")
    axes = tuple(range(fields["axis"], node.rank(0)))
    wide = x if node.dtype(0) == "f32" else node.make(Cast, x=x, to="f32").y
    mean = node.make(ReduceMean, x=wide, axes=axes).y
    centered = node.make(Sub, a=wide, b=mean).y
    variance = node.make(ReduceMean, x=node.make(Mul, a=centered, b=centered).y, axes=axes).y
    shifted = node.make(Add, a=variance, b=node.scalar(fields["epsilon"], variance)).y
    return [y, mean, node.make(Rsqrt, x=shifted).y]


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


_SOFTMAXES: dict[str, type[AxisOp]] = {
    "Softmax": Softmax,
    "LogSoftmax": LogSoftmax,
    "Hardmax": Hardmax,
}


def _along_axis(cls: type[AxisOp]) -> Converter:
    def convert(node: NodeContext) -> list[Value]:
        axis = node.axis(node.attr("axis", -1), node.rank(0))
        return [node.make(cls, x=node.input(0), axis=axis).y]

    return convert


def _over_flattened(cls: type[AxisOp]) -> Converter:
    """Before opset 13 the input counts as a matrix: axes before `axis` are its rows, the others its
    columns.
    """

    def convert(node: NodeContext) -> list[Value]:
        x, rank = node.input(0), node.rank(0)
        axis = node.attr("axis", 1)
        if not -rank <= axis <= rank:
            raise node.error(
                "XC2006", f"axis {axis} of {node.op_type} is out of range for rank {rank}"
            )
        axis = axis + rank if axis < 0 else axis
        if rank and axis == rank - 1:
            return [node.make(cls, x=x, axis=axis).y]
        shape = node.make(ShapeOf, x=x).y
        flat = node.make(Flatten, x=x, axis=axis).y
        return [node.make(Reshape, x=node.make(cls, x=flat, axis=1).y, shape=shape).y]

    return convert


for _name, _cls in _SOFTMAXES.items():
    onnx_op(_name)(_over_flattened(_cls))
    onnx_op(_name, since=13)(_along_axis(_cls))
