"""Sine, cosine, tangent and their inverses as vector code.

The argument of the first three is reduced in double precision for both float types, by pi/2 in three parts and FMA,
which is exact enough for |x| < 2^45; beyond that `reduction_by_pi` does it with integers.
"""

import math

from xcompile.compiler.codegen.cpu.builder import Builder, Value, vector_type
from xcompile.compiler.codegen.cpu.lanes import Lanes
from xcompile.compiler.codegen.cpu.polynomials import POLYNOMIALS
from xcompile.compiler.codegen.cpu.reduction_by_pi import reduce_huge

_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_ROUNDER = 1.5 * 2.0**52
_LIMIT = 2.0**45
"""From here on pi/2 in three parts is not enough."""


def _reduce(b: Builder, x: Value, lanes: int, dtype: str) -> tuple[Value, Value, Value]:
    """Split x = n·pi/2 + r + s with |r| <= pi/4: n as an i64, r and a tiny s as f64; NaN for infinities."""
    m = Lanes(b, lanes, "f64")
    wide = Lanes(b, lanes, dtype).convert(x, "f64")
    rounder = m.const(_ROUNDER)
    shifted = m.fma(wide, m.const(2 / math.pi), rounder)
    n = m.neg(m.sub(shifted, rounder))
    first = m.fma(n, m.const(_HALF_PI[0]), wide)
    second = m.mul(n, m.const(_HALF_PI[1]))
    lost = m.fma(n, m.const(_HALF_PI[1]), m.neg(second))
    r, s = m.two_sum(first, second)
    parts = [m.bits(shifted), r, m.add(s, m.fma(n, m.const(_HALF_PI[2]), lost))]
    turns, r, s = reduce_huge(b, wide, parts, _LIMIT, lanes)
    return turns, r, s


def _quarter_waves(m: Lanes, r: Value, s: Value) -> tuple[Value, Value]:
    """sin(r + s) and cos(r + s) for |r| <= pi/4 and a tiny s."""
    z = m.mul(r, r)
    half = m.mul(z, m.const(0.5))
    cosine_tail = m.mul(m.mul(z, z), m.polynomial(z, POLYNOMIALS["cos", m.dtype]))
    # 1 - z/2 rounded, plus what the rounding lost.
    rounded = m.sub(m.const(1.0), half)
    lost = m.sub(m.sub(m.const(1.0), rounded), half)
    cosine = m.add(rounded, m.add(lost, m.sub(cosine_tail, m.mul(r, s))))
    sine_tail = m.mul(m.mul(z, r), m.polynomial(z, POLYNOMIALS["sin", m.dtype]))
    sine = m.add(r, m.fma(s, rounded, sine_tail))
    return sine, cosine


def _turned_waves(b: Builder, x: Value, lanes: int, dtype: str) -> tuple[Value, Value, Value]:
    """The quarter waves of the reduced argument and the number of quarter turns, an i64."""
    n, wide_r, wide_s = _reduce(b, x, lanes, dtype)
    double, m = Lanes(b, lanes, "f64"), Lanes(b, lanes, dtype)
    r, s = double.convert(wide_r, dtype), wide_s
    if dtype == "f32":
        s = double.convert(double.sub(wide_r, m.convert(r, "f64")), "f32")
    return (*_quarter_waves(m, r, s), n)


def _has_bit(b: Builder, n: Value, lanes: int, bit: int) -> Value:
    double = Lanes(b, lanes, "f64")
    masked = double.int_op("arith.andi", n, double.int_const(bit))
    return b.op(f"arith.cmpi ne, {masked}, {double.int_const(0)} : {vector_type(lanes, 'i64')}")


def _wave(b: Builder, x: Value, lanes: int, dtype: str, quarter: int) -> Value:
    m, double = Lanes(b, lanes, dtype), Lanes(b, lanes, "f64")
    sine, cosine, n = _turned_waves(b, x, lanes, dtype)
    turn = double.int_op("arith.addi", n, double.int_const(quarter))
    value = m.select(_has_bit(b, turn, lanes, 1), cosine, sine)
    value = m.select(_has_bit(b, turn, lanes, 2), m.neg(value), value)
    if quarter == 0:  # keeps the sign of zero, which r + s loses
        return m.select(m.compare("oeq", x, m.const(0.0)), x, value)
    return value


def sin(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The sine of x radians, at most 1 ulp."""
    return _wave(b, x, lanes, dtype, 0)


def cos(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The cosine of x radians, at most 1 ulp."""
    return _wave(b, x, lanes, dtype, 1)


def tan(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The tangent of x radians, at most 2.5 ulp."""
    m = Lanes(b, lanes, dtype)
    sine, cosine, n = _turned_waves(b, x, lanes, dtype)
    odd = _has_bit(b, n, lanes, 1)
    value = m.div(m.select(odd, m.neg(cosine), sine), m.select(odd, sine, cosine))
    return m.select(m.compare("oeq", x, m.const(0.0)), x, value)


def atan(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The inverse tangent, at most 2.5 ulp."""
    m = Lanes(b, lanes, dtype)
    one, t = m.const(1.0), m.abs(x)
    steep = m.compare("ogt", t, m.const(math.tan(3 * math.pi / 8)))
    middle = m.compare("ogt", t, m.const(math.tan(math.pi / 8)))
    above = m.select(steep, m.const(-1.0), m.select(middle, m.sub(t, one), t))
    below = m.select(steep, t, m.select(middle, m.add(t, one), one))
    u = m.div(above, below)
    z = m.mul(u, u)
    small = m.fma(m.mul(u, z), m.polynomial(z, POLYNOMIALS["atan", dtype]), u)
    head, tail = _pi_parts(m, 0.5)
    quarter, rest = _pi_parts(m, 0.25)
    zero = m.const(0.0)
    base = m.select(steep, head, m.select(middle, quarter, zero))
    low = m.select(steep, tail, m.select(middle, rest, zero))
    return m.copysign(m.add(base, m.add(small, low)), x)


def _pi_parts(m: Lanes, factor: float) -> tuple[Value, Value]:
    """A multiple of pi by a power of two in two parts."""
    if m.dtype == "f64":
        return m.const(2 * factor * _HALF_PI[0]), m.const(2 * factor * _HALF_PI[1])
    head, tail = 3.1415927410125732, -8.742277657347586e-08
    return m.const(factor * head), m.const(factor * tail)


def _asin_small(m: Lanes, x: Value, z: Value) -> Value:
    """asin(x) for |x| <= 1/2 and z = x²."""
    return m.fma(m.mul(x, z), m.polynomial(z, POLYNOMIALS["asin", m.dtype]), x)


def _asin_parts(m: Lanes, x: Value) -> tuple[Value, Value]:
    """Whether |x| > 1/2, and asin of |x| or, there, of sqrt((1 - |x|)/2); NaN outside [-1, 1]."""
    t = m.abs(x)
    large = m.compare("ogt", t, m.const(0.5))
    half = m.mul(m.sub(m.const(1.0), t), m.const(0.5))
    z = m.select(large, half, m.mul(t, t))
    return large, _asin_small(m, m.select(large, m.unary("math.sqrt", half), t), z)


def asin(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The inverse sine, at most 2.5 ulp; NaN outside [-1, 1]."""
    m = Lanes(b, lanes, dtype)
    large, part = _asin_parts(m, x)
    head, tail = _pi_parts(m, 0.5)
    far = m.sub(head, m.sub(m.add(part, part), tail))
    return m.copysign(m.select(large, far, part), x)


def acos(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The inverse cosine, at most 2.5 ulp; NaN outside [-1, 1]."""
    m = Lanes(b, lanes, dtype)
    large, part = _asin_parts(m, x)
    head, tail = _pi_parts(m, 0.5)
    whole, rest = _pi_parts(m, 1.0)
    twice, negative = m.add(part, part), m.compare("olt", x, m.const(0.0))
    far = m.select(negative, m.sub(whole, m.sub(twice, rest)), twice)
    near = m.sub(head, m.sub(m.copysign(part, x), tail))
    return m.select(large, far, near)
