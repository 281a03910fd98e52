"""Transposed convolutions as ordinary ones: one for each phase of the output.

Output pixels whose number leaves the same rest by the stride, a phase, meet the same taps of the kernel. For one
place on the grid of input pixels, all phases read one window, most of it in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil, prod

import numpy as np

from xcompile.compiler.schedule.window import Window


@dataclass(frozen=True)
class Phases:
    """The phases of a transposed convolution, along height and width, and depth before them.

    Attributes:
        factors: the strides: how many phases there are, and output pixels for one place of the window.
        taps: rows and columns of the window that one phase reads.
        starts: phase i reads from row (or column) `(i + start) // factor` of the window on.
        missing: how many phases the output lacks at its last place.
    """

    factors: tuple[int, ...] = (1, 1)
    taps: tuple[int, ...] = (1, 1)
    starts: tuple[int, ...] = (0, 0)
    missing: tuple[int, ...] = (0, 0)

    @property
    def count(self) -> int:
        """The number of phases."""
        return prod(self.factors)


def transposed(
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    output_pads: Sequence[int],
) -> tuple[Window, Phases]:
    """The window that slides over the input of a transposed convolution, and its phases.

    Arguments are those of the op, along two axes or three; the window's pads may be negative: such a convolution
    drops results of the image's edge.
    """
    rank = len(kernel)
    taps, starts, missing, size, before, after = ([0] * rank for _ in range(6))
    for axis in range(rank):
        stride, begin, end = strides[axis], pads[axis], pads[axis + rank]
        span = (kernel[axis] - 1) * dilations[axis] + 1
        extra = (
            span + output_pads[axis] - begin - end - stride
        )  # output pixels beyond stride times input
        first = begin // stride
        taps[axis], starts[axis] = ceil(span / stride), begin % stride
        missing[axis] = -extra % stride
        reach = (stride - 1 + starts[axis]) // stride
        size[axis] = taps[axis] + reach
        before[axis] = taps[axis] - 1 - first
        after[axis] = ceil(extra / stride) + first + reach
    ones = (1,) * rank
    window = Window(tuple(size), ones, (*before, *after), ones)
    return window, Phases(tuple(strides), tuple(taps), tuple(starts), tuple(missing))


def phase_weights(weight: np.ndarray, phases: Phases, dilations: Sequence[int]) -> np.ndarray:
    """The weights of the ordinary convolutions.

    Args:
        weight: (c, oc, kernel…), of the transposed convolution.
        phases: its phases.
        dilations: its dilations.

    Returns:
        (phases, oc, c, taps…): that of phase (i, j) at `i · factor + j`.
    """
    c, oc, *kernel = weight.shape
    lengths = [t * s for t, s in zip(phases.taps, phases.factors, strict=True)]
    padded = np.zeros((c, oc, *lengths), weight.dtype)
    spread = [slice(0, (k - 1) * d + 1, d) for k, d in zip(kernel, dilations, strict=True)]
    padded[(slice(None), slice(None), *spread)] = weight
    parts = padded.reshape(c, oc, *chain(*zip(phases.taps, phases.factors, strict=True)))
    for axis, (factor, start) in enumerate(zip(phases.factors, phases.starts, strict=True)):
        parts = np.flip(parts, 2 + 2 * axis)
        parts = np.take(parts, (np.arange(factor) + start) % factor, 3 + 2 * axis)
    rank = len(kernel)
    taps, places = range(2, 2 + 2 * rank, 2), range(3, 3 + 2 * rank, 2)
    ordered = np.ascontiguousarray(parts.transpose(*places, 1, 0, *taps))
    return ordered.reshape(-1, oc, c, *phases.taps)
