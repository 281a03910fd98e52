"""Resize and Upsample."""

import math
from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.counted import ScaledSizes
from xcompile.dialects.nn.gather import Gather
from xcompile.dialects.nn.interpolation import fraction_of
from xcompile.dialects.nn.resize import Resize
from xcompile.dialects.nn.sizes import ShapeOf
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_conv import static_sizes
from xcompile.frontends.onnx.registry import onnx_op

_ASYMMETRIC = {"coordinates": "asymmetric", "nearest": "floor"}


@onnx_op("Upsample", since=7)
def upsample_by_attribute(node: NodeContext) -> list[Value]:
    return _simple(node, {"factors": node.attr("scales")})


@onnx_op("Upsample", since=9)
@onnx_op("Resize", since=10)
def resize_by_scales(node: NodeContext) -> list[Value]:
    return _simple(node, _scales(node, 1, tuple(range(node.rank(0)))))


def _simple(node: NodeContext, fields: dict[str, Any]) -> list[Value]:
    mode = node.attr("mode", "nearest")
    axes = fields.pop("axes", tuple(range(node.rank(0))))
    made = node.make(
        Resize,
        x=node.input(0),
        axes=axes,
        mode="linear" if mode == "bilinear" else mode,
        **_ASYMMETRIC,
        **fields,
    )
    return [made.y]


def _scales(node: NodeContext, index: int, axes: tuple[int, ...]) -> dict[str, Any]:
    """The axes and factors of constant scales (axes that keep their size left out), or the operand."""
    constant = node.const(index)
    if constant is None:
        return {"axes": axes, **_scales_of_data(node, index, axes, None)}
    factors = tuple(float(s) for s in constant.reshape(-1))
    if len(factors) != len(axes):
        raise node.error("XC2007", f"{len(factors)} scales for {len(axes)} axes")
    kept = [(a, f) for a, f in zip(axes, factors, strict=True) if f != 1]
    return {"axes": tuple(a for a, _ in kept), "factors": tuple(f for _, f in kept)}


@onnx_op("Resize", since=11)
def resize(node: NodeContext) -> list[Value]:
    rank = node.rank(0)
    axes = tuple(node.axis(a, rank) for a in node.attr("axes", tuple(range(rank))))
    crop = node.attr("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize"
    fields: dict[str, Any] = {"axes": axes}
    if _is_given(node, 3):
        fields["sizes"] = node.input(3)
    elif not _is_given(node, 2):
        raise node.error("XC1011", "Resize has neither scales nor sizes")
    elif crop:
        fields |= _cropped(node, axes)
    else:
        fields |= _scales(node, 2, axes)
    if crop:
        fields["roi"] = node.input(1)
    made = node.make(
        Resize,
        x=node.input(0),
        mode=node.attr("mode", "nearest"),
        coordinates=node.attr("coordinate_transformation_mode", "half_pixel"),
        nearest=node.attr("nearest_mode", "round_prefer_floor"),
        cubic_a=node.attr("cubic_coeff_a", -0.75),
        exclude_outside=bool(node.attr("exclude_outside", 0)),
        extrapolation=node.attr("extrapolation_value", 0.0),
        antialias=bool(node.attr("antialias", 0)),
        aspect=node.attr("keep_aspect_ratio_policy", "stretch"),
        **fields,
    )
    return [made.y]


def _scales_of_data(
    node: NodeContext, index: int, axes: tuple[int, ...], roi: Value | None
) -> dict[str, Any]:
    """The operands of a resize by scales that the model computes or is given."""
    shape = node.make(ShapeOf, x=node.input(0)).y
    chosen = node.constant(np.array(axes, np.int64))
    present = node.make(Gather, x=shape, indices=chosen).y
    scales = node.input(index)
    found = node.make(ScaledSizes, sizes=present, scales=scales, roi=roi)
    return {"sizes": found.y, "scales": scales}


def _is_given(node: NodeContext, index: int) -> bool:
    """Whether an input is there; an empty tensor stands for an absent one."""
    return node.has_input(index) and static_sizes(node.input(index)) != [0]


def _cropped(node: NodeContext, axes: tuple[int, ...]) -> dict[str, Any]:
    """Sizes of a cropped region from constant scales, where all is known: ⌊size·(end - begin)·scale⌋."""
    scales, roi, sizes = node.const(2), node.const(1), static_sizes(node.input(0))
    present = [sizes[a] for a in axes]
    if (
        scales is None
        or roi is None
        or None in present
        or roi.size != 2 * scales.size != 2 * len(axes)
    ):
        return _scales_of_data(node, 2, axes, node.input(1))
    counts = [
        math.floor(fraction_of(float(s)) * n * (float(e) - float(b)))
        for s, n, b, e in zip(scales, present, roi[: len(axes)], roi[len(axes) :], strict=True)
        if n is not None and math.isfinite(s) and math.isfinite(e - b)
    ]
    if len(counts) != len(axes):
        raise node.error("XC2007", "Resize has a scale or region that is not finite")
    return {"sizes": node.constant(np.array(counts, np.int64))}
