"""How references compute: floats in double precision, rounded once; integers modulo 2^bits."""

from collections.abc import Callable

import ml_dtypes
import numpy as np

from xcompile.compiler.ir.dtypes import (
    bits_of,
    is_float,
    is_integer,
    is_small_float,
    is_unsigned,
    name_of,
)


def widen(array: np.ndarray) -> np.ndarray:
    """Floats as float64; other arrays as they are."""
    return array.astype(np.float64) if is_float(name_of(array.dtype)) else array


def compute(
    function: Callable[..., np.ndarray], *arrays: np.ndarray, dtype: np.dtype | None = None
) -> np.ndarray:
    """Apply `function` to widened arrays and round to `dtype` (that of the first array when None).

    Addition, subtraction, multiplication, division and square root are thereby exactly those of the narrow type.
    """
    with np.errstate(all="ignore"):
        return rounded(function(*map(widen, arrays)), dtype or arrays[0].dtype)


def rounded(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Floats rounded to nearest even, directly from double to `dtype`; integers keep their low bits."""
    array = np.asarray(array)
    if array.dtype == np.float64 and dtype.isbuiltin != 1 and is_float(name_of(dtype)):
        array = _odd_float32(array)  # these types convert by way of float32: avoid rounding twice
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def to_integer(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers as integers of `dtype`: floats are truncated, then the low bits are kept.

    NaN, infinities and floats that do not fit 64 bits give 0. ONNX leaves all that does not fit undefined; this is the
    same on every target: 300 becomes 44 as an int8.
    """
    bits = bits_of(name_of(dtype))
    if is_float(name_of(array.dtype)):
        wide = np.trunc(array.astype(np.float64))
        top = 2.0**64 if bits == 64 and is_unsigned(name_of(dtype)) else 2.0**63
        fits = (wide >= -(2.0**63)) & (wide < top)
        wide = np.where(fits, wide, 0)
        high = wide >= 2.0**63
        array = np.where(high, wide - 2.0**63, wide).astype(np.int64)
        array = np.where(high, array ^ np.int64(-(2**63)), array)
    if bits >= 8:
        return array.astype(dtype)
    low: np.ndarray = array.astype(np.int64) & (2**bits - 1)
    if not is_unsigned(name_of(dtype)):
        low = low - ((low >= 2 ** (bits - 1)).astype(np.int64) << bits)
    return low.astype(dtype)


def convert(
    array: np.ndarray, dtype: np.dtype, *, saturate: bool = True, rounding: str = "up"
) -> np.ndarray:
    """Cast as the op `nn.cast` does; `saturate` is for small floats, `rounding` for powers of two."""
    name = name_of(dtype)
    if name == "i1":
        return array.astype(np.float64) != 0 if is_float(name_of(array.dtype)) else array != 0
    if is_integer(name):
        return to_integer(array, dtype)
    if not is_small_float(name):
        return rounded(array, dtype)
    wide = array.astype(np.float64)
    if name == "f8E8M0FNU":
        return _power(wide, dtype, saturate=saturate, rounding=rounding)
    most = float(ml_dtypes.finfo(dtype).max)
    if name == "f4E2M1FN":
        wide = np.where(np.isnan(wide), 0, np.clip(wide, -most, most))
    elif saturate:
        wide = np.clip(wide, -most, most)
    return rounded(wide, dtype)


def _power(array: np.ndarray, dtype: np.dtype, *, saturate: bool, rounding: str) -> np.ndarray:
    """The magnitudes of doubles as powers of two from 2^-127 to 2^127."""
    magnitude = np.abs(array)
    fraction, exponent = np.frexp(magnitude)  # fraction in [1/2, 1)
    limit = {"up": 0.5, "down": 1.0, "nearest": 0.75}[rounding]
    above = fraction > limit if rounding == "up" else fraction >= limit
    code = exponent - 1 + above + 127
    finite = np.isfinite(magnitude)
    low, high = (magnitude < 2.0**-127), ~finite | (code > 254)
    code = np.where(low, 0 if saturate else 255, np.where(high, 254 if saturate else 255, code))
    code = np.where(np.isnan(magnitude), 255, np.clip(code, 0, 255))
    return code.astype(np.uint8).view(dtype)


def trunc_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integer quotients rounded toward zero; `x / 0` is 0 and the least integer divided by -1 is itself."""
    with np.errstate(all="ignore"):
        quotient = np.floor_divide(a, b)  # numpy: x // 0 == 0, and the overflow wraps
        inexact = (quotient * b != a) & (b != 0)
        return (quotient + (inexact & ((a < 0) != (b < 0)))).astype(a.dtype)


def _odd_float32(array: np.ndarray) -> np.ndarray:
    """Doubles as float32 rounded to odd, from which a second rounding gives the right result."""
    with np.errstate(all="ignore"):
        near = array.astype(np.float32)
    beyond = np.abs(near.astype(np.float64)) > np.abs(array)
    toward = np.where(beyond, np.nextafter(near, np.float32(0)), near).astype(np.float32)
    inexact = np.isfinite(array) & (toward.astype(np.float64) != array)
    return (toward.view(np.uint32) | inexact.astype(np.uint32)).view(np.float32)
