"""Schedules of map kernels: elementwise and data-movement chains."""

from dataclasses import dataclass

from xcompile.compiler.schedule.schedule import ScheduleError
from xcompile.compiler.target.target import Target


@dataclass(frozen=True)
class MapSchedule:
    """How a map kernel walks its result.

    Attributes:
        lanes: elements handled at once; 0 for one scalar at a time.
        block: elements of the innermost axis that make one parallel unit.
    """

    lanes: int
    block: int

    def check(self, target: Target) -> None:
        """Raise ScheduleError when the schedule is not legal."""
        if self.lanes < 0 or self.lanes & (self.lanes - 1):
            raise ScheduleError(f"lanes must be 0 or a power of two, not {self.lanes}")
        if self.block < 1 or (self.lanes and self.block % self.lanes):
            raise ScheduleError(
                f"a block of {self.block} is not a positive multiple of {self.lanes} lanes"
            )


def heuristic(
    target: Target, widest_bits: int, *, vectorizable: bool, loops: bool = False
) -> MapSchedule:
    """Whole vectors of the widest element type where possible; blocks of 4,096 elements, or of 64 that take loops."""
    lanes = target.lanes(min(widest_bits, 32)) if vectorizable else 0
    return MapSchedule(lanes=lanes, block=64 if loops else 4096)
