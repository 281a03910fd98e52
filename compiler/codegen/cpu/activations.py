"""Activation functions of recurrent layers, on scalars and vectors alike: of an element and two parameters."""

from collections.abc import Callable
from typing import Any

from xcompile.compiler.codegen.cpu import math
from xcompile.compiler.codegen.cpu.builder import Value
from xcompile.compiler.codegen.cpu.elementwise import Scalars

Activation = Callable[[Scalars, Value, float, float], Value]


def _elu(s: Scalars, x: Value, a: float, b: float) -> Value:
    low = s.mul(s.const(a), s.call(math.expm1, s.minimum(x, s.const(0))))
    return s.select(s.compare("lt", x, s.const(0)), low, x)


def clip(s: Scalars, x: Value, low: float, high: float) -> Value:
    """`x` brought into [low, high]; NaN stays NaN."""
    return s.minimum(s.maximum(x, s.const(low)), s.const(high))


def _line(s: Scalars, x: Value, a: float, b: float) -> Value:
    return s.add(s.mul(s.const(a), x), s.const(b))


ACTIVATIONS: dict[str, Activation] = {
    "relu": lambda s, x, a, b: s.maximum(x, s.const(0)),
    "tanh": lambda s, x, a, b: s.call(math.tanh, x),
    "sigmoid": lambda s, x, a, b: s.call(math.sigmoid, x),
    "affine": _line,
    "leakyrelu": lambda s, x, a, b: s.select(
        s.compare("lt", x, s.const(0)), s.mul(s.const(a), x), x
    ),
    "thresholdedrelu": lambda s, x, a, b: s.select(s.compare("gt", x, s.const(a)), x, s.const(0)),
    "scaledtanh": lambda s, x, a, b: s.mul(s.const(a), s.call(math.tanh, s.mul(s.const(b), x))),
    "hardsigmoid": lambda s, x, a, b: clip(s, _line(s, x, a, b), 0, 1),
    "elu": _elu,
    "softsign": lambda s, x, a, b: s.div(x, s.add(s.const(1), s.op("math.absf", x))),
    "softplus": lambda s, x, a, b: s.call(math.softplus, x),
}
"""By name."""


def activate(s: Scalars, op: Any, direction: int, function: int, x: Value) -> Value:
    """One of the functions that a layer has for a direction, of a sum that is clipped first."""
    at = direction * op.FUNCTIONS + function
    if op.clip is not None:
        x = clip(s, x, -op.clip, op.clip)
    return ACTIVATIONS[op.activations[at]](s, x, op.alphas[at], op.betas[at])
