"""Quantization and integer arithmetic: everything is exact in int32, and rounded once behind it."""

from typing import Any, overload

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.dynamic import dynamically_quantized
from xcompile.dialects.nn.integer import ConvInteger, MatMulInteger
from xcompile.dialects.nn.quantize import Dequantize, Quantize
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_conv import conv_fields, static_sizes
from xcompile.frontends.onnx.registry import onnx_op
from xcompile.frontends.onnx.tensors import dtype_name


def _granularity(node: NodeContext, *positions: int) -> dict[str, Any]:
    """Scale, zero point, axis and block; a vector of one element counts as one number.

    Scale and zero point have one shape: where one of them is a number, so is the other.
    """
    c = Composition(node)
    block = node.attr("block_size", 0)
    given = [node.optional(position) for position in positions]
    one = not block and any(v is not None and (not rank_of(v) or is_one(v)) for v in given)
    scale, zero_point = (scalar_of(c, value) if one else value for value in given)
    assert scale is not None
    axis = node.attr("axis", 1)
    if block or rank_of(scale):
        axis = node.axis(axis if node.rank(0) > 1 or block else 0, node.rank(0))
    return {"scale": scale, "zero_point": zero_point, "axis": axis, "block": block}


def is_one(value: Value) -> bool:
    return static_sizes(value) == [1]


def _dtype_attribute(node: NodeContext, name: str, default: str) -> str:
    code = node.attr(name, 0)
    return dtype_name(code, f"the result of {node.op_type}") if code else default


@onnx_op("QuantizeLinear")
def quantize_linear(node: NodeContext) -> list[Value]:
    scale_dtype = node.dtype(1)
    to = node.dtype(2) if node.has_input(2) else _dtype_attribute(node, "output_dtype", "ui8")
    made = node.make(
        Quantize,
        x=node.input(0),
        **_granularity(node, 1, 2),
        to=to,
        precision=_dtype_attribute(node, "precision", _float_of(scale_dtype)),
        saturate=bool(node.attr("saturate", 1)),
    )
    return [made.y]


def _float_of(dtype: str) -> str:
    """The type in which a quotient by a scale of this type is taken."""
    return dtype if dtype in ("f16", "bf16", "f64") else "f32"


@onnx_op("DequantizeLinear")
def dequantize_linear(node: NodeContext) -> list[Value]:
    to = _dtype_attribute(node, "output_dtype", _float_of(node.dtype(1)))
    made = node.make(Dequantize, x=node.input(0), **_granularity(node, 1, 2), to=to)
    return [made.y]


@onnx_op("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: NodeContext) -> list[Value]:
    return list(dynamically_quantized(Composition(node), node.input(0)))


# -- integer products -----------------------------------------------------------------------------


def _of_rows(c: Composition, value: Value, matrix: Value) -> Value:
    """A scale of the left matrix or the result: a vector has an element for each row."""
    if rank_of(value) != 1 or is_one(value) or rank_of(matrix) < 2:
        return value
    return c.unsqueeze(value, 1)


def integer_matmul(
    node: NodeContext, matrices: tuple[Value, Value], zeros: tuple[Value | None, Value | None]
) -> Value:
    """Sums of products in int32. Zero points of more than one axis are subtracted before."""
    if any(zero is not None and rank_of(zero) > 1 for zero in zeros):
        c = Composition(node)
        wide = [
            c.cast(x, "i32") if zero is None else c.sub(c.cast(x, "i32"), c.cast(zero, "i32"))
            for x, zero in zip(matrices, zeros, strict=True)
        ]
        return c.matmul(wide[0], wide[1])
    a, b = matrices
    return node.make(MatMulInteger, a=a, b=b, a_zero_point=zeros[0], b_zero_point=zeros[1]).y


@onnx_op("MatMulInteger", since=10)
def matmul_integer(node: NodeContext) -> list[Value]:
    matrices, zeros = (node.input(0), node.input(1)), (node.optional(2), node.optional(3))
    return [integer_matmul(node, matrices, zeros)]


@onnx_op("QLinearMatMul", since=10)
def qlinear_matmul(node: NodeContext) -> list[Value]:
    c = Composition(node)
    total = integer_matmul(node, (node.input(0), node.input(3)), (node.input(2), node.input(5)))
    rows, y_scale = (_of_rows(c, node.input(i), node.input(0)) for i in (1, 6))
    return [_requantized(c, total, (rows, node.input(4)), y_scale, node.input(7))]


def _requantized(
    c: Composition, total: Value, scales: tuple[Value, Value], scale: Value, zero_point: Value
) -> Value:
    """int32 sums as the result's type: one multiplication by a float32 factor, rounded half to even.

    A vector of zero points has one for each row.

    Scales of 16 bits are exact in float32, where the factor `a_scale·b_scale / y_scale` is rounded.
    """
    a, b, y = (c.cast(v, "f32") for v in (*scales, scale))
    factor = c.div(c.mul(a, b), y)
    scaled = c.mul(c.cast(total, "f32"), factor)
    dtype, axis = dtype_of(zero_point), max(rank_of(total) - 2, 0)
    if rank_of(zero_point) and not is_one(zero_point):
        one = c.add(c.mul(c.cast(zero_point, "f32"), 0.0), 1.0)
    else:
        zero_point, one = scalar_of(c, zero_point), c.constant(np.ones((), np.float32))
    return c.make(Quantize, x=scaled, scale=one, zero_point=zero_point, axis=axis, to=dtype)


def _integer_conv(node: NodeContext, x: Value, w: int, zeros: tuple[int, int]) -> Value:
    """Padding adds cells that equal the zero point."""
    c = Composition(node)
    made = node.make(
        ConvInteger,
        x=x,
        w=node.input(w),
        x_zero_point=scalar_of(c, node.optional(zeros[0])),
        w_zero_point=node.optional(zeros[1]),
        fill=None,
        **conv_fields(node, w, x),
    )
    return made.y


@overload
def scalar_of(c: Composition, value: Value) -> Value: ...
@overload
def scalar_of(c: Composition, value: None) -> None: ...
@overload
def scalar_of(c: Composition, value: Value | None) -> Value | None: ...
def scalar_of(c: Composition, value: Value | None) -> Value | None:
    """The one element of a value, which a check when the model runs finds where its sizes are unknown."""
    return c.reshape(value, ()) if value is not None and rank_of(value) else value


@onnx_op("ConvInteger", since=10)
def conv_integer(node: NodeContext) -> list[Value]:
    return [_integer_conv(node, node.input(0), 1, (2, 3))]


@onnx_op("QLinearConv", since=10)
def qlinear_conv(node: NodeContext) -> list[Value]:
    """Of images of any layout: with `channels_last`, in com.microsoft, they are turned before and after."""
    c, x, rank = Composition(node), node.input(0), node.rank(0)
    last = bool(node.attr("channels_last", 0))
    if last:
        x = c.transpose(x, (0, rank - 1, *range(1, rank - 1)))
    total = _integer_conv(node, x, 3, (2, 5))

    def channels(value: Value) -> Value:
        return c.per_channel(value, rank) if rank_of(value) else value

    if node.has_input(8):
        total = c.add(total, channels(node.input(8)))
    x_scale, y_scale, zero_point = (scalar_of(c, node.input(i)) for i in (1, 6, 7))
    assert x_scale is not None and y_scale is not None and zero_point is not None
    y = _requantized(c, total, (x_scale, channels(node.input(4))), y_scale, zero_point)
    return [c.transpose(y, (0, *range(2, rank), 1)) if last else y]
