"""How references of sums compute: in the widest type of a kind, then rounded once (`numeric.rounded`).

Floats (16, 32 and 64 bits) are computed in float64, integers in 64 bits, whose low bits are what
wrapping arithmetic of the narrow type gives. A kernel in float32 is then compared with a result
that carries no rounding of its own.
"""

from typing import Any

import numpy as np

_INTEGERS = {"b": np.int64, "i": np.int64, "u": np.uint64}


def widened(x: np.ndarray) -> np.ndarray:
    """The array in float64, int64 or uint64; complex arrays in complex128."""
    if x.dtype.kind == "c":
        return x.astype(np.complex128)
    return x.astype(_INTEGERS.get(x.dtype.kind, np.float64))


def lowest(dtype: np.dtype) -> Any:
    """The least value of a type: -inf for floats; what padding must be for a maximum."""
    if dtype.kind == "b":
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def highest(dtype: np.dtype) -> Any:
    """The greatest value of a type: inf for floats."""
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf
