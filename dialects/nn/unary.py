"""Elementwise ops of one operand: functions, activations, rounding, tests, casts."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES, is_float
from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.dims import Dim, known_nonnegative, known_positive
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn
from xcompile.dialects.nn.elementwise import Unary
from xcompile.dialects.nn.numeric import convert

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@nn.op("abs")
class Abs(Unary):
    """`|x|`; the least integer stays itself. ONNX Abs."""

    KINDS: ClassVar[str] = "number"

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.abs(x)


@nn.op("neg")
class Neg(Unary):
    """`-x`; integers wrap. ONNX Neg."""

    KINDS: ClassVar[str] = "number"

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.negative(x)

    def content(self, sizes: Sizes) -> Shape | None:
        content = sizes.content(self.x)
        return None if content is None else tuple(-d for d in content)


@nn.op("sign")
class Sign(Unary):
    """-1, 0 or 1; NaN for NaN. ONNX Sign."""

    KINDS: ClassVar[str] = "number"

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.sign(x)


@nn.op("exp")
class Exp(Unary):
    """e to the power x. ONNX Exp."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.exp(x)


@nn.op("log")
class Log(Unary):
    """The natural logarithm: -inf for 0, NaN below. ONNX Log."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.log(x)


@nn.op("sqrt")
class Sqrt(Unary):
    """The square root; NaN below 0. ONNX Sqrt."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.sqrt(x)


@nn.op("reciprocal")
class Reciprocal(Unary):
    """`1 / x`. ONNX Reciprocal."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return 1 / x


@nn.op("sin")
class Sin(Unary):
    """The sine of x radians. ONNX Sin."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.sin(x)


@nn.op("cos")
class Cos(Unary):
    """The cosine of x radians. ONNX Cos."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.cos(x)


@nn.op("tan")
class Tan(Unary):
    """The tangent of x radians. ONNX Tan."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.tan(x)


@nn.op("asin")
class Asin(Unary):
    """The arc sine in radians; NaN outside [-1, 1]. ONNX Asin."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.arcsin(x)


@nn.op("acos")
class Acos(Unary):
    """The arc cosine in radians; NaN outside [-1, 1]. ONNX Acos."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.arccos(x)


@nn.op("atan")
class Atan(Unary):
    """The arc tangent in radians. ONNX Atan."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.arctan(x)


@nn.op("sinh")
class Sinh(Unary):
    """The hyperbolic sine. ONNX Sinh."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.sinh(x)


@nn.op("cosh")
class Cosh(Unary):
    """The hyperbolic cosine. ONNX Cosh."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.cosh(x)


@nn.op("tanh")
class Tanh(Unary):
    """The hyperbolic tangent. ONNX Tanh."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.tanh(x)


@nn.op("asinh")
class Asinh(Unary):
    """The inverse hyperbolic sine. ONNX Asinh."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.arcsinh(x)


@nn.op("acosh")
class Acosh(Unary):
    """The inverse hyperbolic cosine; NaN below 1. ONNX Acosh."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.arccosh(x)


@nn.op("atanh")
class Atanh(Unary):
    """The inverse hyperbolic tangent; NaN outside [-1, 1]. ONNX Atanh."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.arctanh(x)


@nn.op("erf")
class Erf(Unary):
    """The error function. ONNX Erf."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return _erf(x)


@nn.op("rsqrt")
class Rsqrt(Unary):
    """`1 / sqrt(x)`. No ONNX op: made by rewrites."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return 1 / np.sqrt(x)


@nn.op("sigmoid")
class Sigmoid(Unary):
    """`1 / (1 + e^-x)`. ONNX Sigmoid."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return _sigmoid(x)


@nn.op("hard_sigmoid")
class HardSigmoid(Unary):
    """`max(0, min(1, alpha x + beta))`; NaN for NaN. ONNX HardSigmoid."""

    alpha: float = 0.2
    beta: float = 0.5

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.clip(self.alpha * x + self.beta, 0, 1)


@nn.op("hard_swish")
class HardSwish(Unary):
    """`x max(0, min(1, x / 6 + 0.5))`. ONNX HardSwish."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x * np.clip(x / 6 + 0.5, 0, 1)


@nn.op("relu")
class Relu(Unary):
    """`max(x, 0)`; NaN for NaN. ONNX Relu."""

    KINDS: ClassVar[str] = "number"

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)


@nn.op("leaky_relu")
class LeakyRelu(Unary):
    """`x` from 0 on, `alpha x` below. ONNX LeakyRelu."""

    alpha: float = 0.01

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, self.alpha * x, x)


@nn.op("elu")
class Elu(Unary):
    """`x` from 0 on, `alpha (e^x - 1)` below. ONNX Elu."""

    alpha: float = 1.0

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.where(x < 0, self.alpha * np.expm1(x), x)


@nn.op("celu")
class Celu(Unary):
    """`max(0, x) + min(0, alpha (e^(x / alpha) - 1))`. ONNX Celu."""

    alpha: float = 1.0

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0) + np.minimum(0, self.alpha * np.expm1(x / self.alpha))

    def verify(self) -> None:
        super().verify()
        if self.alpha == 0:
            raise self.error("XC2007", "alpha must not be 0")


@nn.op("selu")
class Selu(Unary):
    """`gamma x` above 0, `gamma alpha (e^x - 1)` up to it. ONNX Selu."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def compute(self, x: np.ndarray) -> np.ndarray:
        return self.gamma * np.where(x <= 0, self.alpha * np.expm1(x), x)


@nn.op("gelu")
class Gelu(Unary):
    """`x / 2 (1 + erf(x / sqrt 2))`, or its approximation by tanh. ONNX Gelu.

    `approximate` is "none" or "tanh": `x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    """

    approximate: str = "none"

    def verify(self) -> None:
        super().verify()
        if self.approximate not in ("none", "tanh"):
            raise self.error("XC2007", f"approximate is 'none' or 'tanh', not '{self.approximate}'")

    def compute(self, x: np.ndarray) -> np.ndarray:
        if self.approximate == "tanh":
            return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return x / 2 * (1 + _erf(x / math.sqrt(2)))


@nn.op("softplus")
class Softplus(Unary):
    """`log(1 + e^x)`. ONNX Softplus."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return _softplus(x)


@nn.op("softsign")
class Softsign(Unary):
    """`x / (1 + |x|)`. ONNX Softsign."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x / (1 + np.abs(x))


@nn.op("mish")
class Mish(Unary):
    """`x tanh(log(1 + e^x))`. ONNX Mish."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x * np.tanh(_softplus(x))


@nn.op("swish")
class Swish(Unary):
    """`x / (1 + e^(-alpha x))`. ONNX Swish."""

    alpha: float = 1.0

    def compute(self, x: np.ndarray) -> np.ndarray:
        return x * _sigmoid(self.alpha * x)


@nn.op("thresholded_relu")
class ThresholdedRelu(Unary):
    """`x` above `alpha`, else 0. ONNX ThresholdedRelu."""

    alpha: float = 1.0

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.where(x > self.alpha, x, np.where(np.isnan(x), x, 0))


@nn.op("shrink")
class Shrink(Unary):
    """`x + bias` below `-lambd`, `x - bias` above `lambd`, else 0. ONNX Shrink."""

    bias: float = 0.0
    lambd: float = 0.5

    KINDS: ClassVar[str] = "number"

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.where(x < -self.lambd, x + self.bias, np.where(x > self.lambd, x - self.bias, 0))


@nn.op("floor")
class Floor(Unary):
    """Rounded down. ONNX Floor."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.floor(x)

    def content(self, sizes: Sizes) -> Shape | None:
        return sizes.content(self.x)


@nn.op("ceil")
class Ceil(Unary):
    """Rounded up. ONNX Ceil."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.ceil(x)

    def content(self, sizes: Sizes) -> Shape | None:
        return sizes.content(self.x)


@nn.op("round")
class Round(Unary):
    """Rounded to the nearest integer, halves to even. ONNX Round."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.rint(x)

    def content(self, sizes: Sizes) -> Shape | None:
        return sizes.content(self.x)


class Predicate(Unary):
    """Base of ops with a bool result."""

    def dtypes(self) -> Sequence[str]:
        return ["i1"]


@nn.op("is_nan")
class IsNan(Predicate):
    """Whether x is NaN. ONNX IsNaN."""

    def compute(self, x: np.ndarray) -> np.ndarray:
        return np.isnan(x)


@nn.op("is_inf")
class IsInf(Predicate):
    """Whether x is infinite, of a sign that is asked for. ONNX IsInf."""

    negative: bool = True
    positive: bool = True

    def compute(self, x: np.ndarray) -> np.ndarray:
        return (np.isposinf(x) & self.positive) | (np.isneginf(x) & self.negative)


@nn.op("not")
class Not(Unary):
    """Logical not of bools. ONNX Not."""

    KINDS: ClassVar[str] = "bool"

    def compute(self, x: np.ndarray) -> np.ndarray:
        return ~x

    def content(self, sizes: Sizes) -> Shape | None:
        content = sizes.content(self.x)
        return None if content is None else tuple(1 - d for d in content)


@nn.op("bitwise_not")
class BitwiseNot(Unary):
    """The complement of all bits of integers. ONNX BitwiseNot."""

    KINDS: ClassVar[str] = "integer"

    def compute(self, x: np.ndarray) -> np.ndarray:
        return ~x


@nn.op("cast")
class Cast(NnOp):
    """The elements as the dtype `to` (short text). ONNX Cast, CastLike.

    To floats: rounded to nearest even, too large is infinite. To small floats: with `saturate` (and
    only then) too large and infinite become the largest finite value. To powers of two (f8E8M0FNU): the
    magnitude rounded as `rounding` says: up, down, or nearest with ties up. To integers: truncated, then
    the low bits are kept; NaN, infinities and what does not fit 64 bits give 0 (ONNX leaves this
    undefined). To bool: whether x is not 0 (so NaN is true).
    """

    x: Operand
    y: Result
    to: str
    saturate: bool = True
    rounding: str = "up"

    def verify(self) -> None:
        if self.to not in DTYPES:
            raise self.error("XC2007", f"there is no dtype '{self.to}'")
        if self.rounding not in ("up", "down", "nearest"):
            raise self.error("XC2007", f"there is no rounding '{self.rounding}'")

    def dtypes(self) -> Sequence[str]:
        return [self.to]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [sizes.shape(self.x)]

    def content(self, sizes: Sizes) -> Shape | None:
        content = sizes.content(self.x)
        if content is None or dtype_of(self.x) == self.to:
            return content
        if self.to == "i1":
            known = [1 if _is_nonzero(d) else 0 if d == 0 else None for d in content]
            return tuple(d for d in known if d is not None) if None not in known else None
        if all(isinstance(d, int) for d in content):
            before = np.array(content, np.float64 if is_float(dtype_of(self.x)) else np.int64)
            after = convert(before, DTYPES[self.to])
            if after.dtype.kind == "c" or not (after.astype(np.float64) == before).all():
                return None
            return content
        return (
            content
            if self.to in ("i32", "i64", "f32", "f64") and all(map(known_nonnegative, content))
            else None
        )

    def reference(self, x: np.ndarray) -> np.ndarray:
        return convert(x, DTYPES[self.to], saturate=self.saturate, rounding=self.rounding)


def _is_nonzero(dim: Dim) -> bool:
    return known_positive(dim) or known_positive(-dim)
