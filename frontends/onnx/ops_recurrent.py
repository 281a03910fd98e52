"""RNN, GRU and LSTM."""

from typing import Any

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.recurrent import Gru, Lstm, Recurrent, Rnn
from xcompile.dialects.nn.reshape import Transpose
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_conv import static_sizes
from xcompile.frontends.onnx.registry import onnx_op

_DEFAULTS: dict[str, tuple[float, float]] = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, 0.0),
    "thresholdedrelu": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, 0.0),
}
"""Alpha and beta of the activations that have parameters."""

_WITH_BETA = ("affine", "scaledtanh", "hardsigmoid")


@onnx_op("RNN")
def rnn(node: NodeContext) -> list[Value]:
    return _layer(node, Rnn, ("tanh",))


@onnx_op("GRU")
def gru(node: NodeContext) -> list[Value]:
    linear = bool(node.attr("linear_before_reset", 0))
    return _layer(node, Gru, ("sigmoid", "tanh"), linear_before_reset=linear)


@onnx_op("LSTM")
def lstm(node: NodeContext) -> list[Value]:
    return _layer(
        node,
        Lstm,
        ("sigmoid", "tanh", "tanh"),
        initial_c=_state(node, 6),
        peephole=node.optional(7),
        input_forget=bool(node.attr("input_forget", 0)),
    )


def _layer(
    node: NodeContext, cls: type[Recurrent], activations: tuple[str, ...], **fields: Any
) -> list[Value]:
    """The layer; with layout 1 the batch is the first axis of inputs, results and states."""
    x, batch_first = node.input(0), node.attr("layout", 0) == 1
    if node.rank(0) != 3 or node.rank(2) != 3:
        raise node.error("XC2003", f"{node.op_type} of an input of rank {node.rank(0)}, not 3")
    hidden = node.attr("hidden_size", static_sizes(node.input(2))[2])
    if hidden is None:
        raise node.error("XC2010", f"{node.op_type} needs hidden_size or weights of known shape")
    direction = node.attr("direction", "forward")
    made = node.make(
        cls,
        x=node.make(Transpose, x=x, perm=(1, 0, 2)).y if batch_first else x,
        w=node.input(1),
        r=node.input(2),
        bias=node.optional(3),
        lengths=node.optional(4),
        initial_h=_state(node, 5),
        hidden=hidden,
        direction=direction,
        clip=node.attr("clip", None),
        **activations_of(node, activations * (2 if direction == "bidirectional" else 1)),
        **fields,
    )
    y, *states = made.results
    if batch_first:
        y = node.make(Transpose, x=y, perm=(2, 0, 1, 3)).y
        states = [node.make(Transpose, x=s, perm=(1, 0, 2)).y for s in states]
    return [y, *states]


def _state(node: NodeContext, index: int) -> Value | None:
    """An initial state as [directions, batch, hidden]."""
    value = node.optional(index)
    if value is None or node.attr("layout", 0) != 1:
        return value
    if node.rank(index) != 3:
        raise node.error("XC2003", f"a state of {node.op_type} has rank {node.rank(index)}, not 3")
    return node.make(Transpose, x=value, perm=(1, 0, 2)).y


def activations_of(node: NodeContext, defaults: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
    """Names and parameters; given parameters belong in order to the functions that have any."""
    names = tuple(name.lower() for name in node.attr("activations", defaults))
    given_alphas = list(node.attr("activation_alpha", ()))
    given_betas = list(node.attr("activation_beta", ()))
    alphas, betas = [], []
    for name in names:
        alpha, beta = _DEFAULTS.get(name, (0.0, 0.0))
        alphas.append(given_alphas.pop(0) if name in _DEFAULTS and given_alphas else alpha)
        betas.append(given_betas.pop(0) if name in _WITH_BETA and given_betas else beta)
    return {"activations": names, "alphas": tuple(alphas), "betas": tuple(betas)}
