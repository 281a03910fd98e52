"""What is known of the numbers that ops get.

Conversion of floats is cheap where they fit the integers; so are the larger and the smaller of two where none is NaN.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of, is_float, is_integer
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.rewrite import maker, users
from xcompile.compiler.ir.weights import WeightStore
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.binary import Maximum, Minimum
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.quantize import limits
from xcompile.dialects.nn.unary import Cast, Round

_MOST_OPS = 12
"""So far back bounds are looked for."""

_MOST_ELEMENTS = 1 << 16
"""Larger constants are not looked at."""

_MONOTONIC = {"nn.round": round, "nn.floor": math.floor, "nn.ceil": math.ceil}
"""Ops that map bounds to bounds."""

_BOUNDED = frozenset({*_MONOTONIC, "nn.maximum", "nn.minimum", "nn.relu", "nn.clip"})
"""Ops whose bounds are known, given those of their operands."""


def fits_int32(cast: Cast) -> bool:
    """Whether a cast is from floats that are NaN or fit int32."""
    if dtype_of(cast.x) not in ("f32", "f64"):
        return False
    low, high = _bounds(cast.x, _MOST_OPS)
    return low >= -(2**31) and high < 2**31


def _bounds(value: Value, most: int) -> tuple[float, float]:
    """The least and the greatest that elements can be which are not NaN, as constants around them say."""
    constant = const_of(value)
    if constant is not None:
        number = float(constant.scalar()) if constant.splat else math.nan
        return (-math.inf, math.inf) if math.isnan(number) else (number, number)
    op: Any = None if isinstance(value.owner, ir.Block) else view(value.owner)
    if op is None or not most or op.NAME not in _BOUNDED:
        return -math.inf, math.inf
    found = [_bounds(v, most - 1) for v in op.operands if is_float(dtype_of(v))]
    lows, highs = [b[0] for b in found], [b[1] for b in found]
    if op.NAME == "nn.maximum":
        return max(lows), max(highs)
    if op.NAME == "nn.minimum":
        return min(lows), min(highs)
    if op.NAME in _MONOTONIC and math.isfinite(lows[0] - highs[0]):
        return _MONOTONIC[op.NAME](lows[0]), _MONOTONIC[op.NAME](highs[0])
    if op.NAME == "nn.relu":
        return max(lows[0], 0.0), max(highs[0], 0.0)
    if op.NAME == "nn.clip":
        return _clipped(op, most)
    return -math.inf, math.inf


def _clipped(clip: Any, most: int) -> tuple[float, float]:
    """The bounds of a clip; the upper one wins where it is below the lower one."""
    low, high = _bounds(clip.x, most - 1)
    if clip.low is not None:
        least = _bounds(clip.low, 0)
        low, high = max(low, least[0]), max(high, least[1])
    if clip.high is not None:
        greatest = _bounds(clip.high, 0)
        low, high = min(low, greatest[0]), min(high, greatest[1])
    return low, high


# -- NaN, and the sign of zero ------------------------------------------------------------------------

_NO_LARGER = frozenset(
    f"nn.{name}" for name in ("relu", "abs", "neg", "maximum", "minimum", "clip", "hard_swish")
)
"""Ops whose results are no larger than the largest operand."""

_AT_MOST_ONE = frozenset(f"nn.{name}" for name in ("sigmoid", "hard_sigmoid", "tanh", "erf"))
"""Ops whose results lie in [-1, 1]."""

_WHOLE = frozenset({"nn.round", "nn.floor", "nn.ceil"})

_SMOOTH = frozenset({"nn.add", "nn.sub", "nn.mul", *_NO_LARGER, *_WHOLE}) - {
    "nn.abs",
    "nn.hard_swish",
}
"""Ops in whose results the sign of an operand that is zero is seen in the sign of a zero only."""


_MAGNITUDES: dict[str, Callable[[list[float]], float]] = {
    "nn.add": sum,
    "nn.sub": sum,
    "nn.mul": math.prod,
    **dict.fromkeys(_NO_LARGER, max),
    **dict.fromkeys(_WHOLE, lambda sizes: sizes[0] + 1),
    **dict.fromkeys(_AT_MOST_ONE, lambda sizes: 1.0),
}
"""How large the results of ops can be, given how large their operands can be."""


def plain_numbers(op: Maximum | Minimum | Cast, weights: WeightStore) -> bool:
    """Whether no float32 that the op gets is NaN, and nothing tells a result of -0 from one of +0."""
    floats = op.operands if isinstance(op, Maximum | Minimum) else [op.x]
    if any(dtype_of(v) != "f32" for v in floats):
        return False
    numbers = all(math.isfinite(_magnitude(v, weights, _MOST_OPS)) for v in floats)
    return numbers and (isinstance(op, Cast) or _zeros_are_alike(op.results[0], _MOST_OPS))


def _magnitude(value: Value, weights: WeightStore, most: int) -> float:
    """What no element is larger than in magnitude; infinite where one may be NaN, or too large for float32."""
    found = _unlimited(value, weights, most)
    return found if found < float(np.finfo(np.float32).max) else math.inf


def _unlimited(value: Value, weights: WeightStore, most: int) -> float:
    constant, op = const_of(value), maker(value)
    if constant is not None:
        if not constant.splat and math.prod(constant.dims) > _MOST_ELEMENTS:
            return math.inf
        elements = constant.scalar() if constant.splat else constant.array(weights)
        array = np.abs(np.asarray(elements).astype(np.float64))
        return float(np.max(array, initial=0.0)) if np.isfinite(array).all() else math.inf
    if op is None or not most:
        return math.inf
    if isinstance(op, Cast) and not is_float(dtype_of(op.x)):
        return 2.0 ** bits_of(dtype_of(op.x))
    combine = _MAGNITUDES.get(op.NAME)
    if combine is None or dtype_of(value) != "f32":
        return math.inf
    sizes = list[float]()
    for operand in op.operands:
        sizes.append(_magnitude(operand, weights, most - 1))
        if not math.isfinite(sizes[-1]):
            return math.inf
    return combine(sizes)


def _zeros_are_alike(value: Value, most: int) -> bool:
    """Whether all that is made of the value are integers in which -0 and +0 are the same."""
    for operation in users(value):
        op = view(operation)
        if isinstance(op, Cast) and is_integer(op.to):
            continue
        if op is None or op.NAME not in _SMOOTH or not most:
            return False
        if not _zeros_are_alike(op.results[0], most - 1):
            return False
    return True


# -- floats that were integers for a while ------------------------------------------------------------


def float_before(cast: Cast, weights: WeightStore) -> Value | None:
    """The whole floats that a cast of integers gives back, when these were made of them by a cast and no more.

    That is what a quantization with a dequantization behind it is: convert, add the zero point, narrow, widen,
    subtract the zero point, convert. What tells -0 from +0 is not changed.
    """
    if cast.to != "f32" or not is_integer(dtype_of(cast.x)):
        return None
    value, shift, stages = cast.x, 0, list[tuple[str, int]]()
    op = maker(value)
    while op is not None and not (isinstance(op, Cast) and is_float(dtype_of(op.x))):
        stages.append((dtype_of(value), shift))
        step = _shifted(op)
        if step is None or len(stages) > _MOST_OPS:
            return None
        value, shift = step[0], shift + step[1]
        op = maker(value)
    if not isinstance(op, Cast) or shift or maker(op.x) is None:
        return None
    stages.append((dtype_of(value), shift))
    low, high = _bounds(op.x, _MOST_OPS)
    if not (isinstance(maker(op.x), Round) and max(-low, high) <= 1 << _EXACT):
        return None
    kept = all(_holds(dtype, low - moved, high - moved) for dtype, moved in stages)
    alike = kept and plain_numbers(op, weights) and _zeros_are_alike(cast.y, _MOST_OPS)
    return op.x if alike else None


_EXACT = 24
"""Whole numbers of so many bits are exact in float32."""


def _shifted(op: Op) -> tuple[Value, int] | None:
    """The integers that an op adds a number to, and that; a cast between integers adds 0."""
    if isinstance(op, Cast):
        return op.x, 0
    if op.NAME not in ("nn.add", "nn.sub"):
        return None
    constant = const_of(op.operands[1])
    if constant is None or not constant.splat or op.operands[0].type != op.results[0].type:
        return None
    number = int(constant.scalar())
    return op.operands[0], number if op.NAME == "nn.add" else -number


def _holds(dtype: str, low: float, high: float) -> bool:
    """Whether an integer type has all whole numbers from `low` to `high`."""
    if not is_integer(dtype):
        return False
    least, most = limits(dtype)
    return least <= low and high <= most
