"""Schedules of map kernels: elementwise and data-movement chains."""

from dataclasses import dataclass

from xcompile.compiler.schedule.schedule import ScheduleError
from xcompile.compiler.target.target import Target

MOST_UNROLLED = 16
"""Weights of an interpolated element, at most, that are written one after the other."""

FEWEST_COLUMNS = 4
"""The heuristic takes no vectors along an innermost axis that is shorter."""


@dataclass(frozen=True)
class MapSchedule:
    """How a map kernel walks its result.

    Attributes:
        lanes: elements handled at once; 0 for one scalar at a time.
        block: elements of the innermost axis that make one parallel unit.
        blocks: up to so many blocks of channels have code of their own where their vectors take channels from
            several places; more are one loop, in which each lane finds its channel.
    """

    lanes: int
    block: int
    blocks: int = 64

    def check(self, target: Target) -> None:
        """Raise ScheduleError when the schedule is not legal."""
        if self.lanes < 0 or self.lanes & (self.lanes - 1):
            raise ScheduleError(f"lanes must be 0 or a power of two, not {self.lanes}")
        if self.blocks < 0:
            raise ScheduleError(f"blocks={self.blocks} is negative")
        if self.block < 1 or (self.lanes and self.block % self.lanes):
            raise ScheduleError(
                f"a block of {self.block} is not a positive multiple of {self.lanes} lanes"
            )


def heuristic(
    target: Target,
    widest_bits: int,
    *,
    vectorizable: bool,
    loops: bool = False,
    columns: int | None = None,
) -> MapSchedule:
    """Whole vectors of the widest element type where possible; blocks of 4,096 elements, or of 64 that take loops.

    Args:
        target: the machine.
        widest_bits: of the kernel's values.
        vectorizable: whether its element functions take vectors.
        loops: whether an element is computed in a loop.
        columns: the length of the innermost axis, where it is known and vectors must not cross its end.
    """
    vectors = vectorizable and (columns is None or columns >= FEWEST_COLUMNS)
    lanes = target.lanes(min(widest_bits, 32)) if vectors else 0
    return MapSchedule(lanes=lanes, block=64 if loops else 4096)
