"""How references compute: floats in double precision, rounded once; integers modulo 2^bits."""

from collections.abc import Callable

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of, is_float, is_integer, is_unsigned, name_of


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


def convert(array: np.ndarray, dtype: np.dtype, *, saturate: bool = True) -> np.ndarray:
    """Cast as the op `nn.cast` does; `saturate` is for 8-bit floats."""
    name = name_of(dtype)
    if name == "i1":
        return array.astype(np.float64) != 0 if is_float(name_of(array.dtype)) else array != 0
    if is_integer(name):
        return to_integer(array, dtype)
    if not name.startswith("f8"):
        return rounded(array, dtype)
    wide = array.astype(np.float64)
    if saturate:
        numbers = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
        most = numbers[np.isfinite(numbers)].max()
        wide = np.clip(wide, -most, most)
    return rounded(wide, dtype)


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
