"""Elementwise ops of two operands: arithmetic, comparison, logic, bits."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of, is_float
from xcompile.compiler.support.dims import (
    Dim,
    known_nonnegative,
    known_positive,
    maximum,
    minimum,
)
from xcompile.dialects.nn.base import dtype_of, nn
from xcompile.dialects.nn.elementwise import Binary, check_kind
from xcompile.dialects.nn.numeric import convert, trunc_divide


@nn.op("add")
class Add(Binary):
    """`a + b`; integers wrap. ONNX Add, Sum."""

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a + b

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return a + b


@nn.op("sub")
class Sub(Binary):
    """`a - b`; integers wrap. ONNX Sub."""

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a - b

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return a - b


@nn.op("mul")
class Mul(Binary):
    """`a * b`; integers wrap. ONNX Mul."""

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a * b

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return a * b


@nn.op("div")
class Div(Binary):
    """`a / b`. ONNX Div.

    Integers round toward zero. ONNX does not say what `x / 0` and the least integer divided by -1 are: here
    they are 0 and the least integer, on every target.
    """

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a / b if a.dtype.kind == "f" else trunc_divide(a, b)

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        if isinstance(a, int) and isinstance(b, int):
            if b == 0 or (is_float(dtype_of(self.y)) and a % b):
                return None
            return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        if not known_positive(b) and not (known_nonnegative(b) and b != 0):
            return None
        quotient = a // b
        if is_float(dtype_of(self.y)):
            return quotient if quotient * b == a else None
        return quotient if known_nonnegative(a) or quotient * b == a else None


@nn.op("mod")
class Mod(Binary):
    """Remainder of `a / b`. ONNX Mod.

    The quotient is rounded down, so that the sign is the divisor's, or with `fmod` toward zero, and the sign
    is the dividend's. Integer `x mod 0` is 0; of floats it is NaN.
    """

    fmod: bool = False

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.fmod(a, b) if self.fmod else np.mod(a, b)

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return a % b if known_nonnegative(a) and known_positive(b) else None


@nn.op("pow")
class Pow(Binary):
    """`a` to the power `b`, in the dtype of `a`. ONNX Pow.

    The dtypes may differ. Integers to integer powers wrap; to a negative power they are 1 / a^|b| rounded toward
    zero (0 for a = 0). Integers to float powers are computed in float64 and truncated.
    """

    def verify(self) -> None:
        for value in (self.a, self.b):
            check_kind(self, dtype_of(value))

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            if a.dtype.kind in "iu" and b.dtype.kind in "iu":
                return _integer_power(a, b)
            return convert(np.power(a.astype(np.float64), b.astype(np.float64)), a.dtype)

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        if b == 2:
            return a * a
        return a**b if isinstance(a, int) and isinstance(b, int) and 0 <= b < 64 else None


def _integer_power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    exponent = np.abs(b.astype(np.int64)) if b.dtype.kind == "i" else b
    power = np.power(a, exponent.astype(np.uint64), dtype=a.dtype, casting="unsafe")
    return np.where(b < 0, trunc_divide(np.ones_like(power), power), power).astype(a.dtype)


@nn.op("maximum")
class Maximum(Binary):
    """The greater; NaN when one is NaN. ONNX Max (a chain for more than two operands)."""

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.maximum(a, b)

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return maximum(a, b)


@nn.op("minimum")
class Minimum(Binary):
    """The lesser; NaN when one is NaN. ONNX Min (a chain for more than two operands)."""

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.minimum(a, b)

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return minimum(a, b)


@nn.op("prelu")
class PRelu(Binary):
    """`a` where it is at least 0, else `a * b`; `b` (the slope) broadcasts to `a`. ONNX PRelu."""

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(a < 0, a * b, a)


class Comparison(Binary):
    """Base of ops with a bool result; comparisons with NaN are false."""

    def dtypes(self) -> Sequence[str]:
        return ["i1"]

    def decide(self, yes: Dim, no: Dim) -> Dim | None:
        """1 when `yes` is at least 0, 0 when `no` is, None when neither is known."""
        return 1 if known_nonnegative(yes) else 0 if known_nonnegative(no) else None


@nn.op("equal")
class Equal(Comparison):
    """`a == b`. ONNX Equal."""

    KINDS: ClassVar[str] = "any"

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a == b

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        if a == b:
            return 1
        return 0 if known_positive(a - b) or known_positive(b - a) else None


@nn.op("less")
class Less(Comparison):
    """`a < b`. ONNX Less."""

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a < b

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return self.decide(b - a - 1, a - b)


@nn.op("less_equal")
class LessEqual(Comparison):
    """`a <= b`. ONNX LessOrEqual."""

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a <= b

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return self.decide(b - a, a - b - 1)


@nn.op("greater")
class Greater(Comparison):
    """`a > b`. ONNX Greater."""

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a > b

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return self.decide(a - b - 1, b - a)


@nn.op("greater_equal")
class GreaterEqual(Comparison):
    """`a >= b`. ONNX GreaterOrEqual."""

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a >= b

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return self.decide(a - b, b - a - 1)


@nn.op("and")
class And(Binary):
    """Logical and of bools. ONNX And."""

    KINDS: ClassVar[str] = "bool"

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a & b

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return a * b


@nn.op("or")
class Or(Binary):
    """Logical or of bools. ONNX Or."""

    KINDS: ClassVar[str] = "bool"

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a | b

    def combine(self, a: Dim, b: Dim) -> Dim | None:
        return a + b - a * b


@nn.op("xor")
class Xor(Binary):
    """Exclusive or of bools. ONNX Xor."""

    KINDS: ClassVar[str] = "bool"

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a ^ b


@nn.op("bitwise_and")
class BitwiseAnd(Binary):
    """And of the bits of integers. ONNX BitwiseAnd."""

    KINDS: ClassVar[str] = "integer"

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a & b


@nn.op("bitwise_or")
class BitwiseOr(Binary):
    """Or of the bits of integers. ONNX BitwiseOr."""

    KINDS: ClassVar[str] = "integer"

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a | b


@nn.op("bitwise_xor")
class BitwiseXor(Binary):
    """Exclusive or of the bits of integers. ONNX BitwiseXor."""

    KINDS: ClassVar[str] = "integer"

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return a ^ b


@nn.op("bit_shift")
class BitShift(Binary):
    """Integers shifted by `b` bits; to the right, signed ones keep their sign. ONNX BitShift.

    A shift that is negative or as wide as the type leaves no bit: the result is 0, or -1 to the right of a negative
    number.
    """

    left: bool

    KINDS: ClassVar[str] = "integer"

    def compute(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        width = bits_of(dtype_of(self.a))
        outside = (b < 0) | (b >= width)
        by = np.where(outside, width - 1, b).astype(a.dtype)
        shifted = np.left_shift(a, by) if self.left else np.right_shift(a, by)
        rest = np.where((a < 0) & (not self.left), -1, 0)
        return np.where(outside, rest, shifted)
