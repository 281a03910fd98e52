"""Fits the polynomials of compiler/codegen/cpu/polynomials.py and prints that file.

    python -m bench.polynomials > compiler/codegen/cpu/polynomials.py

Each is interpolated at Chebyshev nodes with 60 digits, within a factor of two of the minimax error, and
rounded to its type. Needs mpmath.
"""

from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np

mp.mp.dps = 60

HEADER = '''"""Coefficients of the vector math, from the constant term upward. Written by bench/polynomials.py.

Keys are the function and the float type; the comments give what is approximated.
"""

POLYNOMIALS: dict[tuple[str, str], tuple[float, ...]] = {'''


def series(term: Callable[[int], Any]) -> Callable[[Any], Any]:
    """The power series with these coefficients, summed to 80 terms."""
    coefficients = [term(k) for k in range(80)]
    return lambda x: sum(c * x**k for k, c in enumerate(coefficients))


def odd_tail(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """(f(x)/x - 1) / x^2 as a function of z = x^2 > 0."""
    return lambda z: (function(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def of_square_root(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """F(x)/x as a function of z = x^2 > 0."""
    return lambda z: function(mp.sqrt(z)) / mp.sqrt(z)


def twice_normal_tail(u: Any) -> Any:
    """-log2(2 Phi(-v)) / v for v = u + 3.5 > 0."""
    v = u + mp.mpf("3.5")
    return -mp.log(mp.erfc(v / mp.sqrt(2)), 2) / v


HALF = mp.mpf("0.5001")
HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.0001")
LOG_TOP = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2
QUARTER = (mp.pi / 4) ** 2 * mp.mpf("1.0001")

FITS: list[tuple[str, str, Callable[[Any], Any], Any, Any, int, int]] = [
    # name, comment, function, interval, degree for f32, degree for f64
    ("exp", "(e^r - 1 - r) / r^2", series(lambda k: 1 / mp.factorial(k + 2)), -HALF_LN2, HALF_LN2, 4, 10),
    ("exp2", "(2^r - 1) / r", series(lambda k: mp.log(2) ** (k + 1) / mp.factorial(k + 1)), -HALF, HALF, 5, 11),
    ("log", "(2 atanh(s)/s - 2) / z of z = s^2", series(lambda k: mp.mpf(2) / (2 * k + 3)), 0, LOG_TOP, 3, 7),
    ("pow", "(2 atanh(s)/s - 2 - 2z/3) / z^2", series(lambda k: mp.mpf(2) / (2 * k + 5)), 0, LOG_TOP, 2, 7),
    ("atanh", "the same on s <= 1/3", series(lambda k: mp.mpf(2) / (2 * k + 3)), 0, mp.mpf(1) / 9, 5, 13),
    ("sin", "(sin(r)/r - 1) / z", series(lambda k: (-1) ** (k + 1) / mp.factorial(2 * k + 3)), 0, QUARTER, 3, 7),
    ("cos", "(cos(r) - 1 + z/2) / z^2", series(lambda k: (-1) ** k / mp.factorial(2 * k + 4)), 0, QUARTER, 3, 6),
    ("erf", "erf(x)/x - 1 of z = x^2, x <= 1", of_square_root(lambda x: mp.erf(x) - x), 0, 1, 7, 14),
    ("erfc", "-log(erfc(t))/t of u = t - 3, 1 <= t <= 6", lambda u: -mp.log(mp.erfc(u + 3)) / (u + 3), -2, 3, 10, 22),
    ("normal", "-log2(erfc(v/sqrt(2)))/v of u = v - 3.5, v <= 6*sqrt(2)",
     twice_normal_tail, -3.5, 6 * mp.sqrt(2) - 3.5, 12, 31),
    ("atan", "(atan(x)/x - 1) / z, x <= tan(pi/8)", odd_tail(mp.atan), 0, mp.tan(mp.pi / 8) ** 2, 4, 12),
    ("asin", "(asin(x)/x - 1) / z, x <= 1/2", odd_tail(mp.asin), 0, mp.mpf(1) / 4, 5, 13),
    ("sinh", "(sinh(x)/x - 1) / z, x <= 1", odd_tail(mp.sinh), 0, 1, 3, 7),
]  # fmt: skip


def fit(f: Callable[[Any], Any], low: Any, high: Any, degree: int) -> list[Any]:
    """The interpolating polynomial at Chebyshev nodes, in powers of x."""
    n = degree + 1
    nodes = [
        (mp.mpf(low) + high) / 2 + (mp.mpf(high) - low) / 2 * mp.cos((2 * k + 1) * mp.pi / (2 * n))
        for k in range(n)
    ]
    matrix = mp.matrix(n, n)
    for i, x in enumerate(nodes):
        for j in range(n):
            matrix[i, j] = x**j
    return list(mp.lu_solve(matrix, mp.matrix([f(x) for x in nodes])))


def main() -> None:
    """Print the file."""
    print(HEADER)
    for name, text, f, low, high, degree32, degree64 in FITS:
        print(f"    # {name} fits {text}")
        for dtype, degree in (("f32", degree32), ("f64", degree64)):
            coefficients = fit(f, low, high, degree)
            rounded = [
                float(np.float32(float(c))) if dtype == "f32" else float(c) for c in coefficients
            ]
            print(f'    ("{name}", "{dtype}"): (')
            for value in rounded:
                print(f"        {value!r},")
            print("    ),")
    print("}")


if __name__ == "__main__":
    main()
