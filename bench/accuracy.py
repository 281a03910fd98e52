"""Measures the errors of the vector math against references of higher precision.

    python -m bench.accuracy > docs/accuracy.md

Arguments sample every exponent of the type (f64: every third), both signs, and intervals around zero more densely.
References are numpy's 80-bit functions where they are good enough and mpmath (sine, cosine) elsewhere.
"""

from collections.abc import Callable

import numpy as np
from scipy import special

from bench.native import NativeKernel, host_target
from xcompile.compiler.codegen.cpu.builder import Builder, Signature
from xcompile.compiler.codegen.cpu.elementary import BINARY_MATH, MATH

Long = np.longdouble
DTYPES = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x) without cancellation."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


def softplus(x: np.ndarray) -> np.ndarray:
    """log(1 + e^x) without overflow."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def erf(x: np.ndarray) -> np.ndarray:
    """Double precision's result, whose own error is about 1 ulp of f64."""
    tiny = 2 / np.sqrt(Long(np.pi)) * x
    return np.where(np.abs(x) < 1e-10, tiny, special.erf(x.astype(np.float64)))


def gelu(x: np.ndarray) -> np.ndarray:
    """The exact form, with the complement of erf."""
    return x / 2 * special.erfc(-x.astype(np.float64) / np.sqrt(2.0))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """The tanh form."""
    return x * sigmoid(2 * np.sqrt(2 / Long(np.pi)) * (x + Long("0.044715") * x**3))


def mish(x: np.ndarray) -> np.ndarray:
    """X·tanh(softplus(x))."""
    power = np.exp(np.minimum(x, 50))
    return x * (power * (power + 2) / (power * (power + 2) + 2))


def precise(name: str) -> Callable[[np.ndarray], np.ndarray]:
    """A function of mpmath with 1,400 bits, which is enough for any reduction by pi."""

    def reference(x: np.ndarray) -> np.ndarray:
        import mpmath

        mpmath.mp.prec = 1400

        def one(value: float) -> Long:
            if not np.isfinite(value):
                return Long(np.nan)
            exact = getattr(mpmath, name)(mpmath.mpf(float(value)))
            head = float(exact)
            return Long(head) + Long(float(exact - head))

        return np.array([one(v) for v in x], Long)

    return reference


REFERENCES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": precise("cos"),
    "cosh": np.cosh,
    "erf": erf,
    "exp": np.exp,
    "exp_nonpositive": np.exp,
    "expm1": np.expm1,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "log": np.log,
    "log1p": np.log1p,
    "mish": mish,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "sin": precise("sin"),
    "sinh": np.sinh,
    "softplus": softplus,
    "sqrt": np.sqrt,
    "tan": precise("tan"),
    "tanh": np.tanh,
}

DOMAINS = {
    "gelu": (-1.0, np.inf), "gelu_tanh": (-1.0, np.inf), "mish": (-80.0, np.inf), "silu": (-80.0, np.inf),
    "exp_nonpositive": (-87.0, 1e-30), "sin": (-(2.0**45), 2.0**45), "cos": (-(2.0**45), 2.0**45),
    "tan": (-(2.0**45), 2.0**45),
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


def evaluate(name: str, *operands: np.ndarray, lanes: int = 8) -> np.ndarray:
    """The compiled function on arrays of one float type (lanes 0: scalar code)."""
    dtype = next(key for key, value in DTYPES.items() if value == operands[0].dtype)
    builder = Builder()
    signature = Signature((dtype,) * (len(operands) + 1))
    with builder.loop(signature.begin, signature.end, lanes or 1) as at:
        values = [builder.load(signature.buffer(i), at, lanes) for i in range(len(operands))]
        function = {**MATH, **BINARY_MATH}[name]
        result = function(builder, *values, lanes, dtype)
        builder.store(result, signature.buffer(len(operands)), at, lanes)
    kernel = NativeKernel(builder, signature, host_target())
    size = len(operands[0])
    padded = [np.concatenate([x, np.ones(-size % 16, x.dtype)]) for x in operands]
    out = np.empty_like(padded[0])
    kernel(*padded, out, 0, len(out))
    return out[:size]


def errors(result: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Errors in units in the last place; infinite where NaN or infinity is not met."""
    info = np.finfo(result.dtype)
    rounded = reference.astype(result.dtype)
    ulp = np.spacing(np.minimum(np.abs(rounded), info.max)).astype(Long)
    ulp = np.where(np.isfinite(ulp) & (ulp > 0), ulp, Long(np.spacing(result.dtype.type(0))))
    error = np.abs(result.astype(Long) - reference) / ulp
    alike = (np.isnan(result) & np.isnan(reference)) | ((result == rounded) & ~np.isfinite(rounded))
    error = np.where(alike, 0, error)
    return np.where(np.isnan(error), np.inf, error)


def worst(name: str, dtype: str, each: int) -> tuple[float, float]:
    """The largest error in ulp within the stated domain and the argument where it is."""
    x = samples(dtype, each)
    low, high = DOMAINS.get(name, (-np.inf, np.inf))
    x = x[((x > low) & (x < high)) | np.isnan(x)]
    with np.errstate(all="ignore"):
        error = errors(evaluate(name, x), REFERENCES[name](x.astype(Long)))
    return float(error.max()), float(x[error.argmax()])


def main() -> None:
    """Print the table."""
    print("# Accuracy of the vector math\n")
    print("Largest error found, in units in the last place; made by `python -m bench.accuracy`.\n")
    print("| function | f32 | at | f64 | at | where |")
    print("|---|---|---|---|---|---|")
    for name in REFERENCES:
        few = name in ("sin", "cos", "tan")
        single, double = (
            worst(name, "f32", 40 if few else 400),
            worst(name, "f64", 6 if few else 100),
        )
        low, high = DOMAINS.get(name, (-np.inf, np.inf))
        where = "everywhere" if low == -np.inf else f"{low:g} < x < {high:g}"
        print(
            f"| {name} | {single[0]:.2f} | {single[1]:.6g} | {double[0]:.2f} | {double[1]:.6g} | {where} |"
        )


if __name__ == "__main__":
    main()
