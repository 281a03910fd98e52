"""What instructions compute of values: IEEE arithmetic and integers that wrap around, an element a thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

from xcompile.compiler.ptx.memory import UNSIGNED, Array
from xcompile.compiler.ptx.values import TYPES

Function: TypeAlias = Callable[..., Array]

_ROUNDINGS: Mapping[str, Function] = {
    "rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil,
}  # fmt: skip


def is_float(kind: str) -> bool:
    """Whether a type is one of floats."""
    return kind in ("f16", "bf16", "f32", "f64")


def fused(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` of floats of at most 32 bits, rounded once.

    The sum in float64 is rounded to odd, which leaves what the second rounding must know.
    """
    dtype = a.dtype
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    odd = _odd(total, error)
    if dtype == TYPES["bf16"]:  # which numpy makes of float32
        with np.errstate(over="ignore"):
            near = odd.astype(np.float32)
        return _odd(near, odd - near).astype(dtype)
    return odd.astype(dtype)


def _odd(near: Array, error: Array) -> Array:
    """A sum that was rounded to nearest, rounded to odd instead; `error` is what it lacks."""
    bits = np.asarray(near).view(np.int64 if near.dtype == np.float64 else np.int32)
    inexact = np.isfinite(near) & (error != 0) & (bits & 1 == 0)
    away = (error > 0) == (near > 0)
    return np.where(inexact, bits + np.where(away, 1, -1), bits).astype(bits.dtype).view(near.dtype)


def _fused_double(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    try:
        return float(exact) if exact else a * b + c
    except OverflowError:
        return math.copysign(math.inf, exact)


_FUSED_DOUBLES: Function = np.vectorize(_fused_double, otypes=[np.float64])


def _extreme(choose: Function, join: Function) -> Function:
    """The larger or smaller of two floats, -0 below +0."""

    def extreme(a: Array, b: Array) -> Array:
        a, b = np.broadcast_arrays(a, b)
        bits = UNSIGNED[a.dtype.itemsize]
        zero = join(np.ascontiguousarray(a).view(bits), np.ascontiguousarray(b).view(bits))
        return np.where((a == 0) & (b == 0), zero.view(a.dtype), choose(a, b))

    return extreme


def _reciprocal(a: Array) -> Array:
    return np.divide(np.ones_like(a), a)


def _copy_sign(sign: Array, a: Array) -> Array:
    return np.copysign(a, sign)


_FLOATS: Mapping[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "sqrt": np.sqrt,
    "rcp": _reciprocal,
    "neg": np.negative,
    "abs": np.abs,
    "copysign": _copy_sign,
    "fma": fused,
}

_EXTREMES: Mapping[tuple[str, bool], Function] = {
    ("max", False): _extreme(np.fmax, np.bitwise_and),
    ("min", False): _extreme(np.fmin, np.bitwise_or),
    ("max", True): _extreme(np.maximum, np.bitwise_and),
    ("min", True): _extreme(np.minimum, np.bitwise_or),
}


def _quotient(a: Array, b: Array) -> Array:
    """Integer division toward zero; anything by zero is all ones, as on the hardware."""
    safe = np.where(b == 0, np.ones_like(b), b)
    down = a // safe
    toward = down + ((a % safe != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, np.array(-1).astype(np.asarray(a).dtype), toward)


def _remainder(a: Array, b: Array) -> Array:
    return np.where(b == 0, a, a - _quotient(a, b) * b)


def _shift_left(a: Array, amount: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    moved = a << np.minimum(amount, bits - 1).astype(a.dtype)
    return np.where(amount >= bits, np.zeros_like(a), moved)


def _shift_right(a: Array, amount: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    moved = a >> np.minimum(amount, bits - 1).astype(a.dtype)
    if np.issubdtype(a.dtype, np.signedinteger):
        return moved
    return np.where(amount >= bits, np.zeros_like(a), moved)


def _extract(a: Array, start: Array, length: Array) -> Array:
    """`bfe`: a field of bits, with its sign where the type has one."""
    bits = 8 * a.dtype.itemsize
    unsigned = UNSIGNED[a.dtype.itemsize]
    start, length = np.minimum(start & 0xFF, bits), np.minimum(length & 0xFF, bits)
    left = bits - np.minimum(start + length, bits)
    field = _shift_left(a.view(unsigned), left).view(a.dtype)
    moved = _shift_right(field, left + start)
    return np.where(length == 0, np.zeros_like(a), moved)


def leading_zeros(a: Array) -> Array:
    """How many bits of an unsigned integer stand before its first 1."""
    bits = 8 * a.dtype.itemsize
    count = np.zeros(a.shape, np.uint32)
    rest = a.copy()
    for step in (32, 16, 8, 4, 2, 1):
        if step < bits:
            high = rest >> np.array(bits - step, a.dtype) == 0
            count += np.where(high, step, 0).astype(np.uint32)
            rest = np.where(high, rest << np.array(step, a.dtype), rest)
    return count + (a == 0)


_INTEGERS: Mapping[str, Function] = {
    "add": np.add,
    "sub": np.subtract,
    "div": _quotient,
    "rem": _remainder,
    "neg": np.negative,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}


def operation(parts: tuple[str, ...]) -> Function | None:
    """What an instruction whose operands are all of its last type computes; None for other instructions."""
    name, kind = parts[0], parts[-1]
    if kind not in TYPES:
        return None
    if is_float(kind):
        if name in ("max", "min"):
            return _EXTREMES[name, "NaN" in parts]
        exact = name in ("neg", "abs", "copysign", "add", "sub", "mul")
        if name == "fma" and kind == "f64":
            return _FUSED_DOUBLES
        return _FLOATS.get(name) if exact or "rn" in parts else None
    return _INTEGERS.get(name)


def shift(name: str) -> Function:
    """What `shl`, `shr` and `bfe` compute; the operands behind the first are 32-bit numbers."""
    return {"shl": _shift_left, "shr": _shift_right, "bfe": _extract}[name]


def multiply(a: Array, b: Array, part: str) -> Array:
    """A product of integers: its "lo" or "hi" half, or all of it ("wide")."""
    if part == "lo":
        return a * b
    width = a.dtype.itemsize
    sign = "i" if np.issubdtype(a.dtype, np.signedinteger) else "u"
    if width < 8:
        product = a.astype(f"{sign}{2 * width}") * b.astype(f"{sign}{2 * width}")
        return product if part == "wide" else (product >> (8 * width)).astype(a.dtype)
    return _high_half(a, b, signed=sign == "i")


def _high_half(a: Array, b: Array, *, signed: bool) -> Array:
    """The upper 64 bits of a product of 64-bit numbers."""
    x, y = a.astype(np.uint64), b.astype(np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    x0, x1, y0, y1 = x & low, x >> half, y & low, y >> half
    middle = x1 * y0 + (x0 * y0 >> half)
    other = x0 * y1 + (middle & low)
    high = x1 * y1 + (middle >> half) + (other >> half)
    if signed:
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.astype(a.dtype)


def compare(name: str, a: Array, b: Array) -> Array | None:
    """What `setp` says; a name with a "u" behind it is true for NaN too. None for an unknown name."""
    ordered = (a == a) & (b == b)
    if name in ("num", "nan"):
        return ordered if name == "num" else ~ordered
    plain: Mapping[str, Function] = {
        "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
        "ne": np.not_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
    }  # fmt: skip
    if name in plain:
        return plain[name](a, b) & ordered
    if name.endswith("u") and name[:-1] in plain:
        return plain[name[:-1]](a, b) | ~ordered
    return None


def convert(x: Array, source: str, target: str, modes: tuple[str, ...]) -> Array | None:
    """What `cvt` makes of a value; None for a conversion that is not known."""
    dtype: type[Any] = TYPES[target]
    rounding = next((_ROUNDINGS[mode] for mode in modes if mode in _ROUNDINGS), None)
    unknown = set(modes) - {"rn", "sat", *_ROUNDINGS}
    if unknown or "sat" in modes:
        return None
    if not is_float(source):
        return x.astype(dtype)
    if is_float(target):
        return (rounding(x) if rounding else x).astype(dtype)
    if rounding is None:
        return None
    limits, whole = np.iinfo(dtype), rounding(x.astype(np.float64))
    inside = np.clip(np.nan_to_num(whole, nan=0.0), float(limits.min), float(limits.max))
    top = whole >= float(limits.max)
    return np.where(top, limits.max, np.where(top, 0.0, inside).astype(dtype)).astype(dtype)


def to_tf32(bits: Array) -> Array:
    """The bits of float32 values rounded to the 10 bits of fraction of tf32, ties away from zero."""
    infinity, fraction = np.uint32(0x7F800000), np.uint32(0x1FFF)
    magnitude = bits & np.uint32(0x7FFFFFFF)
    rounded = (bits + np.uint32(0x1000)) & ~fraction
    special = np.where(magnitude > infinity, np.uint32(0x7FFFE000), bits)
    return np.where(magnitude >= infinity, special, rounded)
