"""Hyperbolic sine and cosine and the inverse hyperbolic functions as vector code."""

import math as numbers

from xcompile.compiler.codegen.cpu.builder import Builder, Value
from xcompile.compiler.codegen.cpu.lanes import Lanes
from xcompile.compiler.codegen.cpu.math import half_exp, log, log1p
from xcompile.compiler.codegen.cpu.polynomials import POLYNOMIALS

_LARGE = {"f32": 2.0**14, "f64": 2.0**28}
"""From here on sqrt(x² ± 1) is x and x² does not overflow below it."""


def sinh(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The hyperbolic sine, at most 2 ulp."""
    m = Lanes(b, lanes, dtype)
    t = m.abs(x)
    half = half_exp(m, t)
    large = m.sub(half, m.div(m.const(0.25), half))
    u = m.at_most(t, 1.0)
    z = m.mul(u, u)
    small = m.fma(m.mul(u, z), m.polynomial(z, POLYNOMIALS["sinh", dtype]), u)
    return m.copysign(m.select(m.compare("ult", t, m.const(1.0)), small, large), x)


def cosh(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The hyperbolic cosine, at most 2 ulp."""
    m = Lanes(b, lanes, dtype)
    half = half_exp(m, m.abs(x))
    return m.add(half, m.div(m.const(0.25), half))


def asinh(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The inverse hyperbolic sine, at most 3 ulp: log(1 + t + t²/(1 + sqrt(1 + t²))) of t = |x|."""
    m = Lanes(b, lanes, dtype)
    one, t = m.const(1.0), m.abs(x)
    u = m.at_most(t, _LARGE[dtype])
    square = m.mul(u, u)
    root = m.unary("math.sqrt", m.fma(u, u, one))
    near = log1p(b, m.add(u, m.div(square, m.add(root, one))), lanes, dtype)
    return m.copysign(_or_log_of_twice(m, t, near), x)


def acosh(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The inverse hyperbolic cosine, at most 3 ulp; NaN below 1: log(1 + t + sqrt(2t + t²)) of t = x - 1."""
    m = Lanes(b, lanes, dtype)
    t = m.at_most(m.sub(x, m.const(1.0)), _LARGE[dtype])
    root = m.unary("math.sqrt", m.fma(t, t, m.add(t, t)))
    near = log1p(b, m.add(t, root), lanes, dtype)
    far = _or_log_of_twice(m, x, near)
    return m.select(m.compare("olt", x, m.const(1.0)), m.const(numbers.nan), far)


def _or_log_of_twice(m: Lanes, x: Value, near: Value) -> Value:
    """log(2x) where x is large, else `near`."""
    far = m.add(log(m.b, x, m.lanes, m.dtype), m.const(numbers.log(2)))
    return m.select(m.compare("oge", x, m.const(_LARGE[m.dtype])), far, near)


def atanh(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The inverse hyperbolic tangent, at most 3 ulp; infinite at -1 and 1, NaN beyond."""
    m = Lanes(b, lanes, dtype)
    one, t = m.const(1.0), m.abs(x)
    ratio = m.div(m.add(t, t), m.sub(one, t))
    value = m.mul(m.const(0.5), log1p(b, ratio, lanes, dtype))
    return m.copysign(m.select(m.compare("ogt", t, one), m.const(numbers.nan), value), x)
