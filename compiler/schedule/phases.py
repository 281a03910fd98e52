"""Transposed convolutions as ordinary ones: one for each phase of the output.

Output pixels whose number leaves the same rest by the stride, a phase, meet the same taps of the kernel. For one
place on the grid of input pixels, all phases read one window, most of it in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from xcompile.compiler.schedule.window import Window


@dataclass(frozen=True)
class Phases:
    """The phases of a transposed convolution, along height and width.

    Attributes:
        factors: the strides: how many phases there are, and output pixels for one place of the window.
        taps: rows and columns of the window that one phase reads.
        starts: phase i reads from row (or column) `(i + start) // factor` of the window on.
        missing: how many phases the output lacks at its last place.
    """

    factors: tuple[int, int] = (1, 1)
    taps: tuple[int, int] = (1, 1)
    starts: tuple[int, int] = (0, 0)
    missing: tuple[int, int] = (0, 0)

    @property
    def count(self) -> int:
        """The number of phases."""
        return self.factors[0] * self.factors[1]


def transposed(
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    output_pads: Sequence[int],
) -> tuple[Window, Phases]:
    """The window that slides over the input of a transposed convolution, and its phases.

    Arguments are those of the op, each along height and width; the window's pads may be negative: such a convolution
    drops results of the image's edge.
    """
    taps, starts, missing, size, before, after = ([0, 0] for _ in range(6))
    for axis in (0, 1):
        stride, begin, end = strides[axis], pads[axis], pads[axis + 2]
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
    window = Window((size[0], size[1]), pads=(before[0], before[1], after[0], after[1]))
    phases = Phases(
        (strides[0], strides[1]),
        (taps[0], taps[1]),
        (starts[0], starts[1]),
        (missing[0], missing[1]),
    )
    return window, phases


def phase_weights(weight: np.ndarray, phases: Phases, dilations: Sequence[int]) -> np.ndarray:
    """The weights of the ordinary convolutions.

    Args:
        weight: (c, oc, kh, kw), of the transposed convolution.
        phases: its phases.
        dilations: its dilations.

    Returns:
        (phases, oc, c, taps…): that of phase (i, j) at `i · factor + j`.
    """
    c, oc, kh, kw = weight.shape
    (sh, sw), (th, tw) = phases.factors, phases.taps
    padded = np.zeros((c, oc, th * sh, tw * sw), weight.dtype)
    dh, dw = dilations
    padded[:, :, : (kh - 1) * dh + 1 : dh, : (kw - 1) * dw + 1 : dw] = weight
    parts = padded.reshape(c, oc, th, sh, tw, sw)[:, :, ::-1, :, ::-1]
    rows, columns = (
        (np.arange(s) + r) % s for s, r in zip(phases.factors, phases.starts, strict=True)
    )
    parts = parts[:, :, :, rows][..., columns]  # (c, oc, th, i, tw, j)
    return np.ascontiguousarray(parts.transpose(3, 5, 1, 0, 2, 4)).reshape(-1, oc, c, th, tw)
