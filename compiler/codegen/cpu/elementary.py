"""The elementary functions of the elementwise emitters, by name."""

from collections.abc import Callable

from xcompile.compiler.codegen.cpu import hyperbolic, math, power, remainder, trig
from xcompile.compiler.codegen.cpu.builder import Builder, Value

MATH: dict[str, Callable[[Builder, Value, int, str], Value]] = {
    "abs": math.absolute,
    "acos": trig.acos,
    "acosh": hyperbolic.acosh,
    "asin": trig.asin,
    "asinh": hyperbolic.asinh,
    "atan": trig.atan,
    "atanh": hyperbolic.atanh,
    "ceil": math.ceil,
    "cos": trig.cos,
    "cosh": hyperbolic.cosh,
    "erf": math.erf,
    "exp": math.exp,
    "exp_nonpositive": math.exp_nonpositive,
    "expm1": math.expm1,
    "floor": math.floor,
    "gelu": math.gelu,
    "gelu_tanh": math.gelu_tanh,
    "log": math.log,
    "log1p": math.log1p,
    "mish": math.mish,
    "neg": math.negate,
    "reciprocal": math.reciprocal,
    "relu": math.relu,
    "round_even": math.round_even,
    "rsqrt": math.rsqrt,
    "sigmoid": math.sigmoid,
    "sign": math.sign,
    "silu": math.silu,
    "sin": trig.sin,
    "sinh": hyperbolic.sinh,
    "softplus": math.softplus,
    "sqrt": math.sqrt,
    "tan": trig.tan,
    "tanh": math.tanh,
}
"""Functions of one operand: `MATH["exp"](b, x, lanes, dtype)` with dtype "f32" or "f64"."""

BINARY_MATH: dict[str, Callable[[Builder, Value, Value, int, str], Value]] = {
    "fmod": remainder.fmod, "maximum": math.maximum, "minimum": math.minimum, "pow": power.pow,
}  # fmt: skip
"""Functions of two operands: `BINARY_MATH["pow"](b, x, y, lanes, dtype)`."""
