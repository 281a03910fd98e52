"""x^y as vector code: e^(y·log x) with the logarithm and the product in twice the precision."""

import math

from xcompile.compiler.codegen.cpu.builder import Builder, Value
from xcompile.compiler.codegen.cpu.lanes import Lanes
from xcompile.compiler.codegen.cpu.math import LN2, exp, exp_of_sum, log, split_mantissa, sqrt
from xcompile.compiler.codegen.cpu.polynomials import POLYNOMIALS

_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def pow(b: Builder, x: Value, y: Value, lanes: int, dtype: str = "f32") -> Value:
    """x^y with the special cases of C's pow: at most 0.6 ulp (f32), 3 ulp (f64).

    NaN for negative finite x and y not an integer; 1 for y = 0 and for x = 1, whatever the other is.
    """
    m = Lanes(b, lanes, dtype)
    magnitude = m.abs(x)
    if dtype == "f32":
        double = Lanes(b, lanes, "f64")
        product = double.mul(m.convert(y, "f64"), log(b, m.convert(magnitude, "f64"), lanes, "f64"))
        result = double.convert(exp(b, product, lanes, "f64"), "f32")
    else:
        result = _pow_double(m, magnitude, y)
    return _signs_and_special_cases(m, x, y, result)


def _pow_double(m: Lanes, x: Value, y: Value) -> Value:
    high, low = _log_pair(m, x)
    product = m.mul(y, high)
    rest = m.fma(y, low, m.fma(y, high, m.neg(product)))
    small = m.compare("olt", m.abs(product), m.const(1000.0))
    return exp_of_sum(m, product, m.select(small, rest, m.const(0.0)))


def _log_pair(m: Lanes, x: Value) -> tuple[Value, Value]:
    """The logarithm as an unevaluated sum, about 2^-65 relative; ±infinity and 0 at 0 and infinity."""
    e, t = split_mantissa(m, x)
    one = m.const(1.0)
    f, d = m.sub(t, one), m.add(t, one)
    d_low = m.sub(t, m.sub(d, one))
    s = m.div(f, d)
    s_low = m.div(m.sub(m.fma(m.neg(s), d, f), m.mul(s, d_low)), d)
    z = m.mul(s, s)
    z_low = m.fma(m.add(s, s), s_low, m.fma(s, s, m.neg(z)))
    # log t = 2s + s·z·p with p = 2/3 + z·tail.
    tail = m.mul(z, m.polynomial(z, POLYNOMIALS["pow", m.dtype]))
    p = m.add(m.const(_TWO_THIRDS[0]), tail)
    p_low = m.add(m.sub(tail, m.sub(p, m.const(_TWO_THIRDS[0]))), m.const(_TWO_THIRDS[1]))
    u, u_low = _product(m, (z, z_low), (p, p_low))
    w, w_low = _product(m, (s, s_low), (u, u_low))
    high, low = LN2["f64"]
    sum_high, rest = m.two_sum(m.mul(e, m.const(high)), m.add(s, s))
    result, again = m.two_sum(sum_high, w)
    small = m.add(m.add(s_low, s_low), m.fma(e, m.const(low), w_low))
    result_low = m.add(m.add(rest, again), small)
    regular = m.both(m.compare("olt", x, m.const(math.inf)), m.compare("ogt", x, m.const(0.0)))
    edge = m.select(m.compare("oeq", x, m.const(0.0)), m.const(-math.inf), x)
    return m.select(regular, result, edge), m.select(regular, result_low, m.const(0.0))


def _product(m: Lanes, a: tuple[Value, Value], b: tuple[Value, Value]) -> tuple[Value, Value]:
    high = m.mul(a[0], b[0])
    cross = m.fma(a[0], b[1], m.mul(a[1], b[0]))
    return high, m.add(m.fma(a[0], b[0], m.neg(high)), cross)


def _signs_and_special_cases(m: Lanes, x: Value, y: Value, result: Value) -> Value:
    zero, one = m.const(0.0), m.const(1.0)
    whole = m.compare("oeq", m.unary("math.floor", y), y)
    half = m.mul(y, m.const(0.5))
    odd = m.both(whole, m.compare("one", m.unary("math.floor", half), half))
    signed = m.select(odd, m.copysign(result, x), result)
    finite_negative = m.both(m.compare("olt", x, zero), m.compare("ogt", x, m.const(-math.inf)))
    not_whole = m.compare("one", m.unary("math.floor", y), y)
    signed = m.select(m.both(finite_negative, not_whole), m.const(math.nan), signed)
    infinite = m.compare("oeq", m.abs(y), m.const(math.inf))
    unit = m.both(m.compare("oeq", m.abs(x), one), infinite)
    always_one = m.either(m.compare("oeq", y, zero), m.compare("oeq", x, one))
    return m.select(m.either(always_one, unit), one, signed)


def power_of(b: Builder, x: Value, p: int, lanes: int, dtype: str = "f32") -> Value:
    """x^p for x of at least 0 and a whole p of at least 1."""
    m = Lanes(b, lanes, dtype)
    if p > 3:
        return pow(b, x, m.const(p), lanes, dtype)
    result = x
    for _ in range(p - 1):
        result = m.mul(result, x)
    return result


def root_of(b: Builder, x: Value, p: int, lanes: int, dtype: str = "f32") -> Value:
    """The p-th root of x of at least 0."""
    if p == 1:
        return x
    if p == 2:
        return sqrt(b, x, lanes, dtype)
    return pow(b, x, Lanes(b, lanes, dtype).const(1 / p), lanes, dtype)
