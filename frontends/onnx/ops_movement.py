"""Shapes and data movement."""

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn import counted, generate, reshape, sizes, slicing
from xcompile.dialects.nn.base import dtype_of, is_static, rank_of
from xcompile.dialects.nn.const import dense_attribute
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.data_axes import (
    known_content,
    pads_of_data,
    slice_of_data,
    squeeze_by_data,
    unsqueeze_by_data,
)
from xcompile.frontends.onnx.ops_elementwise import as_scalar
from xcompile.frontends.onnx.registry import onnx_op
from xcompile.frontends.onnx.tensors import dtype_name
from xcompile.runtime.abi import MAX_RANK


def _ints(node: NodeContext, values: object) -> Value:
    return node.constant(np.array(values, np.int64))


def _axes(node: NodeContext) -> tuple[int, ...] | Value | None:
    """Axes that are an attribute before opset 13, then an input; a value if they are data."""
    if node.opset < 13:
        return node.attr("axes", None)
    if not node.has_input(1):
        return None
    axes = node.input(1)
    known = known_content(axes)
    return axes if known is None else known


def _axis_count(node: NodeContext, axes: Value) -> int:
    """How many axes there are; CompileError XC2010 if only a run knows, or if no tensor has so many."""
    count = 1 if rank_of(axes) == 0 else ir.ShapedType(axes.type).shape[0]
    if count < 0:
        raise node.error(
            "XC2010",
            f"the number of axes of {node.op_type} is computed by the model",
            help="the rank of a value must be known when the model is compiled",
        )
    if count > MAX_RANK:
        raise node.error(
            "XC2010", f"{node.op_type} names {count} axes; at most {MAX_RANK} are possible"
        )
    return count


@onnx_op("Shape")
def shape(node: NodeContext) -> list[Value]:
    start, end = node.attr("start", 0), node.attr("end", None)
    return [node.make(sizes.ShapeOf, x=node.input(0), start=start, end=end).y]


@onnx_op("Size")
def size(node: NodeContext) -> list[Value]:
    return [node.make(sizes.Size, x=node.input(0)).y]


@onnx_op("Range", since=11)
def arange(node: NodeContext) -> list[Value]:
    start, limit, delta = (as_scalar(node, v) for v in node.inputs())
    numbers = {"start": start, "limit": limit, "delta": delta}
    count = node.make(counted.RangeCount, **numbers).y
    return [node.make(sizes.Range, **numbers, count=count).y]


@onnx_op("Reshape")
def reshape_to(node: NodeContext) -> list[Value]:
    keep = bool(node.attr("allowzero", 0))
    made = node.make(reshape.Reshape, x=node.input(0), shape=node.input(1), allow_zero=keep)
    return [made.y]


@onnx_op("Flatten")
def flatten(node: NodeContext) -> list[Value]:
    return [node.make(reshape.Flatten, x=node.input(0), axis=node.attr("axis", 1)).y]


@onnx_op("Squeeze")
def squeeze(node: NodeContext) -> list[Value]:
    axes = _axes(node)
    if isinstance(axes, Value):
        return [squeeze_by_data(node, node.input(0), axes, _axis_count(node, axes))]
    return [node.make(reshape.Squeeze, x=node.input(0), axes=axes).y]


@onnx_op("Unsqueeze")
def unsqueeze(node: NodeContext) -> list[Value]:
    axes = _axes(node)
    if axes is None:
        raise node.error("XC1010", "Unsqueeze needs axes")
    if isinstance(axes, Value):
        return [unsqueeze_by_data(node, node.input(0), axes, _axis_count(node, axes))]
    return [node.make(reshape.Unsqueeze, x=node.input(0), axes=axes).y]


@onnx_op("Transpose")
def transpose(node: NodeContext) -> list[Value]:
    perm = node.attr("perm", tuple(reversed(range(node.rank(0)))))
    return [node.make(reshape.Transpose, x=node.input(0), perm=perm).y]


@onnx_op("Expand", since=8)
def expand(node: NodeContext) -> list[Value]:
    return [node.make(reshape.Expand, x=node.input(0), shape=node.input(1)).y]


@onnx_op("DepthToSpace")
def depth_to_space(node: NodeContext) -> list[Value]:
    block, mode = node.attr("blocksize"), node.attr("mode", "DCR")
    return [node.make(reshape.DepthToSpace, x=node.input(0), block=block, mode=mode).y]


@onnx_op("SpaceToDepth")
def space_to_depth(node: NodeContext) -> list[Value]:
    block, mode = node.attr("blocksize"), node.attr("mode", "DCR")
    return [node.make(reshape.SpaceToDepth, x=node.input(0), block=block, mode=mode).y]


@onnx_op("Concat")
def concat(node: NodeContext) -> list[Value]:
    axis = node.attr("axis")
    parts = node.inputs()
    if len(parts) == 1:
        node.axis(axis, node.rank(0))
        return parts
    while len(parts) > slicing.MOST_PARTS:
        starts = range(0, len(parts), slicing.MOST_PARTS)
        groups = [parts[start : start + slicing.MOST_PARTS] for start in starts]
        parts = [node.make(slicing.Concat, xs=group, axis=axis).y for group in groups]
    return [node.make(slicing.Concat, xs=parts, axis=axis).y]


@onnx_op("Split")
def split(node: NodeContext) -> list[Value]:
    """The lengths are an attribute before opset 13, then an input."""
    given = node.attr("split", None) if node.opset < 13 else None
    lengths = node.optional(1) if given is None else _ints(node, given)
    count = node.outputs
    if count < 1 or node.attr("num_outputs", count) != count:
        raise node.error(
            "XC2007", f"num_outputs of Split is not {count}, the number of its outputs"
        )
    made = node.make(
        slicing.Split,
        results=count,
        x=node.input(0),
        lengths=lengths,
        axis=node.attr("axis", 0),
    )
    return list(made.parts)


@onnx_op("Slice")
def slice_attributes(node: NodeContext) -> list[Value]:
    starts, ends = node.attr("starts"), node.attr("ends")
    axes = node.attr("axes", tuple(range(len(starts))))
    fields = {"starts": starts, "ends": ends, "axes": axes}
    values = {name: _ints(node, given) for name, given in fields.items()}
    return [node.make(slicing.Slice, x=node.input(0), **values).y]


@onnx_op("Slice", since=10)
def slice_inputs(node: NodeContext) -> list[Value]:
    x, starts, ends = (node.input(i) for i in range(3))
    axes, steps = node.optional(3), node.optional(4)
    given = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    for what, value in given.items():
        if value is not None and rank_of(value) != 1:
            raise node.error("XC2003", f"the {what} must have 1 axes, not {rank_of(value)}")
    unknown = any(v is not None and known_content(v) is None for v in (axes, steps))
    if unknown or (axes is None and not any(map(is_static, (starts, ends)))):
        return [slice_of_data(node, x, starts, ends, axes, steps)]
    return [node.make(slicing.Slice, x=x, **given).y]


@onnx_op("Pad")
def pad_attributes(node: NodeContext) -> list[Value]:
    pads, x, mode = node.attr("pads"), node.input(0), node.attr("mode", "constant")
    value = node.scalar(node.attr("value", 0.0), x)
    return [node.make(slicing.Pad, x=x, pads=_ints(node, pads), value=value, mode=mode).y]


@onnx_op("Pad", since=11)
def pad(node: NodeContext) -> list[Value]:
    value, x, pads, axes = node.optional(2), node.input(0), node.input(1), node.optional(3)
    if axes is not None and known_content(axes) is None:
        pads, axes = pads_of_data(node, x, pads, axes), None
    made = node.make(
        slicing.Pad,
        x=x,
        pads=pads,
        value=None if value is None else as_scalar(node, value),
        axes=axes,
        mode=node.attr("mode", "constant"),
    )
    return [made.y]


@onnx_op("Tile")
def tile(node: NodeContext) -> list[Value]:
    return [node.make(slicing.Tile, x=node.input(0), repeats=node.input(1)).y]


@onnx_op("ConstantOfShape", since=9)
def constant_of_shape(node: NodeContext) -> list[Value]:
    value = node.attr("value", None)
    element = np.zeros(1, np.float32) if value is None else np.asarray(value).reshape(-1)
    if element.size != 1:
        raise node.error("XC2007", f"the value must have one element, not {element.size}")
    filled = dense_attribute(element)
    return [node.make(generate.ConstantOfShape, shape=node.input(0), value=filled).y]


@onnx_op("EyeLike", since=9)
def eye_like(node: NodeContext) -> list[Value]:
    code = node.attr("dtype", None)
    dtype = dtype_of(node.input(0)) if code is None else dtype_name(code, "the result of EyeLike")
    return [node.make(generate.EyeLike, x=node.input(0), dtype=dtype, k=node.attr("k", 0)).y]


@onnx_op("Trilu", since=14)
def trilu(node: NodeContext) -> list[Value]:
    k = node.optional(1)
    diagonal = None if k is None else as_scalar(node, k)
    upper = bool(node.attr("upper", 1))
    return [node.make(generate.Trilu, x=node.input(0), k=diagonal, upper=upper).y]


@onnx_op("CumSum", since=11)
def cumsum(node: NodeContext) -> list[Value]:
    return _cumulative(node, generate.CumSum)


@onnx_op("CumProd", since=26)
def cumprod(node: NodeContext) -> list[Value]:
    return _cumulative(node, generate.CumProd)


def _cumulative(node: NodeContext, cls: type[generate.Cumulative]) -> list[Value]:
    made = node.make(
        cls,
        x=node.input(0),
        axis=as_scalar(node, node.input(1)),
        exclusive=bool(node.attr("exclusive", 0)),
        reverse=bool(node.attr("reverse", 0)),
    )
    return [made.y]
