"""Depthwise convolution: each channel has a window of its own; the problem, its schedules, its weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from xcompile.compiler.schedule.products import product_form, written_for
from xcompile.compiler.schedule.schedule import TargetNumbers
from xcompile.compiler.schedule.window import (
    Size,
    Window,
    WindowSchedule,
    window_heuristic,
    window_space,
)


@dataclass(frozen=True)
class DepthwiseProblem:
    """A convolution with as many groups as input and output channels.

    Attributes:
        n: batch size.
        c: channels.
        h: rows of the input.
        w: columns of the input.
        window: kernel, strides, pads and dilations, over height and width.
        dtype: of the image; weights are float32, or int8 where it has 8-bit integers, whose sums are int32.
        d: images of a volume.
        depth: the window along the depth of a volume; None for images.
    """

    n: Size
    c: int
    h: Size
    w: Size
    window: Window
    dtype: Literal["f32", "i8", "ui8"] = "f32"
    d: Size = 1
    depth: Window | None = None

    @property
    def is_integer(self) -> bool:
        """Whether operands are 8-bit integers."""
        return self.dtype != "f32"


def heuristic(problem: DepthwiseProblem, target: TargetNumbers) -> WindowSchedule:
    """A good schedule at once.

    Raises:
        ScheduleError: the family does not take the problem.
    """
    return window_heuristic(problem, target, weighted=True, spare=_spare(problem))


def space(problem: DepthwiseProblem, target: TargetNumbers) -> Iterator[WindowSchedule]:
    """All legal schedules, the heuristic's first."""
    return window_space(problem, target, weighted=True, spare=_spare(problem))


def pack(weight: np.ndarray, target: TargetNumbers) -> np.ndarray:
    """Weights in the order of use: [block][kd][kh][kw][V].

    Args:
        weight: floats of at most 32 bits, (c, 1, kernel…).
        target: the machine.

    Returns:
        A flat array of the same type; channels that do not exist have zeros.
    """
    lanes = target.lanes(32)
    weight = _rows(weight)
    c, kh, kw = weight.shape
    blocks = -(-c // lanes)
    padded = np.zeros((blocks * lanes, kh, kw), weight.dtype)
    padded[:c] = weight
    blocked = padded.reshape(blocks, lanes, kh, kw).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(blocked).reshape(-1)


def _rows(weight: np.ndarray) -> np.ndarray:
    """Weights (c, 1, kernel…) as [c][rows of all images][kw]."""
    return weight.reshape(len(weight), -1, weight.shape[-1])


def _spare(problem: DepthwiseProblem) -> int:
    """Registers beside those of floats: two products not yet added, or how bytes are ordered, and the padding."""
    return 3 if problem.is_integer else 0


def takes_pairs(target: TargetNumbers) -> bool:
    """Whether integers of two rows are multiplied and added up by one instruction, as x86 can."""
    return written_for(target, "sse2")


COLUMNS = 4
"""Neighbouring columns that a dot product takes."""


def column_groups(window: Window) -> int:
    """How many dot products a row of the window takes."""
    return -(-window.kernel[1] // COLUMNS)


def takes_dots(problem: DepthwiseProblem, target: TargetNumbers) -> bool:
    """Whether an instruction multiplies four neighbouring columns and adds them up, and the window has such."""
    form = product_form(problem.dtype, "i8", target) if problem.is_integer else None
    if form is None or form.instruction not in ("vpdpbusd", "sdot"):
        return False
    window = problem.window
    return problem.depth is None and window.dilations[1] == 1 and window.kernel[1] > 1


def pack_integers(
    weight: np.ndarray, problem: DepthwiseProblem, target: TargetNumbers
) -> np.ndarray:
    """Weights of integers in the order of use, block by block of channels.

    Where four columns are multiplied at a time, [kh][kw / 4][V][4]. Else the sum of each channel's window, as int32
    [V]; then [kd][kh][kw][V], or with pairs of rows [kd][kh][2][kw][V][2]: each row with the next, and each alone.

    Args:
        weight: int8, (c, 1, kernel…).
        problem: the convolution.
        target: the machine.

    Returns:
        A flat int8 array; channels and columns that do not exist have zeros.
    """
    lanes = target.lanes(32)
    weight = _rows(weight)
    c, kh, kw = weight.shape
    blocks = -(-c // lanes)
    if takes_dots(problem, target):
        groups = column_groups(problem.window)
        wide = np.zeros((blocks * lanes, kh, groups * COLUMNS), np.int8)
        wide[:c, :, :kw] = weight
        grouped = wide.reshape(blocks, lanes, kh, groups, COLUMNS).transpose(0, 2, 3, 1, 4)
        return np.ascontiguousarray(grouped).reshape(-1)
    padded = np.zeros((blocks * lanes, kh + 1, kw), np.int8)
    padded[:c, :kh] = weight
    rows = padded.reshape(blocks, lanes, kh + 1, kw).transpose(0, 2, 3, 1)
    taps = rows[:, :kh]
    sums = taps.sum(axis=(1, 2), dtype=np.int32)
    if takes_pairs(target):
        following = np.stack([rows[:, 1:], np.zeros_like(taps)], axis=2)
        each = np.broadcast_to(taps[:, :, None], following.shape)
        taps = np.stack([each, following], axis=-1)
    parts = [np.ascontiguousarray(part).reshape(blocks, -1) for part in (sums, taps)]
    return np.concatenate([part.view(np.int8) for part in parts], axis=1).reshape(-1)
