"""Fits the polynomials of compiler/codegen/cpu/polynomials.py and prints that file.

    python -m bench.polynomials > compiler/codegen/cpu/polynomials.py

Each is interpolated at Chebyshev nodes with 60 digits, within a factor of two of the minimax error, and
rounded to its type. Needs mpmath.
"""

from collections.abc import Callable

import mpmath as mp
import numpy as np

mp.mp.dps = 60

HEADER = '''"""Coefficients of the vector math, from the constant term upward. Written by bench/polynomials.py.

Keys are the function and the float type; the comments give function and interval.
"""

POLYNOMIALS: dict[tuple[str, str], tuple[float, ...]] = {'''


def _series(f: Callable[[mp.mpf], mp.mpf], near_zero: Callable[[mp.mpf], mp.mpf]):
    return lambda x: near_zero(x) if abs(x) < mp.mpf("1e-12") else f(x)


def exp_tail(r):
    return sum(r**k / mp.factorial(k + 2) for k in range(40))


def log_tail(z):
    return sum(2 * z**k / (2 * k + 3) for k in range(80))


def pow_tail(z):
    return sum(2 * z**k / (2 * k + 5) for k in range(80))


def sin_tail(z):
    return sum((-1) ** (k + 1) * z**k / mp.factorial(2 * k + 3) for k in range(40))


def cos_tail(z):
    return sum((-1) ** k * z**k / mp.factorial(2 * k + 4) for k in range(40))


def erf_small(z):
    return 2 / mp.sqrt(mp.pi) if z == 0 else mp.erf(mp.sqrt(z)) / mp.sqrt(z)


def erfc_exponent(u):
    return -mp.log(mp.erfc(u + 3)) / (u + 3)


def atan_tail(z):
    return mp.mpf(-1) / 3 if z == 0 else (mp.atan(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def asin_tail(z):
    return mp.mpf(1) / 6 if z == 0 else (mp.asin(mp.sqrt(z)) / mp.sqrt(z) - 1) / z


def sinh_tail(z):
    return sum(z**k / mp.factorial(2 * k + 3) for k in range(40))


HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.0001")
LOG_TOP = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2
QUARTER = (mp.pi / 4) ** 2 * mp.mpf("1.0001")

FITS = [
    ("exp", "(e^r - 1 - r) / r^2", exp_tail, -HALF_LN2, HALF_LN2, 4, 10),
    ("log", "(2 atanh(s)/s - 2) / z of z = s^2", log_tail, mp.mpf(0), LOG_TOP, 3, 7),
    ("pow", "((2 atanh(s)/s - 2) / z - 2/3) / z of z = s^2", pow_tail, mp.mpf(0), LOG_TOP, 2, 7),
    ("atanh", "(atanh(s)/s - 1) / z of z = s^2, doubled", log_tail, mp.mpf(0), mp.mpf(1) / 9, 5, 13),
    ("sin", "(sin(r)/r - 1) / z of z = r^2", sin_tail, mp.mpf(0), QUARTER, 3, 7),
    ("cos", "(cos(r) - 1 + z/2) / z^2 of z = r^2", cos_tail, mp.mpf(0), QUARTER, 3, 6),
    ("erf", "erf(x)/x of z = x^2, x <= 1", erf_small, mp.mpf(0), mp.mpf(1), 7, 14),
    ("erfc", "-log(erfc(t))/t of t - 3, 1 <= t <= 6", erfc_exponent, mp.mpf(-2), mp.mpf(3), 10, 22),
    ("atan", "(atan(x)/x - 1) / z of z = x^2, x <= tan(pi/8)", atan_tail, mp.mpf(0), mp.tan(mp.pi / 8) ** 2, 4, 11),
    ("asin", "(asin(x)/x - 1) / z of z = x^2, x <= 1/2", asin_tail, mp.mpf(0), mp.mpf(1) / 4, 5, 13),
    ("sinh", "(sinh(x)/x - 1) / z of z = x^2, x <= 1", sinh_tail, mp.mpf(0), mp.mpf(1), 3, 6),
]  # fmt: skip


def fit(f: Callable[[mp.mpf], mp.mpf], low: mp.mpf, high: mp.mpf, degree: int) -> list[mp.mpf]:
    """The interpolating polynomial at Chebyshev nodes, in powers of x."""
    n = degree + 1
    nodes = [
        (low + high) / 2 + (high - low) / 2 * mp.cos((2 * k + 1) * mp.pi / (2 * n)) for k in range(n)
    ]
    matrix = mp.matrix(n, n)
    for i, x in enumerate(nodes):
        for j in range(n):
            matrix[i, j] = x**j
    return list(mp.lu_solve(matrix, mp.matrix([f(x) for x in nodes])))


def main() -> None:
    print(HEADER)
    for name, text, f, low, high, degree32, degree64 in FITS:
        print(f"    # {text}")
        for dtype, degree in (("f32", degree32), ("f64", degree64)):
            coefficients = fit(f, low, high, degree)
            rounded = [float(np.float32(float(c))) if dtype == "f32" else float(c) for c in coefficients]
            print(f'    ("{name}", "{dtype}"): (')
            for value in rounded:
                print(f"        {value!r},")
            print("    ),")
    print("}")


if __name__ == "__main__":
    main()
