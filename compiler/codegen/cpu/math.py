"""Elementary functions as vector code: our own polynomials, no calls.

Every function takes the Builder, its operands, the number of lanes (0: a scalar) and the float type, "f32" or
"f64". Errors are stated in units in the last place of the result over the whole range of the type, as
measured by bench/accuracy.py (docs/accuracy.md has the table). NaN gives NaN, infinities, signed zeros and
denormals are handled, and nothing but IEEE arithmetic and FMA is used, so that all targets with FMA agree
to the last bit.
"""

import math

from xcompile.compiler.codegen.cpu.builder import Builder, Value
from xcompile.compiler.codegen.cpu.lanes import BIAS, MANTISSA, Lanes
from xcompile.compiler.codegen.cpu.polynomials import POLYNOMIALS

LN2 = {
    "f32": (0.693359375, -2.1219444005469057e-4),
    "f64": (6.93147180369123816490e-01, 1.90821492927058770002e-10),
}
"""ln 2 in two parts; the first has so few bits that its multiples by exponents are exact."""

_ROUNDER = {"f32": 1.5 * 2.0**23, "f64": 1.5 * 2.0**52}
"""Adding it to a small number leaves the nearest integer in the low bits."""


def _split_exponent(m: Lanes, x: Value) -> tuple[Value, Value]:
    """The integer n and r of x = n·ln 2 + r with |r| <= ln 2 / 2."""
    rounder = m.const(_ROUNDER[m.dtype])
    shifted = m.fma(x, m.const(1 / math.log(2)), rounder)
    n = m.sub(shifted, rounder)
    high, low = LN2[m.dtype]
    r = m.fma(n, m.const(-low), m.fma(n, m.const(-high), x))
    return m.int_op("arith.subi", m.bits(shifted), m.bits(rounder)), r


def _expm1_reduced(m: Lanes, r: Value) -> Value:
    """e^r - 1 for |r| <= ln 2 / 2."""
    return m.fma(m.polynomial(r, POLYNOMIALS["exp", m.dtype]), m.mul(r, r), r)


def exp(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """e^x, at most 1.05 ulp. Below the smallest denormal 0, above the largest number infinity."""
    m = Lanes(b, lanes, dtype)
    return exp_of_sum(m, x, None)


def exp_of_sum(m: Lanes, x: Value, rest: Value | None) -> Value:
    """e^(x + rest), where rest is less than an ulp of x or None."""
    low, high = (-104.0, 89.0) if m.dtype == "f32" else (-746.0, 710.0)
    n, r = _split_exponent(m, m.at_most(m.at_least(x, low), high))
    r = m.add(r, rest) if rest else r
    return m.scale(m.add(_expm1_reduced(m, r), m.const(1.0)), n)


def half_exp(m: Lanes, x: Value) -> Value:
    """e^x / 2 for x >= 0, which is finite a little longer than e^x."""
    n, r = _split_exponent(m, m.at_most(x, 90.0 if m.dtype == "f32" else 711.0))
    return m.scale(
        m.add(_expm1_reduced(m, r), m.const(1.0)), m.int_op("arith.subi", n, m.int_const(1))
    )


def exp_nonpositive(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """e^x for x <= 0, at most 1.05 ulp; 0 where e^x is a denormal. Cheaper than `exp`, for softmax."""
    m = Lanes(b, lanes, dtype)
    bias = BIAS[dtype]
    # At the lower end n is -bias, and the bits of 2^n are those of 0.
    n, r = _split_exponent(m, m.at_least(x, -bias * math.log(2)))
    return m.mul(m.add(_expm1_reduced(m, r), m.const(1.0)), m.power_of_two(n))


def expm1(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """e^x - 1, at most 2 ulp, also near 0."""
    m = Lanes(b, lanes, dtype)
    low, high = (-20.0, 89.0) if dtype == "f32" else (-40.0, 710.0)
    n, r = _split_exponent(m, m.at_most(m.at_least(x, low), high))
    # 2^n may be infinite where the result is not: scale by 2^(n-1), then double.
    power = m.power_of_two(m.int_op("arith.subi", n, m.int_const(1)))
    half = m.fma(power, _expm1_reduced(m, r), m.sub(power, m.const(0.5)))
    result = m.add(half, half)
    tiny = m.compare("olt", m.abs(x), m.const(2.0**-30 if dtype == "f32" else 2.0**-60))
    return m.select(tiny, x, result)


def split_mantissa(m: Lanes, x: Value) -> tuple[Value, Value]:
    """The float e and t of x = 2^e·t with sqrt(1/2) <= t < sqrt(2), for positive finite x."""
    bits, bias = MANTISSA[m.dtype], BIAS[m.dtype]
    denormal = m.compare("olt", x, m.const(2.0 ** (1 - bias)))
    scaled = m.select(denormal, m.mul(x, m.const(2.0**bits)), x)
    # Count exponents from sqrt(1/2): subtract its bits, shift, put them back under the rest.
    root = m.bits(m.const(math.sqrt(0.5)))
    above = m.int_op("arith.subi", m.bits(scaled), root)
    e = m.int_op("arith.shrsi", above, m.int_const(bits))
    shifted = m.int_op("arith.shli", e, m.int_const(bits))
    t = m.from_bits(m.int_op("arith.subi", m.bits(scaled), shifted))
    less = m.select(denormal, m.int_const(bits), m.int_const(0), m.integer)
    return m.to_float(m.int_op("arith.subi", e, less)), t


def _special_log(m: Lanes, x: Value, result: Value) -> Value:
    """The results of a logarithm at infinity, 0, below 0 and NaN."""
    infinity = m.const(math.inf)
    result = m.select(m.compare("oeq", x, infinity), infinity, result)
    result = m.select(m.compare("oeq", x, m.const(0.0)), m.const(-math.inf), result)
    positive = m.compare("uge", x, m.const(0.0))
    result = m.select(m.compare("uno", x, x), x, result)
    return m.select(positive, result, m.const(math.nan))


def log(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The natural logarithm, at most 1 ulp. -infinity at 0, NaN below."""
    m = Lanes(b, lanes, dtype)
    e, t = split_mantissa(m, x)
    f = m.sub(t, m.const(1.0))
    s = m.div(f, m.add(f, m.const(2.0)))
    z = m.mul(s, s)
    tail = m.mul(z, m.polynomial(z, POLYNOMIALS["log", dtype]))
    half = m.mul(m.mul(f, m.const(0.5)), f)
    # log(1 + f) = f - (f²/2 - s·(f²/2 + tail)), the large terms last.
    high, low = LN2[dtype]
    inner = m.fma(s, m.add(half, tail), m.mul(e, m.const(low)))
    result = m.fma(e, m.const(high), m.sub(f, m.sub(half, inner)))
    return _special_log(m, x, result)


def log1p(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """log(1 + x), at most 2 ulp, also near 0."""
    m = Lanes(b, lanes, dtype)
    one = m.const(1.0)
    total = m.add(one, x)
    lost = m.sub(x, m.sub(total, one))
    result = m.add(log(b, total, lanes, dtype), m.div(lost, total))
    special = m.either(m.compare("oeq", x, m.const(math.inf)), m.compare("ole", x, m.const(-1.0)))
    result = m.select(special, log(b, total, lanes, dtype), result)
    return m.select(m.compare("oeq", total, one), x, result)


def _expm1_positive(m: Lanes, x: Value) -> Value:
    """e^x - 1 for 0 <= x <= 40, relative precision also near 0."""
    n, r = _split_exponent(m, x)
    power = m.power_of_two(n)
    return m.fma(power, _expm1_reduced(m, r), m.sub(power, m.const(1.0)))


def tanh(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The hyperbolic tangent, at most 2.5 ulp: with t = e^2|x| - 1 it is t / (t + 2)."""
    m = Lanes(b, lanes, dtype)
    magnitude = m.at_most(m.abs(x), 10.0 if dtype == "f32" else 20.0)
    t = _expm1_positive(m, m.add(magnitude, magnitude))
    return m.copysign(m.div(t, m.add(t, m.const(2.0))), x)


def sigmoid(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """1 / (1 + e^-x), at most 2.5 ulp, also where the result is tiny."""
    m = Lanes(b, lanes, dtype)
    power = exp(b, m.neg(m.abs(x)), lanes, dtype)
    one = m.const(1.0)
    above = m.select(m.compare("oge", x, m.const(0.0)), one, power)
    return m.div(above, m.add(one, power))


def silu(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """x·sigmoid(x), at most 3.5 ulp above -80, where e^x is no denormal. NaN at -infinity, as the formula says."""
    return Lanes(b, lanes, dtype).mul(x, sigmoid(b, x, lanes, dtype))


def _erfc_large(m: Lanes, t: Value) -> Value:
    """erfc(t) for 1 <= t <= 6, as e^(-t·Q(t)): a few ulp near 1, relative error 4e-6 (f32) at 6."""
    q = m.polynomial(m.sub(t, m.const(3.0)), POLYNOMIALS["erfc", m.dtype])
    return exp_nonpositive(m.b, m.neg(m.mul(t, q)), m.lanes, m.dtype)


def _erf_small(m: Lanes, t: Value) -> Value:
    """erf(t) for |t| <= 1."""
    return m.fma(t, m.polynomial(m.mul(t, t), POLYNOMIALS["erf", m.dtype]), t)


def erf(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The error function, at most 2 ulp."""
    m = Lanes(b, lanes, dtype)
    magnitude = m.at_most(m.abs(x), 6.0)
    one = m.const(1.0)
    large = m.sub(one, _erfc_large(m, m.at_least(magnitude, 1.0)))
    small = _erf_small(m, magnitude)
    return m.copysign(m.select(m.compare("ult", magnitude, one), small, large), x)


def gelu(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """x/2·(1 + erf(x/sqrt(2))), the exact form.

    At most 4 ulp above -1, where 1 + erf does not cancel; below, erfc is computed directly: at most 5e-6 relative
    (f32; f64: 8e-15) down to -8.4 and 0 (1e-16 absolute) beyond. NaN at -infinity, as the formula says.
    """
    m = Lanes(b, lanes, dtype)
    limit = 6 * math.sqrt(2)
    magnitude = m.abs(x)
    v = m.at_most(magnitude, limit)
    tail = m.polynomial(m.sub(v, m.const(3.5)), POLYNOMIALS["normal", dtype])
    complement = _power_of_half(m, m.mul(v, tail))  # erfc(v / sqrt(2))
    complement = m.select(m.compare("ogt", magnitude, m.const(limit)), m.const(0.0), complement)
    below = m.compare("olt", x, m.const(0.0))
    factor = m.select(below, complement, m.sub(m.const(2.0), complement))
    return m.mul(m.mul(x, m.const(0.5)), factor)


def _power_of_half(m: Lanes, x: Value) -> Value:
    """2^-x for x >= 0 of which the result is a normal number."""
    rounder = m.const(_ROUNDER[m.dtype])
    shifted = m.sub(rounder, x)
    n = m.sub(shifted, rounder)
    r = m.neg(m.add(x, n))
    part = m.fma(r, m.polynomial(r, POLYNOMIALS["exp2", m.dtype]), m.const(1.0))
    # The low bits of `shifted` are n, those of the rounder are 0: the shift leaves n in the place of the exponent.
    exponent = m.int_op("arith.shli", m.bits(shifted), m.int_const(MANTISSA[m.dtype]))
    return m.from_bits(m.int_op("arith.addi", m.bits(part), exponent))


def gelu_tanh(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """x/2·(1 + tanh(sqrt(2/pi)·(x + 0.044715·x³))), computed as x·sigmoid of twice the argument.

    At most 4 ulp above -1; the relative error grows as the result vanishes below, the absolute one does not.
    """
    m = Lanes(b, lanes, dtype)
    scale = 2 * math.sqrt(2 / math.pi)
    inner = m.fma(m.mul(x, x), m.const(0.044715 * scale), m.const(scale))
    return m.mul(x, sigmoid(b, m.mul(x, inner), lanes, dtype))


def softplus(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """log(1 + e^x), at most 3 ulp: max(x, 0) + 2·atanh(p / (2 + p)) with p = e^-|x|."""
    m = Lanes(b, lanes, dtype)
    power = exp(b, m.neg(m.abs(x)), lanes, dtype)
    s = m.div(power, m.add(power, m.const(2.0)))
    z = m.mul(s, s)
    odd = m.fma(m.mul(s, z), m.polynomial(z, POLYNOMIALS["atanh", dtype]), m.add(s, s))
    return m.add(m.at_least(x, 0.0), odd)


def mish(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """x·tanh(softplus(x)), at most 4 ulp: with p = e^x and q = p·(p + 2) it is x·q / (q + 2).

    The bound holds above -80, where e^x is no denormal. NaN at -infinity, as the formula says.
    """
    m = Lanes(b, lanes, dtype)
    power = exp(b, m.at_most(x, 30.0), lanes, dtype)
    q = m.mul(power, m.add(power, m.const(2.0)))
    return m.mul(x, m.div(q, m.add(q, m.const(2.0))))


def sqrt(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The square root, correctly rounded."""
    return Lanes(b, lanes, dtype).unary("math.sqrt", x)


def rsqrt(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """1 / sqrt(x), at most 1.5 ulp."""
    return reciprocal(b, sqrt(b, x, lanes, dtype), lanes, dtype)


def reciprocal(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """1 / x, correctly rounded."""
    m = Lanes(b, lanes, dtype)
    return m.div(m.const(1.0), x)


def floor(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The largest integer not above x."""
    return Lanes(b, lanes, dtype).unary("math.floor", x)


def ceil(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The smallest integer not below x."""
    return Lanes(b, lanes, dtype).unary("math.ceil", x)


def round_even(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The nearest integer, ties to even. ONNX Round."""
    return Lanes(b, lanes, dtype).unary("math.roundeven", x)


def absolute(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """|x|."""
    return Lanes(b, lanes, dtype).abs(x)


def negate(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """-x."""
    return Lanes(b, lanes, dtype).neg(x)


def sign(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """-1, 0 or 1; a zero keeps its sign and NaN stays NaN."""
    m = Lanes(b, lanes, dtype)
    unit = m.copysign(m.const(1.0), x)
    return m.select(m.compare("one", x, m.const(0.0)), unit, x)


def relu(b: Builder, x: Value, lanes: int, dtype: str = "f32") -> Value:
    """The larger of x and 0; NaN stays NaN. One instruction on x86."""
    return Lanes(b, lanes, dtype).at_least(x, 0.0)


def maximum(b: Builder, x: Value, y: Value, lanes: int, dtype: str = "f32") -> Value:
    """The larger one; NaN when either is. ONNX Max."""
    return b.binary("arith.maximumf", x, y, lanes, dtype)


def minimum(b: Builder, x: Value, y: Value, lanes: int, dtype: str = "f32") -> Value:
    """The smaller one; NaN when either is. ONNX Min."""
    return b.binary("arith.minimumf", x, y, lanes, dtype)
