"""Depthwise convolution: each channel has a window of its own; the problem, its schedules, its weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

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
    """A float32 convolution with as many groups as input and output channels.

    Attributes:
        n: batch size.
        c: channels.
        h: rows of the input.
        w: columns of the input.
        window: kernel, strides, pads and dilations.
        dtype: "f32".
    """

    n: Size
    c: int
    h: Size
    w: Size
    window: Window
    dtype: Literal["f32"] = "f32"


def heuristic(problem: DepthwiseProblem, target: TargetNumbers) -> WindowSchedule:
    """A good schedule at once.

    Raises:
        ScheduleError: the family does not take the problem.
    """
    return window_heuristic(problem, target, weighted=True)


def space(problem: DepthwiseProblem, target: TargetNumbers) -> Iterator[WindowSchedule]:
    """All legal schedules, the heuristic's first."""
    return window_space(problem, target, weighted=True)


def pack(weight: np.ndarray, target: TargetNumbers) -> np.ndarray:
    """Weights in the order of use: [block][kh][kw][V].

    Args:
        weight: float32, (c, 1, kh, kw).
        target: the machine.

    Returns:
        A flat float32 array; channels that do not exist have zeros.
    """
    lanes = target.lanes(32)
    c, _, kh, kw = weight.shape
    blocks = -(-c // lanes)
    padded = np.zeros((blocks * lanes, kh, kw), np.float32)
    padded[:c] = weight[:, 0]
    blocked = padded.reshape(blocks, lanes, kh, kw).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(blocked).reshape(-1)
