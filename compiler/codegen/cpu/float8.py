"""Floats of 8 and 4 bits: a register holds their bits as i8, arithmetic is in float32.

Decoding is exact; encoding rounds to nearest even, denormals included. What is too large (infinities too) becomes
the largest number, or with `saturate` off an infinity where the type has one, else NaN. The FNUZ types have no
negative zero. The 4-bit type has neither infinities nor NaN: it always saturates, and NaN gives 0.

The type f8E8M0FNU holds powers of two: `encode_power`, `decode_power`.
"""

from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Builder, Value, vector_type
from xcompile.compiler.codegen.cpu.lanes import Lanes


@dataclass(frozen=True)
class Format:
    """One type with sign, exponent and mantissa.

    Attributes:
        mantissa: stored bits of it.
        bias: of the exponent.
        largest: the bits of the largest number.
        beyond: the bits that an overflow gives: an infinity or NaN.
        nan: the bits of NaN.
        unsigned_zero: whether 0x80 is NaN, so that zero has no sign.
        bits: in all.
    """

    mantissa: int
    bias: int
    largest: int
    beyond: int
    nan: int
    unsigned_zero: bool
    bits: int = 8

    @property
    def sign(self) -> int:
        """The bit that is the sign."""
        return 1 << (self.bits - 1)


FORMATS = {
    "f8E4M3FN": Format(3, 7, 0x7E, 0x7F, 0x7F, unsigned_zero=False),
    "f8E4M3FNUZ": Format(3, 8, 0x7F, 0x80, 0x80, unsigned_zero=True),
    "f8E5M2": Format(2, 15, 0x7B, 0x7C, 0x7E, unsigned_zero=False),
    "f8E5M2FNUZ": Format(2, 16, 0x7F, 0x80, 0x80, unsigned_zero=True),
    "f4E2M1FN": Format(1, 1, 0x7, 0x7, 0, unsigned_zero=False, bits=4),
}
"""By the type's short text."""


class _Bits:
    """32-bit integer arithmetic."""

    def __init__(self, b: Builder, lanes: int) -> None:
        self.b = b
        self.m = Lanes(b, lanes, "f32")
        self.lanes = lanes

    def op(self, name: str, x: Value, y: int | Value) -> Value:
        return self.m.int_op(f"arith.{name}", x, self.m.int_const(y) if isinstance(y, int) else y)

    def compare(self, predicate: str, x: Value, y: int) -> Value:
        return self.op(f"cmpi {predicate},", x, y)

    def choose(self, condition: Value, x: int | Value, y: int | Value) -> Value:
        a, c = (self.m.int_const(v) if isinstance(v, int) else v for v in (x, y))
        return self.m.select(condition, a, c, "i32")

    def resize(self, op: str, x: Value, source: str, target: str) -> Value:
        return self.b.op(
            f"arith.{op} {x} : {vector_type(self.lanes, source)} to {vector_type(self.lanes, target)}"
        )


def decode(b: Builder, x: Value, dtype: str, lanes: int) -> Value:
    """The bits `x` (i8) of a number of the type `dtype` as f32."""
    f, w = FORMATS[dtype], _Bits(b, lanes)
    raw = w.resize("extui", x, "i8", "i32")
    magnitude = w.op("andi", raw, f.sign - 1)
    sign = w.op("shli", w.op("andi", raw, f.sign), 32 - f.bits)
    # The bits in float32's places are the number times a power of two, denormals too.
    placed = w.m.from_bits(w.op("shli", magnitude, 23 - f.mantissa))
    number = w.m.bits(w.m.mul(placed, w.m.const(2.0 ** (127 - f.bias))))
    if f.unsigned_zero:
        number = w.choose(w.compare("eq", raw, f.nan), 0x7FC00000, number)
    elif f.largest < f.sign - 1:
        number = w.choose(w.compare("ugt", magnitude, f.largest), 0x7FC00000, number)
        if f.beyond != f.nan and f.beyond != 0x7F:
            number = w.choose(w.compare("eq", magnitude, f.beyond), 0x7F800000, number)
    return w.m.from_bits(w.op("ori", number, sign))


def encode(b: Builder, x: Value, dtype: str, lanes: int, *, saturate: bool) -> Value:
    """The f32 `x` as bits (i8) of the type `dtype`."""
    f, w = FORMATS[dtype], _Bits(b, lanes)
    raw = w.m.bits(x)
    sign = w.op("shrui", w.op("andi", raw, -(1 << 31)), 32 - f.bits)
    magnitude = w.op("andi", raw, 0x7FFFFFFF)
    code = w.choose(
        w.compare("ult", magnitude, (128 - f.bias) << 23),
        _denormal(w, f, magnitude),
        _normal(w, f, magnitude),
    )
    over = w.compare("ugt", code, f.largest)
    code = w.choose(over, f.largest if saturate else f.beyond, code)
    nan = w.compare("ugt", magnitude, 0x7F800000)
    code = w.choose(nan, f.nan, code)
    signed = w.choose(nan, 0, w.op("ori", code, sign)) if f.nan == 0 else w.op("ori", code, sign)
    if f.unsigned_zero:
        signed = w.choose(w.compare("eq", code, 0), 0, signed)
    return w.resize("trunci", signed, "i32", "i8")


def _denormal(w: _Bits, f: Format, magnitude: Value) -> Value:
    """Numbers below the least normal one: adding a large number rounds them to whole units."""
    large = 2.0 ** (1 - f.bias - f.mantissa + 23)
    total = w.m.bits(w.m.add(w.m.from_bits(magnitude), w.m.const(large)))
    return w.op("subi", total, w.m.bits(w.m.const(large)))


def _normal(w: _Bits, f: Format, magnitude: Value) -> Value:
    """Add half a unit less the tie bit, drop the bits below, change the bias."""
    shift = 23 - f.mantissa
    odd = w.op("andi", w.op("shrui", magnitude, shift), 1)
    rounded = w.op("addi", magnitude, w.op("addi", odd, (1 << (shift - 1)) - 1))
    code = w.op("shrui", rounded, shift)
    return w.op("subi", code, (127 - f.bias) << f.mantissa)


POWERS = "f8E8M0FNU"
"""Powers of two from 2^-127 to 2^127, and NaN: the bits are those of float32's exponent."""


def decode_power(b: Builder, x: Value, lanes: int) -> Value:
    """The bits `x` (i8) of a power of two as f32."""
    w = _Bits(b, lanes)
    raw = w.resize("extui", x, "i8", "i32")
    number = w.choose(w.compare("eq", raw, 0), 0x00400000, w.op("shli", raw, 23))
    return w.m.from_bits(w.choose(w.compare("eq", raw, 255), 0x7FC00000, number))


def encode_power(b: Builder, x: Value, lanes: int, *, saturate: bool, rounding: str) -> Value:
    """The magnitude of the f32 `x` as a power of two.

    `rounding` is "up", "down" or "nearest" (ties up). Out of range is the nearest power, or NaN when not `saturate`.
    """
    w = _Bits(b, lanes)
    magnitude = w.op("andi", w.m.bits(x), 0x7FFFFFFF)
    # What is added carries into the exponent; below 2^-126 the code 0 means a mantissa of one half.
    whole = {"up": 0x7FFFFF, "down": 0, "nearest": 0x400000}[rounding]
    small = {"up": 0x3FFFFF, "down": 0, "nearest": 0x200000}[rounding]
    added = w.choose(w.compare("ult", magnitude, 0x00800000), small, whole)
    code = w.op("shrui", w.op("addi", magnitude, added), 23)
    code = w.choose(w.compare("ugt", code, 254), 254 if saturate else 255, code)
    if not saturate:
        code = w.choose(w.compare("ult", magnitude, 0x00400000), 255, code)
    code = w.choose(w.compare("ugt", magnitude, 0x7F800000), 255, code)
    return w.resize("trunci", code, "i32", "i8")
