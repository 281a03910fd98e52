"""Elementwise ops: arithmetic, comparison, logic, activations, casts."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn import binary, ternary, unary
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.bits import BitCast
from xcompile.dialects.nn.elementwise import Binary, Unary
from xcompile.dialects.nn.reshape import Reshape
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import onnx_op
from xcompile.frontends.onnx.tensors import dtype_name

_UNARY: dict[str, type[Unary]] = {
    "Abs": unary.Abs,
    "Acos": unary.Acos,
    "Acosh": unary.Acosh,
    "Asin": unary.Asin,
    "Asinh": unary.Asinh,
    "Atan": unary.Atan,
    "Atanh": unary.Atanh,
    "BitwiseNot": unary.BitwiseNot,
    "Ceil": unary.Ceil,
    "Cos": unary.Cos,
    "Cosh": unary.Cosh,
    "Erf": unary.Erf,
    "Exp": unary.Exp,
    "Floor": unary.Floor,
    "HardSwish": unary.HardSwish,
    "IsNaN": unary.IsNan,
    "Log": unary.Log,
    "Mish": unary.Mish,
    "Neg": unary.Neg,
    "Not": unary.Not,
    "Reciprocal": unary.Reciprocal,
    "Relu": unary.Relu,
    "Round": unary.Round,
    "Sigmoid": unary.Sigmoid,
    "Sign": unary.Sign,
    "Sin": unary.Sin,
    "Sinh": unary.Sinh,
    "Softplus": unary.Softplus,
    "Softsign": unary.Softsign,
    "Sqrt": unary.Sqrt,
    "Tan": unary.Tan,
    "Tanh": unary.Tanh,
}

_WITH_ATTRIBUTES: dict[str, tuple[type[Unary], Sequence[str]]] = {
    "Celu": (unary.Celu, ["alpha"]),
    "Elu": (unary.Elu, ["alpha"]),
    "Gelu": (unary.Gelu, ["approximate"]),
    "HardSigmoid": (unary.HardSigmoid, ["alpha", "beta"]),
    "LeakyRelu": (unary.LeakyRelu, ["alpha"]),
    "Selu": (unary.Selu, ["alpha", "gamma"]),
    "Shrink": (unary.Shrink, ["bias", "lambd"]),
    "Swish": (unary.Swish, ["alpha"]),
    "ThresholdedRelu": (unary.ThresholdedRelu, ["alpha"]),
}

_BINARY: dict[str, type[Binary]] = {
    "Add": binary.Add,
    "And": binary.And,
    "BitwiseAnd": binary.BitwiseAnd,
    "BitwiseOr": binary.BitwiseOr,
    "BitwiseXor": binary.BitwiseXor,
    "Div": binary.Div,
    "Equal": binary.Equal,
    "Greater": binary.Greater,
    "GreaterOrEqual": binary.GreaterEqual,
    "Less": binary.Less,
    "LessOrEqual": binary.LessEqual,
    "Mul": binary.Mul,
    "Or": binary.Or,
    "Pow": binary.Pow,
    "Sub": binary.Sub,
    "Xor": binary.Xor,
}


def _register_unary(name: str, cls: type[Unary], attributes: Sequence[str]) -> None:
    @onnx_op(name)
    def convert(node: NodeContext) -> list[Value]:
        given = {a: node.attrs[a] for a in attributes if a in node.attrs}
        return [node.make(cls, x=node.input(0), **given).y]


def _register_binary(name: str, cls: type[Binary]) -> None:
    @onnx_op(name, since=7)
    def convert(node: NodeContext) -> list[Value]:
        return [node.make(cls, a=node.input(0), b=node.input(1)).y]


for _name, _cls in _UNARY.items():
    _register_unary(_name, _cls, ())
for _name, (_cls, _attributes) in _WITH_ATTRIBUTES.items():
    _register_unary(_name, _cls, _attributes)
for _name, _two in _BINARY.items():
    _register_binary(_name, _two)


@onnx_op("PRelu", since=7)
def prelu(node: NodeContext) -> list[Value]:
    return [node.make(binary.PRelu, a=node.input(0), b=node.input(1)).y]


@onnx_op("Mod")
def mod(node: NodeContext) -> list[Value]:
    fmod = bool(node.attr("fmod", 0))
    return [node.make(binary.Mod, a=node.input(0), b=node.input(1), fmod=fmod).y]


@onnx_op("BitShift")
def bit_shift(node: NodeContext) -> list[Value]:
    direction = node.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise node.error("XC2007", f"the direction is LEFT or RIGHT, not '{direction}'")
    left = direction == "LEFT"
    return [node.make(binary.BitShift, a=node.input(0), b=node.input(1), left=left).y]


def _chain(node: NodeContext, cls: type[Binary]) -> Value:
    """A variadic op as a chain of binary ones, left to right."""
    total, *others = node.inputs()
    for other in others:
        total = node.make(cls, a=total, b=other).y
    return total


@onnx_op("Max")
def maximum(node: NodeContext) -> list[Value]:
    return [_chain(node, binary.Maximum)]


@onnx_op("Min")
def minimum(node: NodeContext) -> list[Value]:
    return [_chain(node, binary.Minimum)]


@onnx_op("Sum")
def total(node: NodeContext) -> list[Value]:
    return [_chain(node, binary.Add)]


@onnx_op("Mean")
def mean(node: NodeContext) -> list[Value]:
    summed = _chain(node, binary.Add)
    count = node.scalar(node.input_count, summed)
    return [node.make(binary.Div, a=summed, b=count).y]


@onnx_op("IsInf")
def is_inf(node: NodeContext) -> list[Value]:
    negative, positive = (bool(node.attr(f"detect_{s}", 1)) for s in ("negative", "positive"))
    return [node.make(unary.IsInf, x=node.input(0), negative=negative, positive=positive).y]


@onnx_op("Where", since=9)
def where(node: NodeContext) -> list[Value]:
    made = node.make(ternary.Where, condition=node.input(0), a=node.input(1), b=node.input(2))
    return [made.y]


@onnx_op("Clip")
def clip_attributes(node: NodeContext) -> list[Value]:
    """Bounds are attributes."""
    x = node.input(0)
    bounds = {"low": node.attr("min", None), "high": node.attr("max", None)}
    given = {name: node.scalar(v, x) for name, v in bounds.items() if v is not None}
    return [node.make(ternary.Clip, x=x, **given).y if given else x]


@onnx_op("Clip", since=11)
def clip(node: NodeContext) -> list[Value]:
    """Bounds are inputs; one of rank 1 and one element, which some exporters write, counts as a scalar."""
    given: dict[str, Value] = {}
    for name, index in (("low", 1), ("high", 2)):
        bound = node.optional(index)
        if bound is not None:
            given[name] = as_scalar(node, bound)
    x = node.input(0)
    return [node.make(ternary.Clip, x=x, **given).y if given else x]


def as_scalar(node: NodeContext, value: Value) -> Value:
    """A value of one element as one of rank 0."""
    if rank_of(value) == 0:
        return value
    return node.make(Reshape, x=value, shape=node.constant(np.zeros(0, np.int64))).y


@onnx_op("Cast")
def cast(node: NodeContext) -> list[Value]:
    to = dtype_name(node.attr("to"), f"the result of {node.op_type}")
    return [_cast(node, to)]


@onnx_op("BitCast", since=26)
def bit_cast(node: NodeContext) -> list[Value]:
    to = dtype_name(node.attr("to"), "the result of BitCast")
    return [node.make(BitCast, x=node.input(0), to=to).y]


@onnx_op("CastLike", since=15)
def cast_like(node: NodeContext) -> list[Value]:
    return [_cast(node, node.dtype(1))]


def _cast(node: NodeContext, to: str) -> Value:
    x = node.input(0)
    if dtype_of(x) == to:
        return x
    saturate, rounding = bool(node.attr("saturate", 1)), node.attr("round_mode", "up")
    return node.make(unary.Cast, x=x, to=to, saturate=saturate, rounding=rounding).y
