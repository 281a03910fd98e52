"""Sine and cosine as vector code.

The argument is reduced in double precision for both float types, by pi/2 in three parts and FMA, which is exact
enough for |x| < 2^45. Beyond that neighbouring f32 values are more than 2^21 turns apart; the result is NaN there.
"""

import math

from xcompile.compiler.codegen.cpu.builder import Builder, Value
from xcompile.compiler.codegen.cpu.lanes import Lanes
from xcompile.compiler.codegen.cpu.polynomials import POLYNOMIALS

_HALF_PI = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_ROUNDER = 1.5 * 2.0**52
REDUCTION_LIMIT = 2.0**45
"""Sine and cosine of larger arguments are NaN."""


def _reduce(b: Builder, x: Value, lanes: int, dtype: str) -> tuple[Value, Value, Value]:
    """Split x = n·pi/2 + r + s with |r| <= pi/4: n as an i64, r and a tiny s as f64; NaN beyond the limit."""
    m = Lanes(b, lanes, "f64")
    wide = Lanes(b, lanes, dtype).convert(x, "f64")
    beyond = m.compare("oge", m.abs(wide), m.const(REDUCTION_LIMIT))
    wide = m.select(beyond, m.const(math.nan), wide)
    rounder = m.const(_ROUNDER)
    shifted = m.fma(wide, m.const(2 / math.pi), rounder)
    n = m.neg(m.sub(shifted, rounder))
    first = m.fma(n, m.const(_HALF_PI[0]), wide)
    second = m.mul(n, m.const(_HALF_PI[1]))
    lost = m.fma(n, m.const(_HALF_PI[1]), m.neg(second))
    r, s = m.two_sum(first, second)
    return m.bits(shifted), r, m.add(s, m.fma(n, m.const(_HALF_PI[2]), lost))


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


def _wave(b: Builder, x: Value, lanes: int, dtype: str, quarter: int) -> Value:
    n, wide_r, wide_s = _reduce(b, x, lanes, dtype)
    double, m = Lanes(b, lanes, "f64"), Lanes(b, lanes, dtype)
    r, s = double.convert(wide_r, dtype), wide_s
    if dtype == "f32":
        s = double.convert(double.sub(wide_r, m.convert(r, "f64")), "f32")
    sine, cosine = _quarter_waves(m, r, s)
    turn = double.int_op("arith.addi", n, double.int_const(quarter))

    def flag(bit: int) -> Value:
        masked = double.int_op("arith.andi", turn, double.int_const(bit))
        kind = f"vector<{lanes}xi64>" if lanes else "i64"
        return b.op(f"arith.cmpi ne, {masked}, {double.int_const(0)} : {kind}")

    value = m.select(flag(1), cosine, sine)
    value = m.select(flag(2), m.neg(value), value)
    if quarter == 0:  # keeps the sign of zero, which r + s loses
        return m.select(m.compare("oeq", x, m.const(0.0)), x, value)
    return value


def sin(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The sine of x radians, at most 1.5 ulp for |x| < 2^45, NaN beyond."""
    return _wave(b, x, lanes, dtype, 0)


def cos(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The cosine of x radians, at most 1.5 ulp for |x| < 2^45, NaN beyond."""
    return _wave(b, x, lanes, dtype, 1)
