"""Ops of the domain com.microsoft on quantized tensors: dequantize, compute in float, quantize.

Passes make integer arithmetic of that, as they do where a model says it with ops of its own.
"""

from collections.abc import Callable
from typing import Any

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.dynamic import dynamically_quantized
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.pool import AveragePool
from xcompile.dialects.nn.quantize import Dequantize, Quantize
from xcompile.dialects.nn.reduce import ReduceMean
from xcompile.dialects.nn.softmax import Softmax
from xcompile.dialects.nn.unary import LeakyRelu, Sigmoid
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_pool import window_of
from xcompile.frontends.onnx.ops_quantize import (
    dequantize_linear,
    integer_matmul,
    is_one,
    qlinear_conv,
    quantize_linear,
    scalar_of,
)
from xcompile.frontends.onnx.registry import onnx_op

MICROSOFT = "com.microsoft"

onnx_op("QuantizeLinear", domain=MICROSOFT)(quantize_linear)
onnx_op("DequantizeLinear", domain=MICROSOFT)(dequantize_linear)
onnx_op("QLinearConv", domain=MICROSOFT)(qlinear_conv)


def dequantized(node: NodeContext, x: int, scale: int, zero: int) -> Value:
    """The number that an input is, with one scale and zero point, which may be missing."""
    c = Composition(node)
    parameters = (scalar_of(c, node.input(scale)), scalar_of(c, node.optional(zero)))
    made = node.make(
        Dequantize, x=node.input(x), scale=parameters[0], zero_point=parameters[1], to="f32"
    )
    return made.y


def quantized(node: NodeContext, y: Value, scale: int, zero: int, like: int) -> Value:
    """A result as integers; without a zero point they are of the type of the input `like`."""
    c = Composition(node)
    point = scalar_of(c, node.optional(zero))
    made = node.make(
        Quantize,
        x=y,
        scale=scalar_of(c, node.input(scale)),
        zero_point=point,
        to=node.dtype(like) if point is None else dtype_of(point),
    )
    return made.y


def _binary(node: NodeContext, compute: Callable[[Value, Value], Value]) -> list[Value]:
    a, b = dequantized(node, 0, 1, 2), dequantized(node, 3, 4, 5)
    return [quantized(node, compute(a, b), 6, 7, 0)]


@onnx_op("QLinearAdd", domain=MICROSOFT)
def qlinear_add(node: NodeContext) -> list[Value]:
    return _binary(node, Composition(node).add)


@onnx_op("QLinearMul", domain=MICROSOFT)
def qlinear_mul(node: NodeContext) -> list[Value]:
    return _binary(node, Composition(node).mul)


@onnx_op("QLinearConcat", domain=MICROSOFT)
def qlinear_concat(node: NodeContext) -> list[Value]:
    """The scale and zero point of the result, then each part with its own."""
    if node.input_count < 5 or node.input_count % 3 != 2:
        raise node.error("XC1011", f"QLinearConcat has {node.input_count} inputs")
    parts = [dequantized(node, i, i + 1, i + 2) for i in range(2, node.input_count, 3)]
    axis = node.axis(node.attr("axis"), node.rank(2))
    return [quantized(node, Composition(node).concat(parts, axis), 0, 1, 2)]


@onnx_op("QLinearWhere", domain=MICROSOFT)
def qlinear_where(node: NodeContext) -> list[Value]:
    a, b = dequantized(node, 1, 2, 3), dequantized(node, 4, 5, 6)
    return [quantized(node, Composition(node).where(node.input(0), a, b), 7, 8, 1)]


def _unary(node: NodeContext, compute: Callable[[Value], Value]) -> list[Value]:
    return [quantized(node, compute(dequantized(node, 0, 1, 2)), 3, 4, 0)]


@onnx_op("QLinearLeakyRelu", domain=MICROSOFT)
def qlinear_leaky_relu(node: NodeContext) -> list[Value]:
    c, alpha = Composition(node), node.attr("alpha", 0.01)
    return _unary(node, lambda x: c.unary(LeakyRelu, x, alpha=alpha))


@onnx_op("QLinearSigmoid", domain=MICROSOFT)
def qlinear_sigmoid(node: NodeContext) -> list[Value]:
    c = Composition(node)
    return _unary(node, lambda x: c.unary(Sigmoid, x))


@onnx_op("QLinearSoftmax", domain=MICROSOFT)
def qlinear_softmax(node: NodeContext) -> list[Value]:
    """`opset` says whether one axis is normalized (from 13 on), or all axes from there on."""
    c, rank = Composition(node), node.rank(0)
    recent = node.attr("opset", 13) >= 13
    axis = node.axis(node.attr("axis", -1 if recent else 1), rank)

    def softmax(x: Value) -> Value:
        if recent or axis == rank - 1:
            return c.make(Softmax, x=x, axis=axis)
        rows = c.reshape(x, (*[0] * axis, -1))
        return c.reshape_like(c.make(Softmax, x=rows, axis=axis), x)

    return _unary(node, softmax)


@onnx_op("QLinearReduceMean", domain=MICROSOFT)
def qlinear_reduce_mean(node: NodeContext) -> list[Value]:
    c, rank = Composition(node), node.rank(0)
    axes = sorted({node.axis(a, rank) for a in node.attr("axes", tuple(range(rank)))})
    keepdims = bool(node.attr("keepdims", 1))
    return _unary(node, lambda x: c.reduce(ReduceMean, x, axes, keepdims=keepdims))


# -- images -----------------------------------------------------------------------------------------


def _images(node: NodeContext, compute: Callable[[Value], Value]) -> Callable[[Value], Value]:
    """A function of images of any layout: with `channels_last` they are turned before and after."""
    if not node.attr("channels_last", 0):
        return compute
    c, rank = Composition(node), node.rank(0)
    back = (0, *range(2, rank), 1)
    return lambda x: c.transpose(compute(c.transpose(x, (0, rank - 1, *range(1, rank - 1)))), back)


@onnx_op("QLinearGlobalAveragePool", domain=MICROSOFT)
def qlinear_global_average_pool(node: NodeContext) -> list[Value]:
    c, rank = Composition(node), node.rank(0)
    if rank < 3:
        raise node.error("XC2003", f"{node.op_type} of an input of rank {rank}")
    axes = range(2, rank)
    return _unary(node, _images(node, lambda x: c.reduce(ReduceMean, x, axes)))


@onnx_op("QLinearAveragePool", domain=MICROSOFT)
def qlinear_average_pool(node: NodeContext) -> list[Value]:
    include = bool(node.attr("count_include_pad", 0))

    def pool(x: Value) -> Value:
        fields: dict[str, Any] = window_of(node, x)
        return node.make(AveragePool, count_include_pad=include, **fields).y

    return _unary(node, _images(node, pool))


# -- matrix products --------------------------------------------------------------------------------


@onnx_op("QGemm", domain=MICROSOFT)
def qgemm(node: NodeContext) -> list[Value]:
    """`alpha·(A·B + C)`, C of int32 in units of the product; a float where the result has no scale."""
    c = Composition(node)
    if node.rank(0) != 2 or node.rank(3) != 2:
        raise node.error("XC2003", f"QGemm of operands of rank {node.rank(0)} and {node.rank(3)}")
    transposed = [bool(node.attr(name, 0)) for name in ("transA", "transB")]
    scales, zeros = node.input(4), node.optional(5)
    if not rank_of(scales) or is_one(scales):
        scales, zeros = scalar_of(c, scales), scalar_of(c, zeros)
    columns = 0 if transposed[1] else 1
    b = node.make(
        Dequantize, x=node.input(3), scale=scales, zero_point=zeros, axis=columns, to="f32"
    ).y
    a = dequantized(node, 0, 1, 2)
    y = c.make(MatMul, a=a, b=b, transpose_a=transposed[0], transpose_b=transposed[1])
    if node.has_input(6):
        step = c.mul(scalar_of(c, node.input(1)), scales)
        axis = node.rank(6) - 1
        bias = node.make(
            Dequantize, x=node.input(6), scale=step, zero_point=None, axis=axis, to="f32"
        )
        y = c.add(y, bias.y)
    alpha = node.attr("alpha", 1.0)
    y = y if alpha == 1 else c.mul(y, alpha)
    return [quantized(node, y, 7, 8, 0) if node.has_input(7) else y]


@onnx_op("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(node: NodeContext) -> list[Value]:
    total = integer_matmul(
        node, (node.input(0), node.input(1)), (node.optional(4), node.optional(5))
    )
    return [_scaled(node, total, node.input(2), 3, 6)]


@onnx_op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(node: NodeContext) -> list[Value]:
    """The left operand is quantized to uint8 over its range."""
    a, scale, zero = dynamically_quantized(Composition(node), node.input(0))
    total = integer_matmul(node, (a, node.input(1)), (zero, node.optional(3)))
    return [_scaled(node, total, scale, 2, 4)]


def _scaled(node: NodeContext, total: Value, scale: Value, other: int, bias: int) -> Value:
    """Sums in float: times the product of the scales, plus a bias if there is one."""
    c = Composition(node)
    y = c.mul(
        c.cast(total, "f32"), c.mul(scalar_of(c, scale), one_or_columns(c, node.input(other)))
    )
    return c.add(y, node.input(bias)) if node.has_input(bias) else y


def one_or_columns(c: Composition, scale: Value) -> Value:
    """A scale or zero point of columns; a vector of one element is a number."""
    return scalar_of(c, scale) if is_one(scale) else scale
