"""Huge arguments of sine, cosine and tangent, reduced by pi/2 with as many bits of 2/pi as it takes (Payne and Hanek).

x = m·2^e with an integer m of 53 bits. Bits of 2/pi that make multiples of 4 in the product do not matter, and 192 bits
behind these leave an error below 2^-137, while no double is closer than 2^-62 to a multiple of pi/2.
Lanes are reduced one after the other: this is for arguments that programs meet by accident.
"""

from collections.abc import Sequence
from itertools import pairwise

from xcompile.compiler.codegen.cpu.builder import Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.lanes import Lanes

_WORDS = 20
"""Words of 64 bits of 2/pi, the first of them its integer part: enough for the largest double."""


def _arctangent_of_inverse(x: int, one: int) -> int:
    """arctan(1/x) in units of 1/one."""
    term, total, n = one // x, 0, 1
    while term:
        total += term // n if n % 4 == 1 else -(term // n)
        term //= x * x
        n += 2
    return total


def two_over_pi(words: int) -> list[int]:
    """2/pi as words of 64 bits, the first of them its integer part (0), by Machin's formula."""
    guard = 64
    one = 1 << (64 * (words - 1) + guard)
    pi = 4 * (4 * _arctangent_of_inverse(5, one) - _arctangent_of_inverse(239, one))
    quotient = 2 * one * one // pi >> guard
    return [quotient >> (64 * (words - 1 - i)) & (2**64 - 1) for i in range(words)]


class _Words:
    """Unsigned arithmetic on scalars of 64 bits."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def const(self, value: int) -> Value:
        return self.b.int_constant(value - (value >> 63 << 64), "i64")

    def op(self, name: str, x: Value, y: Value) -> Value:
        return self.b.binary(f"arith.{name}", x, y, 0, "i64")

    def below(self, x: Value, y: Value) -> Value:
        """1 where x < y, else 0: the carry of a sum that is less than a summand."""
        less = self.b.op(f"arith.cmpi ult, {x}, {y} : i64")
        return self.b.op(f"arith.extui {less} : i1 to i64")

    def product(self, x: Value, y: Value) -> tuple[Value, Value]:
        """The low and the high word."""
        low, high = self.b.name(), self.b.name()
        self.b.line(f"{low}, {high} = arith.mului_extended {x}, {y} : i64")
        return low, high

    def choose(self, condition: Value, x: Value, y: Value) -> Value:
        return self.b.op(f"arith.select {condition}, {x}, {y} : i64")

    def left(self, words: Sequence[Value], by: Value) -> list[Value]:
        """The words, the highest first, shifted left by less than 64; the last one only gives bits."""
        # (low >> 1) >> (63 - by) is low >> (64 - by), and 0 where by is 0.
        back = self.op("subi", self.const(63), by)
        return [
            self.op(
                "ori",
                self.op("shli", high, by),
                self.op("shrui", self.op("shrui", low, self.const(1)), back),
            )
            for high, low in pairwise(words)
        ]


def _reduce_scalar(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """Split one finite |x| >= 2^45 as x = n·pi/2 + r + s: n modulo 4, r and s."""
    w, m = _Words(b), Lanes(b, 0, "f64")
    bits = m.bits(x)
    exponent = w.op("andi", w.op("shrui", bits, w.const(52)), w.const(2047))
    fraction = w.op("andi", bits, w.const(2**52 - 1))
    mantissa = w.op("ori", fraction, w.const(2**52))
    # The first bit that matters is that of 2^(2 - e), where e = exponent - 1075; words begin 64 bits earlier.
    first = w.op("subi", exponent, w.const(1075 + 2 - 64))
    word = b.op(f"arith.index_cast {w.op('shrui', first, w.const(6))} : i64 to index")
    table = f"vector<{_WORDS}xi64>"
    signed = [v - (v >> 63 << 64) for v in two_over_pi(_WORDS)]
    digits = b.constant(str(signed), "i64", _WORDS)

    def digit(offset: int) -> Value:
        return b.op(f"vector.extract {digits}[{b.index(b.add(word, offset))}] : i64 from {table}")

    window = w.left([digit(i) for i in range(4)], w.op("andi", first, w.const(63)))
    turns = _multiply(w, window, mantissa)
    # Quarter turns, rounded, are the highest two bits; what is left is a signed fraction.
    n = w.op("shrui", w.op("addi", turns[0], w.const(1 << 61)), w.const(62))
    high = w.op("subi", turns[0], w.op("shli", n, w.const(62)))
    r, s = _to_radians(w, m, [high, *turns[1:]])
    negative = m.compare("olt", x, m.const(0.0))
    n = w.choose(negative, w.op("subi", w.const(0), n), n)
    return n, m.select(negative, m.neg(r), r), m.select(negative, m.neg(s), s)


def _multiply(w: _Words, words: Sequence[Value], factor: Value) -> list[Value]:
    """Three words times one, the lowest three words of the product."""
    low, carry_low = w.product(words[2], factor)
    middle, carry_middle = w.product(words[1], factor)
    high, _ = w.product(words[0], factor)
    middle = w.op("addi", middle, carry_low)
    carry = w.op("addi", carry_middle, w.below(middle, carry_low))
    return [w.op("addi", high, carry), middle, low]


def _to_radians(w: _Words, m: Lanes, words: Sequence[Value]) -> tuple[Value, Value]:
    """A signed fraction of a quarter turn, its unit 2^190 in three words, times pi/2 as two doubles."""
    b = w.b
    negative = b.op(f"arith.cmpi slt, {words[0]}, {w.const(0)} : i64")
    # The complement differs from the negative by one unit of the lowest word.
    positive = [w.choose(negative, w.op("xori", x, w.const(2**64 - 1)), x) for x in words]
    zeros = b.op(f"math.ctlz {positive[0]} : i64")
    zeros = b.op(f"arith.minui {zeros}, {w.const(63)} : i64")
    top, rest = w.left(positive, zeros)
    scale = m.power_of_two(w.op("subi", w.const(2), zeros))

    def number(word: Value, power: int) -> Value:
        real = b.op(f"arith.uitofp {word} : i64 to f64")
        return m.mul(m.mul(real, m.const(2.0**power)), scale)

    head = number(w.op("shrui", top, w.const(11)), -53)
    tail_bits = w.op("ori", w.op("shli", top, w.const(53)), w.op("shrui", rest, w.const(11)))
    tail = number(tail_bits, -117)
    half_pi, half_pi_low = 1.5707963267948966, 6.123233995736766e-17
    r = m.mul(head, m.const(half_pi))
    lost = m.fma(head, m.const(half_pi), m.neg(r))
    s = m.fma(tail, m.const(half_pi), m.fma(head, m.const(half_pi_low), lost))
    return m.select(negative, m.neg(r), r), m.select(negative, m.neg(s), s)


def reduce_huge(
    b: Builder, x: Value, parts: Sequence[Value], limit: float, lanes: int
) -> list[Value]:
    """The parts (n, r, s) of x = n·pi/2 + r + s, replaced where |x| is at least `limit` and finite.

    Args:
        b: where the code goes.
        x: doubles.
        parts: n as i64, r and s as doubles, right below the limit and NaN for infinities and NaN.
        limit: at least 2^45.
        lanes: 0: a scalar.
    """
    m = Lanes(b, lanes, "f64")
    magnitude = m.abs(x)
    huge = m.both(
        m.compare("oge", magnitude, m.const(limit)),
        m.compare("olt", magnitude, m.const(float("inf"))),
    )
    types = [vector_type(lanes, kind) for kind in ("i64", "f64", "f64")]
    if not lanes:
        return b.choose(huge, types, lambda: _reduce_scalar(b, x), lambda: parts)
    some = b.op(f"vector.reduction <or>, {huge} : vector<{lanes}xi1> into i1")

    def lane(index: Index, found: list[Value]) -> Sequence[Value]:
        place = b.index(index)
        mine = b.op(f"vector.extract {huge}[{place}] : i1 from vector<{lanes}xi1>")

        def replaced() -> Sequence[Value]:
            one = b.op(f"vector.extract {x}[{place}] : f64 from {types[1]}")
            made = _reduce_scalar(b, one)
            return [
                b.op(f"vector.insert {value}, {old} [{place}] : {kind} into {type_}")
                for value, old, kind, type_ in zip(
                    made, found, ("i64", "f64", "f64"), types, strict=True
                )
            ]

        return b.choose(mine, types, replaced, lambda: found)

    return b.choose(some, types, lambda: b.reduce(0, lanes, 1, parts, types, lane), lambda: parts)
