"""One step of an optimizer: ai.onnx.preview.training."""

from collections.abc import Callable

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.binary import Pow
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import onnx_op

_DOMAIN = "ai.onnx.preview.training"
_Update = Callable[[list[Value]], tuple[Value, ...]]


def _for_each(node: NodeContext, kinds: int, update: _Update) -> list[Value]:
    """The outputs for all tensors: inputs after the first two and outputs are grouped by their kind."""
    count = (node.input_count - 2) // kinds
    if count < 1 or node.input_count != 2 + kinds * count:
        raise node.error("XC1011", f"{node.op_type} has {node.input_count} inputs")
    made = [
        update([node.input(2 + kind * count + i) for kind in range(kinds)]) for i in range(count)
    ]
    return [parts[kind] for kind in range(len(made[0])) for parts in made]


def _rate_and_step(node: NodeContext, c: Composition) -> tuple[Value, Value]:
    """The learning rate and the number of steps, in the type of the rate."""
    rate, step = (c.reshape(v, ()) if rank_of(v) else v for v in (node.input(0), node.input(1)))
    return rate, step


def _regularized(c: Composition, node: NodeContext, x: Value, g: Value) -> Value:
    return c.add(c.mul(x, node.attr("norm_coefficient", 0.0)), g)


@onnx_op("Adagrad", domain=_DOMAIN)
def adagrad(node: NodeContext) -> list[Value]:
    c = Composition(node)
    rate, step = _rate_and_step(node, c)
    decay = c.mul(c.cast(step, node.dtype(0)), node.attr("decay_factor", 0.0))
    rate = c.div(rate, c.add(decay, 1.0))

    def update(given: list[Value]) -> tuple[Value, ...]:
        x, g, h = given
        g = _regularized(c, node, x, g)
        summed = c.add(h, c.mul(g, g))
        adaptive = c.add(c.sqrt(summed), node.attr("epsilon", 1e-6))
        return c.sub(x, c.div(c.mul(rate, g), adaptive)), summed

    return _for_each(node, 3, update)


@onnx_op("Adam", domain=_DOMAIN)
def adam(node: NodeContext) -> list[Value]:
    c = Composition(node)
    alpha, beta = node.attr("alpha", 0.9), node.attr("beta", 0.999)
    rate, step = _rate_and_step(node, c)
    turns = c.cast(step, node.dtype(0))

    def bias(factor: float) -> Value:
        """1 - factor^steps."""
        return c.sub(1.0, c.binary(Pow, factor, turns))

    adjusted = c.div(c.mul(rate, c.sqrt(bias(beta))), bias(alpha))
    rate = c.where(c.greater(step, 0), adjusted, rate)

    def update(given: list[Value]) -> tuple[Value, ...]:
        x, g, v, h = given
        g = _regularized(c, node, x, g)
        v = c.add(c.mul(v, alpha), c.mul(g, 1 - alpha))
        h = c.add(c.mul(h, beta), c.mul(c.mul(g, 1 - beta), g))
        root = c.add(c.sqrt(h), node.attr("epsilon", 1e-6))
        moved = c.sub(x, c.div(c.mul(rate, v), root))
        return c.mul(moved, 1 - node.attr("norm_coefficient_post", 0.0)), v, h

    return _for_each(node, 4, update)


@onnx_op("Momentum", domain=_DOMAIN)
def momentum(node: NodeContext) -> list[Value]:
    c = Composition(node)
    rate, step = _rate_and_step(node, c)
    mode = node.attr("mode")
    if mode not in ("standard", "nesterov"):
        raise node.error("XC2007", f"the mode of Momentum is '{mode}'")
    one = c.constant(np.ones((), np.float32))
    factor = c.where(c.greater(step, 0), c.mul(one, node.attr("beta")), one)

    def update(given: list[Value]) -> tuple[Value, ...]:
        x, g, v = given
        g = _regularized(c, node, x, g)
        v = c.add(c.mul(v, node.attr("alpha")), c.mul(c.cast(factor, node.dtype(2)), g))
        direction = v if mode == "standard" else c.add(g, c.mul(v, node.attr("alpha")))
        return c.sub(x, c.mul(c.cast(rate, node.dtype(2)), direction)), v

    return _for_each(node, 3, update)
