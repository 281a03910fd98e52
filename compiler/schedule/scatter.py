"""Schedules of scatters: a run of contiguous elements is cut into blocks, each a unit of the parallel axis."""

from xcompile.compiler.schedule.map import MapSchedule
from xcompile.compiler.schedule.schedule import UNITS_A_CORE
from xcompile.compiler.support.dims import Dim
from xcompile.compiler.target.target import Target

_LEAST_VECTORS = 4
"""A block of fewer vectors costs more in reading indices than it gains."""


def heuristic(target: Target, widest_bits: int, run: Dim) -> MapSchedule:
    """Whole vectors, in as many blocks as leave units for all cores.

    Args:
        target: the machine.
        widest_bits: of the widest element.
        run: contiguous elements that go to one place.
    """
    lanes = target.lanes(min(widest_bits, 32)) if run != 1 else 0
    least = max(1, lanes * _LEAST_VECTORS)
    if not isinstance(run, int) or target.cores == 1:
        return MapSchedule(lanes, max(least, 4096))
    blocks = max(1, min(UNITS_A_CORE * target.cores, run // least))
    step = max(1, lanes)
    return MapSchedule(lanes, -(-max(1, run) // blocks // step) * step)
