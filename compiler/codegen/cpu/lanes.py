"""Arithmetic on scalars or vectors of one float type, written into a Builder."""

from collections.abc import Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Builder, Value, vector_type

MANTISSA = {"f32": 23, "f64": 52}
"""Stored mantissa bits."""

BIAS = {"f32": 127, "f64": 1023}
"""Exponent biases."""


@dataclass(frozen=True)
class Lanes:
    """A Builder with a vector length (0: scalars) and a float type ("f32" or "f64") filled in."""

    b: Builder
    lanes: int
    dtype: str = "f32"

    @property
    def integer(self) -> str:
        """The integer type of the same width."""
        return "i32" if self.dtype == "f32" else "i64"

    def const(self, value: float) -> Value:
        return self.b.float_constant(value, self.dtype, self.lanes)

    def int_const(self, value: int) -> Value:
        return self.b.int_constant(value, self.integer, self.lanes)

    def add(self, x: Value, y: Value) -> Value:
        return self.b.binary("arith.addf", x, y, self.lanes, self.dtype)

    def sub(self, x: Value, y: Value) -> Value:
        return self.b.binary("arith.subf", x, y, self.lanes, self.dtype)

    def mul(self, x: Value, y: Value) -> Value:
        return self.b.binary("arith.mulf", x, y, self.lanes, self.dtype)

    def div(self, x: Value, y: Value) -> Value:
        return self.b.binary("arith.divf", x, y, self.lanes, self.dtype)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        return self.b.fma(x, y, z, self.lanes, self.dtype)

    def neg(self, x: Value) -> Value:
        return self.b.op(f"arith.negf {x} : {vector_type(self.lanes, self.dtype)}")

    def unary(self, op: str, x: Value) -> Value:
        """A unary op of the math dialect that is one instruction: `unary("math.floor", x)`."""
        return self.b.op(f"{op} {x} : {vector_type(self.lanes, self.dtype)}")

    def abs(self, x: Value) -> Value:
        return self.unary("math.absf", x)

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        return self.b.binary("math.copysign", magnitude, sign, self.lanes, self.dtype)

    def compare(self, predicate: str, x: Value, y: Value) -> Value:
        """`arith.cmpf` (`olt`, `une`, `uno`, …); an i1 or a vector of them."""
        return self.b.op(
            f"arith.cmpf {predicate}, {x}, {y} : {vector_type(self.lanes, self.dtype)}"
        )

    def either(self, p: Value, q: Value) -> Value:
        return self.b.binary("arith.ori", p, q, self.lanes, "i1")

    def both(self, p: Value, q: Value) -> Value:
        return self.b.binary("arith.andi", p, q, self.lanes, "i1")

    def select(self, condition: Value, x: Value, y: Value, dtype: str | None = None) -> Value:
        """`x` where the condition holds, else `y`."""
        kind = vector_type(self.lanes, dtype or self.dtype)
        if not self.lanes:
            return self.b.op(f"arith.select {condition}, {x}, {y} : {kind}")
        return self.b.op(
            f"arith.select {condition}, {x}, {y} : {vector_type(self.lanes, 'i1')}, {kind}"
        )

    def at_most(self, x: Value, limit: float) -> Value:
        """The smaller of x and a constant; NaN stays NaN."""
        bound = self.const(limit)
        return self.select(self.compare("olt", bound, x), bound, x)

    def at_least(self, x: Value, limit: float) -> Value:
        """The larger of x and a constant; NaN stays NaN."""
        bound = self.const(limit)
        return self.select(self.compare("ogt", bound, x), bound, x)

    def bits(self, x: Value) -> Value:
        """The bits of a float as an integer of the same width."""
        return self._bitcast(x, self.dtype, self.integer)

    def from_bits(self, x: Value) -> Value:
        """The float that has these bits."""
        return self._bitcast(x, self.integer, self.dtype)

    def _bitcast(self, x: Value, source: str, target: str) -> Value:
        here, there = vector_type(self.lanes, source), vector_type(self.lanes, target)
        return self.b.op(f"arith.bitcast {x} : {here} to {there}")

    def int_op(self, op: str, x: Value, y: Value) -> Value:
        """A binary integer op: `int_op("arith.addi", x, y)`."""
        return self.b.binary(op, x, y, self.lanes, self.integer)

    def to_float(self, x: Value) -> Value:
        """A signed integer of the same width, rounded to nearest even."""
        here = vector_type(self.lanes, self.integer)
        return self.b.op(f"arith.sitofp {x} : {here} to {vector_type(self.lanes, self.dtype)}")

    def convert(self, x: Value, dtype: str) -> Value:
        """Between f32 and f64."""
        if dtype == self.dtype:
            return x
        op = "arith.extf" if dtype == "f64" else "arith.truncf"
        here, there = vector_type(self.lanes, self.dtype), vector_type(self.lanes, dtype)
        return self.b.op(f"{op} {x} : {here} to {there}")

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's scheme with FMA; coefficients from the constant term upward."""
        result = self.const(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.fma(result, x, self.const(coefficient))
        return result

    def power_of_two(self, exponent: Value) -> Value:
        """2^n of an integer n in the range of normal numbers, put together from its bits."""
        biased = self.int_op("arith.addi", exponent, self.int_const(BIAS[self.dtype]))
        return self.from_bits(
            self.int_op("arith.shli", biased, self.int_const(MANTISSA[self.dtype]))
        )

    def scale(self, x: Value, exponent: Value) -> Value:
        """x·2^n in two steps, right for results that overflow or are denormal."""
        half = self.int_op("arith.shrsi", exponent, self.int_const(1))
        rest = self.int_op("arith.subi", exponent, half)
        return self.mul(self.mul(x, self.power_of_two(half)), self.power_of_two(rest))

    def two_sum(self, x: Value, y: Value) -> tuple[Value, Value]:
        """The rounded sum and the rounding error, exactly (Knuth)."""
        total = self.add(x, y)
        back = self.sub(total, x)
        return total, self.add(self.sub(x, self.sub(total, back)), self.sub(y, back))
