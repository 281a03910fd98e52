"""Pools: maximum and average of a sliding window, or of a whole image."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from xcompile.compiler.schedule.schedule import TargetNumbers
from xcompile.compiler.schedule.window import (
    Size,
    Window,
    WindowSchedule,
    resolve,
    window_heuristic,
    window_space,
)


@dataclass(frozen=True)
class PoolProblem:
    """A float32 pool of a blocked image. Padding is no candidate for the maximum; NaN is the maximum.

    Attributes:
        n: batch size.
        c: channels.
        h: rows of the input.
        w: columns of the input.
        kind: "max" or "average".
        window: kernel, strides, pads, dilations and rounding.
        count_include_pad: whether the average divides by the part of the window inside the padded image
            (what a window of `ceil_mode` has beyond it never counts), not inside the image.
        dtype: "f32".
    """

    n: Size
    c: int
    h: Size
    w: Size
    kind: Literal["max", "average"]
    window: Window
    count_include_pad: bool = False
    dtype: Literal["f32"] = "f32"


@dataclass(frozen=True)
class GlobalPoolProblem:
    """A float32 pool whose window is the whole image; attributes as those of `PoolProblem`."""

    n: Size
    c: int
    h: Size
    w: Size
    kind: Literal["max", "average"]
    dtype: Literal["f32"] = "f32"


def heuristic(problem: PoolProblem, target: TargetNumbers) -> WindowSchedule:
    """A good schedule at once.

    Raises:
        ScheduleError: the family does not take the problem.
    """
    return window_heuristic(problem, target, weighted=False)


def space(problem: PoolProblem, target: TargetNumbers) -> Iterator[WindowSchedule]:
    """All legal schedules, the heuristic's first."""
    return window_space(problem, target, weighted=False)


def global_extent(
    problem: GlobalPoolProblem, target: TargetNumbers, sizes: Mapping[str, Any] | None = None
) -> Any:
    """The number of units of a global pool: batch, blocks of channels (fastest)."""
    return resolve(problem.n, sizes or {}) * -(-problem.c // target.lanes(32))
