"""Pools: maximum and average of a sliding window, or of a whole image."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from xcompile.compiler.schedule.schedule import ScheduleError, TargetNumbers
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
    """A pool of a blocked image. Padding is no candidate for the maximum; NaN is the maximum.

    Attributes:
        n: batch size.
        c: channels.
        h: rows of the input.
        w: columns of the input.
        kind: "max"; "place", the maximum and where it stands; "average"; "norm", `(Σ |x|^power)^(1/power)`.
        window: kernel, strides, pads, dilations and rounding, over height and width.
        count_include_pad: whether the average divides by the part of the window inside the padded image
            (what a window of `ceil_mode` has beyond it never counts), not inside the image.
        dtype: of what is pooled; averages and norms are of "f32".
        d: images of a volume.
        depth: the window along the depth of a volume; None for images.
        power: of a norm.
    """

    n: Size
    c: int
    h: Size
    w: Size
    kind: Literal["max", "place", "average", "norm"]
    window: Window
    count_include_pad: bool = False
    dtype: Literal["f32", "i8", "ui8"] = "f32"
    d: Size = 1
    depth: Window | None = None
    power: int = 2

    @property
    def accumulators(self) -> int:
        """Registers that hold what a window has accumulated."""
        return 2 if self.kind == "place" else 1


@dataclass(frozen=True)
class GlobalPoolProblem:
    """A pool whose window is the whole image; attributes as those of `PoolProblem`, but that there are sums.

    Sums may be of int32.
    """

    n: Size
    c: int
    h: Size
    w: Size
    kind: Literal["max", "average", "sum"]
    dtype: Literal["f32", "i32"] = "f32"


@dataclass(frozen=True)
class GlobalPoolSchedule:
    """How a global pool is computed; a unit of the parallel axis is one block of channels of one image.

    Attributes:
        chains: independent accumulators, a power of two; enough of them hide the latency of an addition.
    """

    chains: int

    def check(self, problem: GlobalPoolProblem, target: TargetNumbers) -> None:
        """Raise unless the schedule is legal.

        Raises:
            ScheduleError: with the reason.
        """
        if self.chains < 1 or self.chains & (self.chains - 1):
            raise ScheduleError(f"chains={self.chains} is no power of two")
        if self.chains + 1 > target.vector_registers:
            raise ScheduleError(
                f"{self.chains} chains need {self.chains + 1} registers; "
                f"the target has {target.vector_registers}"
            )


def global_heuristic(problem: GlobalPoolProblem, target: TargetNumbers) -> GlobalPoolSchedule:
    """Eight chains on every target, so that an average has the same bits on each."""
    schedule = GlobalPoolSchedule(chains=8)
    schedule.check(problem, target)
    return schedule


def global_space(problem: GlobalPoolProblem, target: TargetNumbers) -> Iterator[GlobalPoolSchedule]:
    """All legal schedules, the heuristic's first."""
    first = global_heuristic(problem, target)
    yield first
    chains = 1
    while chains < target.vector_registers:
        if chains != first.chains:
            yield GlobalPoolSchedule(chains)
        chains *= 2


def heuristic(problem: PoolProblem, target: TargetNumbers) -> WindowSchedule:
    """A good schedule at once.

    Raises:
        ScheduleError: the family does not take the problem.
    """
    return window_heuristic(problem, target, weighted=False, held=problem.accumulators)


def space(problem: PoolProblem, target: TargetNumbers) -> Iterator[WindowSchedule]:
    """All legal schedules, the heuristic's first."""
    return window_space(problem, target, weighted=False, held=problem.accumulators)


def global_extent(
    problem: GlobalPoolProblem, target: TargetNumbers, sizes: Mapping[str, Any] | None = None
) -> Any:
    """The number of units of a global pool: batch, blocks of channels (fastest)."""
    return resolve(problem.n, sizes or {}) * -(-problem.c // target.lanes(32))
