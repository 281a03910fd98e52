"""Measures the errors of the vector math against references of higher precision.

    python -m bench.accuracy [--step N] > docs/accuracy.md

f32: every N-th of all 2^32 bit patterns, against float64. f64: random mantissas for every third exponent, both signs,
intervals around zero more densely; against numpy's 80-bit functions where these are good enough and mpmath elsewhere.
f16 and bf16, which are computed in f32 and rounded: all 65,536 patterns, against float64.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import mpmath
import numpy as np
from scipy import special

from bench.native import NativeKernel, host_target
from xcompile.compiler.codegen.cpu import casts
from xcompile.compiler.codegen.cpu.builder import Builder, Signature
from xcompile.compiler.codegen.cpu.elementary import BINARY_MATH, MATH

Long = np.longdouble
DTYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
HALVES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x) without cancellation."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + e^x) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """The tanh form."""
    return x * sigmoid(2 * np.sqrt(2 / Long(np.pi)) * (x + Long("0.044715") * x**3))


def mish(x: np.ndarray) -> np.ndarray:
    """x·tanh(softplus(x))."""
    power = np.exp(np.minimum(x, 50))
    return x * (power * (power + 2) / (power * (power + 2) + 2))


def precise(function: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """A function of mpmath with 1,400 bits, which is enough for any reduction by pi."""

    def reference(x: np.ndarray) -> np.ndarray:
        mpmath.mp.prec = 1400

        def one(value: float) -> Long:
            if np.isnan(value):
                return Long(np.nan)
            exact = function(mpmath.mpf(float(value)))
            head = float(exact)
            return Long(head) + Long(float(exact - head)) if np.isfinite(head) else Long(head)

        return np.array([one(v) for v in x], Long)

    return reference


def wave(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """A function of mpmath that infinities are outside of."""

    def function(x: Any) -> Any:
        return getattr(mpmath, name)(x) if mpmath.isfinite(x) else mpmath.nan

    return precise(function)


def exact_gelu(x: Any) -> Any:
    """x/2·(1 + erf(x/sqrt(2))), NaN at -infinity as the formula says."""
    return x / 2 * mpmath.erfc(-x / mpmath.sqrt(2))


REFERENCES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": wave("cos"),
    "cosh": np.cosh,
    "erf": precise(mpmath.erf),
    "exp": np.exp,
    "exp_nonpositive": np.exp,
    "expm1": np.expm1,
    "gelu": precise(exact_gelu),
    "gelu_tanh": gelu_tanh,
    "log": np.log,
    "log1p": np.log1p,
    "mish": mish,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "sin": wave("sin"),
    "sinh": np.sinh,
    "softplus": softplus,
    "sqrt": np.sqrt,
    "tan": wave("tan"),
    "tanh": np.tanh,
}

DOUBLE: dict[str, Callable[[np.ndarray], np.ndarray]] = REFERENCES | {
    "cos": np.cos,
    "erf": special.erf,
    "gelu": lambda x: x / 2 * special.erfc(-x / np.sqrt(2.0)),
    "sin": np.sin,
    "tan": np.tan,
}
"""Functions of float64 arrays: for the errors of narrower types."""

SLOW = frozenset({"cos", "erf", "gelu", "sin", "tan"})
"""Functions whose references are slow in more than double precision."""

DOMAINS = {
    "gelu": (-1.0, np.inf), "gelu_tanh": (-1.0, np.inf), "mish": (-80.0, np.inf), "silu": (-80.0, np.inf),
    "exp_nonpositive": (-87.0, 1e-30),
}  # fmt: skip
"""Where the stated bounds hold, if not everywhere."""


def samples(dtype: str, each: int) -> np.ndarray:
    """`each` random mantissas for every exponent and sign, dense intervals and special values."""
    random = np.random.default_rng(0)
    if dtype == "f32":
        exponents, shift, unsigned = np.arange(256), 23, np.uint32
    else:
        exponents, shift, unsigned = np.unique(np.r_[0:2047:3, 960:1060, 2046, 2047]), 52, np.uint64
    mantissas = random.integers(0, 1 << shift, (len(exponents), each), dtype=unsigned)
    magnitude = (mantissas | (exponents.astype(unsigned)[:, None] << unsigned(shift))).ravel()
    spread = magnitude.view(DTYPES[dtype])
    dense = [random.uniform(-w, w, each * 20).astype(spread.dtype) for w in (1, 10, 100)]
    multiples = (np.arange(-500, 500) * (np.pi / 2)).astype(spread.dtype)
    special_values = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, 2], spread.dtype)
    return np.concatenate([spread, -spread, *dense, multiples, special_values])


def compiled(name: str, dtype: str, lanes: int) -> Callable[..., np.ndarray]:
    """A function of arrays of one float type, as compiled code (lanes 0: scalars); 16-bit floats by way of f32."""
    functions: dict[str, Callable[..., str]] = {**MATH, **BINARY_MATH}
    count = 2 if name in BINARY_MATH else 1
    wide = dtype if dtype in DTYPES else "f32"
    builder, signature = Builder(), Signature((dtype,) * (count + 1))
    with builder.loop(signature.begin, signature.end, lanes or 1) as at:
        values = [builder.load(signature.buffer(i), at, lanes) for i in range(count)]
        values = [casts.cast(builder, v, dtype, wide, lanes) for v in values]
        result = functions[name](builder, *values, lanes, wide)
        result = casts.cast(builder, result, wide, dtype, lanes)
        builder.store(result, signature.buffer(count), at, lanes)
    kernel = NativeKernel(builder, signature, host_target())

    def call(*operands: np.ndarray) -> np.ndarray:
        size = len(operands[0])
        padded = [np.concatenate([x, np.ones(-size % 16, x.dtype)]) for x in operands]
        out = np.empty_like(padded[0])
        kernel(*padded, out, 0, len(out))
        return out[:size]

    return call


def evaluate(name: str, *operands: np.ndarray, lanes: int = 8) -> np.ndarray:
    """The compiled function on arrays of f32 or f64 (lanes 0: scalar code)."""
    dtype = next(key for key, value in DTYPES.items() if value == operands[0].dtype)
    return compiled(name, dtype, lanes)(*operands)


def errors(result: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Errors in units in the last place; infinite where NaN or infinity is not met."""
    info = ml_dtypes.finfo(result.dtype)
    least, most = Long(info.smallest_subnormal), Long(info.max)
    exact, got = reference.astype(reference.dtype), result.astype(reference.dtype)
    with np.errstate(all="ignore"):
        rounded = reference.astype(result.dtype).astype(reference.dtype)
        exponent = np.frexp(np.minimum(np.abs(rounded), most).astype(reference.dtype))[1] - 1
        ulp = np.ldexp(np.ones_like(exact), exponent - info.nmant)
        ulp = np.where(ulp > least, ulp, least).astype(reference.dtype)
        error = np.abs(got - exact) / ulp
    alike = (np.isnan(got) & np.isnan(exact)) | ((got == rounded) & ~np.isfinite(rounded))
    error = np.where(alike, 0, error)
    return np.where(np.isnan(error), np.inf, error)


@dataclass(frozen=True)
class Worst:
    """The largest error in ulp, and the argument where it is."""

    error: float
    at: float


def _in_domain(name: str, x: np.ndarray) -> np.ndarray:
    low, high = DOMAINS.get(name, (-np.inf, np.inf))
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
    return x[((wide > low) & (wide < high)) | np.isnan(wide)]


def worst(name: str, dtype: str, each: int) -> Worst:
    """Over a sample with `each` mantissas for every exponent, within the stated domain."""
    x = _in_domain(name, samples(dtype, each))
    with np.errstate(all="ignore"):
        error = errors(evaluate(name, x), REFERENCES[name](x.astype(Long)))
    return Worst(float(error.max()), float(x[error.argmax()]))


def worst_single(name: str, step: int) -> Worst:
    """Over every `step`-th bit pattern of f32, within the stated domain."""
    found = Worst(0.0, 0.0)
    size = 1 << 22
    function = compiled(name, "f32", 8)
    for start in range(0, 1 << 32, size * step):
        patterns = np.arange(start, min(start + size * step, 1 << 32), step, dtype=np.uint64)
        x = _in_domain(name, patterns.astype(np.uint32).view(np.float32))
        with np.errstate(all="ignore"):
            error = errors(function(x), DOUBLE[name](x.astype(np.float64)))
        if len(x) and error.max() > found.error:
            found = Worst(float(error.max()), float(x[error.argmax()]))
    return found


def worst_half(name: str, dtype: str) -> Worst:
    """Over all values of f16 or bf16, as kernels compute them: in f32, rounded once more."""
    x = _in_domain(name, np.arange(1 << 16, dtype=np.uint16).view(HALVES[dtype]))
    with np.errstate(all="ignore"):
        exact = DOUBLE[name](x.astype(np.float64))
        error = errors(compiled(name, dtype, 8)(x), exact)
    return Worst(float(error.max()), float(x[error.argmax()]))


def worst_power(dtype: str, count: int) -> Worst:
    """The error of x^y for random x and y whose power neither overflows nor vanishes."""
    random, limit = np.random.default_rng(0), 87 if dtype == "f32" else 700
    base = np.exp(random.uniform(-limit, limit, count)).astype(DTYPES[dtype])
    near = random.uniform(0.99, 1.01, count).astype(base.dtype)
    with np.errstate(all="ignore"):
        y = random.uniform(-limit, limit, count) / np.log(base)
    x = np.concatenate([base, near])
    y = np.concatenate([y, random.uniform(-500, 500, count)]).astype(x.dtype)
    with np.errstate(all="ignore"):
        error = errors(evaluate("pow", x, y), np.power(x.astype(Long), y.astype(Long)))
    return Worst(float(error.max()), float(x[error.argmax()]))


def _cell(found: Worst) -> str:
    return f"{found.error:.2f} | {found.at:.6g}"


_HEADER = """# Accuracy of the vector math

Largest error found, in units in the last place; made by `python -m bench.accuracy --step {step}`.
f32: {count:,} bit patterns of the whole range, denormals, infinities and NaN among them. f64: a sample of all
exponents. f16 and bf16: all values. `tests/numerics/test_vector_math.py` holds each function to a bound.
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step", type=int, default=97)
    step = parser.parse_args().step
    print(_HEADER.format(step=step, count=(1 << 32) // step))
    print("| function | f32 | at | f64 | at | f16 | bf16 | where |")
    print("|---|---|---|---|---|---|---|---|")
    for name in REFERENCES:
        single, double = worst_single(name, step), worst(name, "f64", 6 if name in SLOW else 100)
        halves = " | ".join(f"{worst_half(name, dtype).error:.2f}" for dtype in HALVES)
        low, high = DOMAINS.get(name, (-np.inf, np.inf))
        where = "everywhere" if low == -np.inf else f"{low:g} < x < {high:g}"
        print(f"| {name} | {_cell(single)} | {_cell(double)} | {halves} | {where} |", flush=True)
    single, double = (worst_power(dtype, 100000) for dtype in DTYPES)
    print(f"| pow | {_cell(single)} | {_cell(double)} | | | x > 0, a sample |")


if __name__ == "__main__":
    main()
