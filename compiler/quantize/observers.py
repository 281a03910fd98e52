"""Observers: the range that a tensor is quantized in, chosen from the histogram of its numbers.

A range always contains 0, which padding needs to be exact. What lies outside is clipped to its ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from xcompile.compiler.quantize.histogram import EDGES, Histogram
from xcompile.compiler.support.errors import CompileError

LEVELS: Final = 255
"""Steps between the least and the greatest of 8-bit numbers."""

_LEAST_SCALE = 2.0**-100
"""Ranges with smaller steps hold nothing but zeros, as far as float32 arithmetic behind them goes."""
_LINEAR_BINS, _LEAST_BINS, _BIN_STEP = 2048, 256, 8
_TINY = 1e-9
_OCTAVE_PARTS = 8
_OCTAVES = 8


@dataclass(frozen=True)
class Range:
    """The numbers that a tensor is quantized for.

    Attributes:
        low: the least, at most 0.
        high: the greatest, at least 0.
    """

    low: float
    high: float

    def parameters(self) -> tuple[np.float32, int]:
        """Scale and zero point of unsigned 8-bit numbers.

        The scale is a positive, normal, finite float32: 1 where the range is that of a tensor of zeros. 0 is exactly
        the zero point, which lies in 0 … 255.
        """
        scale = np.float32((self.high - self.low) / LEVELS)
        if not scale >= _LEAST_SCALE:
            return np.float32(1), 0
        return scale, int(np.clip(np.rint(-self.low / float(scale)), 0, LEVELS))


Observer = Callable[[Histogram], Range]
"""Chooses a range."""


def min_max(seen: Histogram) -> Range:
    """All numbers: nothing is clipped."""
    return Range(min(seen.low, 0.0), max(seen.high, 0.0))


def percentile(seen: Histogram, percent: float = 99.99) -> Range:
    """So many percent of the absolute values; a bin's numbers count as spread evenly over it."""
    counts = seen.magnitudes()
    cumulative = np.concatenate(([0], np.cumsum(counts)))
    wanted = percent / 100 * cumulative[-1]
    bin_ = int(np.searchsorted(cumulative[1:], wanted))
    if bin_ >= counts.size or not cumulative[-1]:
        return min_max(seen)
    part = (wanted - cumulative[bin_]) / max(counts[bin_], 1)
    return _clipped(seen, float(EDGES[bin_] + part * (EDGES[bin_ + 1] - EDGES[bin_])))


def entropy(seen: Histogram) -> Range:
    """The range in which the distribution of quantized numbers tells most of that of the numbers themselves.

    The Kullback-Leibler divergence of the distribution (2,048 equal bins of absolute values) from what is left of it is
    least. Zeros, which are exact in any range, do not count.
    """
    counts = seen.magnitudes().astype(np.float64)
    counts[0] = 0.0
    greatest = max(-seen.low, seen.high)
    if not counts.any() or not greatest > 0:
        return min_max(seen)
    edges = np.linspace(0.0, greatest, _LINEAR_BINS + 1)
    cumulative = np.concatenate(([0.0], np.cumsum(counts)))
    linear = np.diff(np.interp(edges, EDGES, cumulative))
    linear[-1] += cumulative[-1] - linear.sum()  # what the last bin has beyond the greatest number
    candidates = range(_LEAST_BINS, _LINEAR_BINS + 1, _BIN_STEP)
    divergences = [
        _divergence(linear, kept, _levels_of(seen, float(edges[kept]))) for kept in candidates
    ]
    return _clipped(seen, float(edges[candidates[int(np.argmin(divergences))]]))


def mse(seen: Histogram) -> Range:
    """The range with the least mean square error of the quantized numbers."""
    whole = min_max(seen)
    if not whole.high > whole.low:
        return whole
    factors = 2.0 ** (-np.arange(_OCTAVES * _OCTAVE_PARTS + 1) / _OCTAVE_PARTS)
    fine = 2.0 ** (np.linspace(-1, 1, 2 * _OCTAVE_PARTS + 1) / _OCTAVE_PARTS)
    points = seen.points()
    low, high = whole.low, whole.high
    for by_low, by_high in (
        (factors, factors), (factors, np.ones(1)), (np.ones(1), factors),
        (fine, fine), (fine, np.ones(1)), (np.ones(1), fine),
    ):  # fmt: skip
        lows = np.maximum(low * by_low, whole.low)
        highs = np.minimum(high * by_high, whole.high)
        lows, highs = np.broadcast_arrays(lows, highs)
        best = int(np.argmin(_square_errors(points, lows, highs)))
        low, high = float(lows[best]), float(highs[best])
    return Range(low, high)


OBSERVERS: Final[dict[str, Observer]] = {
    "min-max": min_max,
    "percentile": percentile,
    "entropy": entropy,
    "mse": mse,
}
"""The observers by name."""


def observer_of(text: str) -> Observer:
    """The observer that a text names: a name of `OBSERVERS`, or "percentile:99.9".

    Raises:
        CompileError: XC6005, there is no such observer, or the percentage is not above 0 and at most 100.
    """
    name, colon, number = text.partition(":")
    if not colon and name in OBSERVERS:
        return OBSERVERS[name]
    try:
        percent = float(number) if name == "percentile" else 0.0
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise CompileError(
            "XC6005", f"there is no observer '{text}'",
            help=f"one of {', '.join(OBSERVERS)}, or percentile:99.9",
        )  # fmt: skip
    return lambda seen: percentile(seen, percent)


def _clipped(seen: Histogram, threshold: float) -> Range:
    """The range of all numbers, cut off at both signs of a threshold."""
    return Range(min(max(seen.low, -threshold), 0.0), max(min(seen.high, threshold), 0.0))


def _levels_of(seen: Histogram, threshold: float) -> int:
    """How many steps there are between 0 and the threshold when the range is clipped there."""
    range_ = _clipped(seen, threshold)
    return max(1, round(LEVELS * max(-range_.low, range_.high) / (range_.high - range_.low)))


def _divergence(counts: np.ndarray, kept: int, levels: int) -> float:
    """Of the distribution from what quantization of its first bins leaves of it.

    Clipped numbers lie where nothing is left. Counting them in the last bin, as is usual, hides them behind a spike
    there: channels that are constant on most of an image make spikes.
    """
    inside = counts[:kept]
    total = counts.sum()
    if not inside.any():
        return np.inf
    quantized = np.zeros(counts.size)
    if kept > levels:
        starts = np.arange(levels) * kept // levels
        sizes = np.diff(np.append(starts, kept))
        used = np.add.reduceat((inside > 0).astype(np.float64), starts)
        level = np.add.reduceat(inside, starts) / np.maximum(used, 1)
        quantized[:kept] = np.where(inside > 0, np.repeat(level, sizes), 0.0)
    else:
        quantized[:kept] = inside
    p, q = counts / total, np.maximum(quantized / total, _TINY)
    there = p > 0
    return float((p[there] * np.log(p[there] / q[there])).sum())


def _square_errors(
    points: tuple[np.ndarray, np.ndarray, np.ndarray], lows: np.ndarray, highs: np.ndarray
) -> np.ndarray:
    """The sum of the square errors in each of some ranges.

    Numbers of a bin that is wider than a step are spread over it: their errors are those of rounding at random.
    """
    middles, widths, counts = points
    scales = np.maximum((highs - lows) / LEVELS, _LEAST_SCALE)[:, np.newaxis]
    least = np.rint(lows[:, np.newaxis] / scales)
    steps = np.rint(middles / scales)
    within = np.clip(steps, least, least + LEVELS)
    errors = (middles - within * scales) ** 2
    spread = (within == steps) & (widths >= scales)
    return np.where(spread, scales**2 / 12, errors) @ counts
