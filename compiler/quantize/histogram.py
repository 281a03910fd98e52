"""What is remembered of a tensor while samples stream by: counts in fixed bins, and exact sums of channels.

The bins are the same for every tensor: a number's bin is the upper half of its 32 bits, that is sign, exponent and
seven bits of mantissa. So memory does not grow with the samples, nothing has to be known of the range beforehand, and
counts are integers: any order of samples, any batches and any merge of parts give the same bits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

BINS = 1 << 16
"""Bins of a histogram; 128 for each power of two and sign."""

_NEGATIVE = 1 << 15
_FINITE = 0x7F80
"""Bins of finite numbers of one sign."""
_QUANTUM = 2.0**100
"""Sums of channels are integers of 2⁻¹⁰⁰."""
_CHUNK = 1 << 18
"""Elements that are counted at a time, so that they stay in the cache."""

EDGES = (np.arange(_FINITE + 1, dtype=np.uint32) << 16).view(np.float32).astype(np.float64)
"""Where the bins of positive numbers begin; the last one is the end of them, 2¹²⁸."""
EDGES[-1] = 2.0**128
EDGES.flags.writeable = False


@dataclass
class Histogram:
    """The numbers of a tensor, counted.

    Attributes:
        counts: int64 [BINS], of the numbers in each bin.
        low: the least number, inf while there is none.
        high: the greatest number, -inf while there is none.
    """

    counts: np.ndarray = field(default_factory=lambda: np.zeros(BINS, np.int64))
    low: float = np.inf
    high: float = -np.inf

    def add(self, numbers: np.ndarray) -> None:
        """Count the numbers of a float32 array of any shape.

        Raises:
            ValueError: one is not finite; nothing is counted then.
        """
        flat = np.ascontiguousarray(numbers, np.float32).reshape(-1)
        if not flat.size:
            return
        low, high = float(flat.min()), float(flat.max())
        if not (np.isfinite(low) and np.isfinite(high)):
            raise ValueError("a number is NaN or infinite")
        self.low, self.high = min(self.low, low), max(self.high, high)
        bits = flat.view(np.uint32)
        for begin in range(0, flat.size, _CHUNK):
            found = np.bincount(bits[begin : begin + _CHUNK] >> 16)
            self.counts[: found.size] += found

    def merge(self, other: "Histogram") -> None:
        """Add what another one has counted."""
        self.counts += other.counts
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)

    @property
    def total(self) -> int:
        """How many numbers were counted."""
        return int(self.counts.sum())

    def magnitudes(self) -> np.ndarray:
        """The counts of absolute values, int64 [bins of positive numbers], which `EDGES` delimits."""
        return self.counts[:_FINITE] + self.counts[_NEGATIVE : _NEGATIVE + _FINITE]

    def points(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The middle, the width and the count of each bin that is not empty, negative ones first, in float64."""
        middles, widths = (EDGES[:-1] + EDGES[1:]) / 2, np.diff(EDGES)
        middles[0] = 0.0
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for first, sign in ((_NEGATIVE, -1.0), (0, 1.0)):
            counts = self.counts[first : first + _FINITE]
            kept = np.flatnonzero(counts)[:: int(sign)]
            found.append((sign * middles[kept], widths[kept], counts[kept].astype(np.float64)))
        (a, b, c), (d, e, f) = found
        return np.concatenate((a, d)), np.concatenate((b, e)), np.concatenate((c, f))

    def state(self) -> dict[str, np.ndarray]:
        """The counts as arrays; `restored` reads them."""
        kept = np.flatnonzero(self.counts)
        limits = np.array([self.low, self.high])
        return {"bins": kept.astype(np.uint16), "counts": self.counts[kept], "limits": limits}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """The histogram that `state` described."""
        made = cls(low=float(state["limits"][0]), high=float(state["limits"][1]))
        made.counts[state["bins"]] = state["counts"]
        return made


class ChannelSums:
    """Sums of a tensor's channels, exact: whole multiples of 2⁻¹⁰⁰, whatever the order.

    Attributes:
        count: how many numbers each sum is of.
    """

    def __init__(self) -> None:
        self._sums: list[int] = []
        self.count = 0

    def add(self, sample: np.ndarray, axis: int) -> None:
        """Add one sample.

        Args:
            sample: float32, finite.
            axis: of the channels.

        Raises:
            ValueError: the number of channels is not what it was.
        """
        rows = np.moveaxis(sample, axis, 0).reshape(sample.shape[axis], -1)
        sums = np.ascontiguousarray(rows).sum(axis=1, dtype=np.float64)
        self._accumulate([int(v) for v in (sums * _QUANTUM).tolist()], rows.shape[1])

    def merge(self, other: "ChannelSums") -> None:
        """Add what another one has summed.

        Raises:
            ValueError: it has another number of channels.
        """
        if other.count:
            self._accumulate(other._sums, other.count)

    def means(self) -> np.ndarray:
        """The mean of each channel, float64; empty when nothing was added."""
        if not self.count:
            return np.zeros(0)
        return np.array([v / self.count / _QUANTUM for v in self._sums])

    def state(self) -> dict[str, Any]:
        """The sums as JSON values; `restored` reads them."""
        return {"sums": [str(v) for v in self._sums], "count": self.count}

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Self:
        """The sums that `state` described."""
        made = cls()
        made._sums = [int(v) for v in state["sums"]]
        made.count = int(state["count"])
        return made

    def _accumulate(self, sums: list[int], count: int) -> None:
        if not self.count:
            self._sums = [0] * len(sums)
        if len(sums) != len(self._sums):
            raise ValueError(f"{len(sums)} channels instead of {len(self._sums)}")
        self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)]
        self.count += count


class ChannelPeaks:
    """The greatest magnitude of each channel of a tensor; the same in any order.

    Attributes:
        values: float32 [channels]; empty when nothing was added.
    """

    def __init__(self, values: Sequence[float] = ()) -> None:
        self.values = np.array(values, np.float32)

    def add(self, sample: np.ndarray, axis: int) -> None:
        """Add one sample.

        Args:
            sample: float32, finite, with elements.
            axis: of the channels.

        Raises:
            ValueError: the number of channels is not what it was.
        """
        others = tuple(a for a in range(sample.ndim) if a != axis % sample.ndim)
        self._raise(np.maximum(sample.max(axis=others), -sample.min(axis=others)))

    def merge(self, other: "ChannelPeaks") -> None:
        """Add what another one has seen.

        Raises:
            ValueError: it has another number of channels.
        """
        if other.values.size:
            self._raise(other.values)

    def _raise(self, values: np.ndarray) -> None:
        if not self.values.size:
            self.values = np.zeros_like(values)
        if values.shape != self.values.shape:
            raise ValueError(f"{values.size} channels instead of {self.values.size}")
        self.values = np.maximum(self.values, values)
