"""Opset 6, where it differs: operands broadcast only when told to, and inference is an attribute."""

from collections.abc import Sequence

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn import binary
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.elementwise import Binary
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_norm import batch_norm_in_inference
from xcompile.frontends.onnx.registry import onnx_op

_BINARY: dict[str, type[Binary]] = {
    "Add": binary.Add,
    "And": binary.And,
    "Div": binary.Div,
    "Equal": binary.Equal,
    "Greater": binary.Greater,
    "Less": binary.Less,
    "Mul": binary.Mul,
    "Or": binary.Or,
    "Pow": binary.Pow,
    "Sub": binary.Sub,
    "Xor": binary.Xor,
}


def _register(name: str, cls: type[Binary]) -> None:
    @onnx_op(name, since=6)
    def convert(node: NodeContext) -> list[Value]:
        a, b = node.input(0), node.input(1)
        return [node.make(cls, a=a, b=_aligned(node, a, b)).y]


for _name, _cls in _BINARY.items():
    _register(_name, _cls)


def _aligned(node: NodeContext, a: Value, b: Value) -> Value:
    """The second operand with axes of size 1 behind it, so that its first axis meets `axis` of the first."""
    behind = rank_of(a) - rank_of(b)
    if not node.attr("broadcast", 0):
        if behind:
            raise node.error(
                "XC2003", f"{node.op_type} of rank {rank_of(a)} and {rank_of(b)} without broadcast"
            )
        return b
    if behind < 0:
        raise node.error("XC2003", f"rank {rank_of(b)} does not broadcast to rank {rank_of(a)}")
    axis = node.attr("axis", None)
    if axis is None or rank_of(b) == 0:
        return b
    behind -= node.axis(axis, rank_of(a))
    if behind < 0:
        raise node.error("XC2006", f"{node.op_type} has no room behind axis {axis}")
    last = rank_of(b) + behind
    return Composition(node).unsqueeze(b, *range(rank_of(b), last))


@onnx_op("PRelu", since=6)
def prelu(node: NodeContext) -> list[Value]:
    """One slope, or one a channel."""
    c, x, slope = Composition(node), node.input(0), node.input(1)
    if rank_of(slope) == 1:
        slope = c.per_channel(slope, max(rank_of(x), 2))
    return [node.make(binary.PRelu, a=x, b=slope).y]


def _check_inference(node: NodeContext) -> None:
    if not node.attr("is_test", 0):
        raise node.error(
            "XC1006",
            f"{node.op_type} in training mode is not supported",
            help="export the model for inference",
        )


@onnx_op("BatchNormalization", since=6)
def batch_norm(node: NodeContext) -> Sequence[Value]:
    _check_inference(node)
    return batch_norm_in_inference(node)


@onnx_op("Dropout", since=6)
def dropout(node: NodeContext) -> list[Value]:
    _check_inference(node)
    if node.has_output(1):
        raise node.error("XC1006", "the mask of Dropout is not supported in opset 6")
    return [node.input(0)]
