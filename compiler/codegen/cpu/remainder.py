"""The exact remainder of floats as vector code."""

import math as numbers

from xcompile.compiler.codegen.cpu.builder import Builder, Value, vector_type
from xcompile.compiler.codegen.cpu.lanes import BIAS, MANTISSA, Lanes

_STEP = 50
"""Bits of the quotient taken off in one step of the loop."""


def fmod(b: Builder, x: Value, y: Value, lanes: int, dtype: str = "f32") -> Value:
    """The exact x - y·trunc(x/y), with the sign of x. ONNX Mod with fmod = 1.

    NaN when y is 0 or x infinite; x when y is infinite. Multiples of y·2^s are taken off from the largest
    s down, `_STEP` bits of the quotient at a time, in double precision; most numbers need one step.
    """
    outer, m = Lanes(b, lanes, dtype), Lanes(b, lanes, "f64")
    wide_x, wide_y = outer.convert(x, "f64"), outer.convert(y, "f64")
    top, divisor = m.abs(wide_x), m.abs(wide_y)
    infinity = m.const(numbers.inf)
    undefined = m.either(m.compare("oeq", divisor, m.const(0.0)), m.compare("oeq", top, infinity))
    undefined = m.either(undefined, m.compare("uno", top, divisor))
    top = m.select(undefined, m.const(0.0), top)
    divisor = m.select(undefined, m.const(1.0), divisor)
    whole = m.compare("oeq", divisor, infinity)  # x itself is the remainder
    rest = m.select(whole, m.const(0.0), top)
    divisor = m.select(whole, m.const(1.0), divisor)

    steps = _steps(m, m.int_op("arith.subi", _exponent(m, rest), _exponent(m, divisor)))
    kind = vector_type(lanes, "f64")
    (rest,) = b.reduce(0, steps, 1, [rest], [kind], lambda _, r: [_reduce(m, r[0], divisor)])
    rest = m.copysign(m.select(whole, top, rest), wide_x)
    return m.convert(m.select(undefined, m.const(numbers.nan), rest), dtype)


def _exponent(m: Lanes, x: Value) -> Value:
    """The exponent of a finite x >= 0, denormals too, as an integer; least for 0."""
    shift = MANTISSA["f64"] + 1
    denormal = m.compare("olt", x, m.const(2.0 ** (1 - BIAS["f64"])))
    scaled = m.select(denormal, m.mul(x, m.const(2.0**shift)), x)
    biased = m.int_op("arith.shrui", m.bits(scaled), m.int_const(MANTISSA["f64"]))
    less = m.select(denormal, m.int_const(shift), m.int_const(0), "i64")
    return m.int_op("arith.subi", biased, less)


def _steps(m: Lanes, distance: Value) -> Value:
    """Steps that reduce all lanes, whose exponents are `distance` apart, as an index."""
    b, most = m.b, distance
    if m.lanes:
        most = b.op(f"vector.reduction <maxsi>, {distance} : vector<{m.lanes}xi64> into i64")
    scalar = Lanes(b, 0, "f64")
    most = scalar.int_op("arith.maxsi", most, scalar.int_const(0))
    count = scalar.int_op("arith.divui", most, scalar.int_const(_STEP))
    return b.op(
        f"arith.index_cast {scalar.int_op('arith.addi', count, scalar.int_const(2))} : i64 to index"
    )


def _reduce(m: Lanes, rest: Value, divisor: Value) -> Value:
    """Take a multiple of divisor·2^s off, which leaves less than divisor·2^s."""
    distance = m.int_op("arith.subi", _exponent(m, rest), _exponent(m, divisor))
    power = m.int_op("arith.subi", distance, m.int_const(_STEP))
    power = m.int_op("arith.maxsi", power, m.int_const(0))
    power = m.int_op("arith.minsi", power, m.int_const(2 * BIAS["f64"]))
    scaled = m.scale(divisor, power)
    quotient = m.unary("math.trunc", m.div(rest, scaled))
    rest = m.fma(m.neg(quotient), scaled, rest)  # exact; the quotient may be one off
    below = m.compare("olt", rest, m.const(0.0))
    rest = m.select(below, m.add(rest, scaled), rest)
    return m.select(m.compare("oge", rest, scaled), m.sub(rest, scaled), rest)
