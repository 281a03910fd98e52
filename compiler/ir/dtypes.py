"""Element types: between numpy's dtypes, MLIR's types and their short text.

Signed integers are signless in MLIR (`i8`), unsigned ones are `ui8`, bool is `i1`. The short text
is MLIR's own and serves as the dtype's name everywhere in the compiler.
"""

from functools import cache

import ml_dtypes
import numpy as np
from torch_mlir import ir

DTYPES: dict[str, np.dtype] = {
    "i1": np.dtype(np.bool_),
    "i2": np.dtype(ml_dtypes.int2),
    "ui2": np.dtype(ml_dtypes.uint2),
    "i4": np.dtype(ml_dtypes.int4),
    "ui4": np.dtype(ml_dtypes.uint4),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "ui8": np.dtype(np.uint8),
    "ui16": np.dtype(np.uint16),
    "ui32": np.dtype(np.uint32),
    "ui64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "f8E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8E8M0FNU": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
    "complex<f32>": np.dtype(np.complex64),
    "complex<f64>": np.dtype(np.complex128),
}
"""Every element type, by its short text."""

_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def name_of(dtype: np.dtype) -> str:
    """The short text of a numpy dtype, native byte order; KeyError when there is none."""
    return _NAMES[dtype.newbyteorder("=")]


@cache
def _bits(name: str) -> int:
    small = {"i1": 1, "i2": 2, "ui2": 2, "i4": 4, "ui4": 4, "f4E2M1FN": 4}
    return small.get(name) or DTYPES[name].itemsize * 8


def bits_of(name: str) -> int:
    """Bits an element of this type carries: 1 for i1, 4 for i4, though each has a byte of its own."""
    return _bits(name)


def is_float(name: str) -> bool:
    """Whether a dtype is a float."""
    return name.startswith(("f", "bf"))


def is_small_float(name: str) -> bool:
    """Whether a dtype is a float of 8 or 4 bits, which registers hold as its bits."""
    return name.startswith(("f8", "f4"))


def is_unsigned(name: str) -> bool:
    """Whether a dtype is an unsigned integer."""
    return name.startswith("ui")


def is_integer(name: str) -> bool:
    """Integers without bool."""
    return name != "i1" and name.startswith(("i", "ui"))


def element_type(name: str) -> ir.Type:
    """The MLIR type of a short text, in the current context."""
    return ir.Type.parse(name)
