"""What is known of the numbers that a cast gets: conversion of floats is cheap where they fit the integers."""

import math
from typing import Any

from xcompile.compiler.ir.dtypes import is_float
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value, view
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.unary import Cast

_MOST_OPS = 8
"""So far back bounds are looked for."""

_MONOTONIC = {"nn.round": round, "nn.floor": math.floor, "nn.ceil": math.ceil}
"""Ops that map bounds to bounds."""


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
    if op is None or not most:
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
