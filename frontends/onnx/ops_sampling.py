"""Ops that read between the elements of an image, and pools of regions."""

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.sampling import DeformConv, GridSample, MaxRoiPool, RoiAlign
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_conv import kernel_of
from xcompile.frontends.onnx.registry import onnx_op

_OLD_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Names of modes before opset 20."""


@onnx_op("GridSample", since=16)
def grid_sample(node: NodeContext) -> list[Value]:
    mode = node.attr("mode", "linear")
    made = node.make(
        GridSample,
        x=node.input(0),
        grid=node.input(1),
        mode=_OLD_MODES.get(mode, mode),
        padding=node.attr("padding_mode", "zeros"),
        align_corners=bool(node.attr("align_corners", 0)),
    )
    return [made.y]


@onnx_op("DeformConv", since=19)
def deform_conv(node: NodeContext) -> list[Value]:
    rank = len(kernel_of(node))
    ones = (1,) * rank
    made = node.make(
        DeformConv,
        x=node.input(0),
        w=node.input(1),
        offset=node.input(2),
        bias=node.optional(3),
        mask=node.optional(4),
        strides=node.attr("strides", ones),
        pads=node.attr("pads", (0,) * (2 * rank)),
        dilations=node.attr("dilations", ones),
        groups=node.attr("group", 1),
        offset_groups=node.attr("offset_group", 1),
    )
    return [made.y]


@onnx_op("RoiAlign", since=10)
def roi_align_unshifted(node: NodeContext) -> list[Value]:
    """Before opset 16 regions are not shifted."""
    return _roi_align(node, "output_half_pixel")


@onnx_op("RoiAlign", since=16)
def roi_align(node: NodeContext) -> list[Value]:
    return _roi_align(node, node.attr("coordinate_transformation_mode", "half_pixel"))


def _roi_align(node: NodeContext, coordinates: str) -> list[Value]:
    if coordinates not in ("half_pixel", "output_half_pixel"):
        raise node.error("XC2007", f"RoiAlign has no coordinates '{coordinates}'")
    made = node.make(
        RoiAlign,
        x=node.input(0),
        rois=node.input(1),
        batches=node.input(2),
        height=node.attr("output_height", 1),
        width=node.attr("output_width", 1),
        scale=node.attr("spatial_scale", 1.0),
        mode=node.attr("mode", "avg"),
        ratio=node.attr("sampling_ratio", 0),
        half_pixel=coordinates == "half_pixel",
    )
    return [made.y]


@onnx_op("MaxRoiPool")
def max_roi_pool(node: NodeContext) -> list[Value]:
    shape = node.attr("pooled_shape")
    if len(shape) != 2:
        raise node.error("XC2007", f"pooled_shape is {shape}, not two sizes")
    scale = node.attr("spatial_scale", 1.0)
    x, rois = node.input(0), node.input(1)
    made = node.make(MaxRoiPool, x=x, rois=rois, height=shape[0], width=shape[1], scale=scale)
    return [made.y]
