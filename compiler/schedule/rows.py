"""Row kernels: softmax, normalizations and reductions of x[outer, length, inner] along the middle axis.

With inner = 1 the axis is contiguous and lanes run along it; a thread keeps a row in scratch memory between its sweeps.
Otherwise lanes run along the inner axis. Sums are taken in an order that depends on the length alone, neither on
the vector length nor on the partition: contiguous rows as 16 interleaved partial sums, combined half with half
down to one; others as 4 partial sums.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, get_args

from xcompile.compiler.schedule.schedule import ScheduleError, TargetNumbers
from xcompile.compiler.schedule.window import Size, resolve

ALONG_SUMS = 16
"""Interleaved partial sums of a contiguous row."""

ACROSS_SUMS = 4
"""Interleaved partial sums along an axis that is not contiguous."""

Reduction = Literal[
    "sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp"
]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)
INTEGER_REDUCTIONS = ("sum", "max", "min", "prod", "l1", "sum_square")

RowKind = Literal[
    "softmax", "log_softmax", "layer_norm", "rms_norm",
    "sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp",
]  # fmt: skip


@dataclass(frozen=True)
class RowProblem:
    """A row kernel over x[outer, length, inner].

    Attributes:
        kind: what is computed; a reduction has the result [outer, inner], everything else keeps the shape.
        outer: the product of the axes before.
        length: of the axis.
        inner: the product of the axes behind.
        dtype: "f32" or "f64"; "i32" and "i64" for the reductions that integers have.
        epsilon: what normalizations add to the variance or the mean square.
    """

    kind: RowKind
    outer: Size
    length: Size
    inner: Size = 1
    dtype: Literal["f32", "f64", "i32", "i64"] = "f32"
    epsilon: float = 0.0

    @property
    def bits(self) -> int:
        """The width of an element."""
        return int(self.dtype[1:])

    @property
    def is_reduction(self) -> bool:
        """Whether the axis vanishes."""
        return self.kind in REDUCTIONS

    @property
    def is_contiguous(self) -> bool:
        """Whether lanes run along the axis."""
        return self.inner == 1


@dataclass(frozen=True)
class RowSchedule:
    """How a row kernel is computed.

    Attributes:
        cached: elements of a contiguous row kept in scratch memory between sweeps, a multiple of 16; what is longer is
            computed again in each sweep. 0 when there is one sweep.
        vectors: vectors side by side along the inner axis (1 for contiguous rows).
    """

    cached: int
    vectors: int

    def check(self, problem: RowProblem, target: TargetNumbers) -> None:
        """Raise unless the schedule is legal.

        Raises:
            ScheduleError: with the reason.
        """
        if self.cached < 0 or self.cached % ALONG_SUMS:
            raise ScheduleError(f"cached={self.cached} is no multiple of {ALONG_SUMS}")
        if self.vectors < 1 or ACROSS_SUMS * self.vectors >= target.vector_registers:
            raise ScheduleError(f"{self.vectors} vectors side by side are too many")
        integer = problem.dtype.startswith("i")
        if integer and problem.kind not in INTEGER_REDUCTIONS:
            raise ScheduleError(f"{problem.kind} is not defined for {problem.dtype}")
        if problem.kind in ("layer_norm", "rms_norm") and not problem.is_contiguous:
            raise ScheduleError(f"{problem.kind} needs a contiguous axis")


def extent(
    problem: RowProblem,
    schedule: RowSchedule,
    target: TargetNumbers,
    sizes: Mapping[str, Any] | None = None,
) -> Any:
    """The number of units of the parallel axis: rows, or groups of vectors along the inner axis.

    Args:
        problem: the row kernel.
        schedule: a legal schedule.
        target: the machine.
        sizes: values of the problem's symbols: integers or anything with integer arithmetic.
    """
    outer, inner = (resolve(size, sizes or {}) for size in (problem.outer, problem.inner))
    if problem.is_contiguous:
        return outer
    width = schedule.vectors * target.lanes(problem.bits)
    return outer * ((inner + (width - 1)) // width)


def scratch_bytes(problem: RowProblem, schedule: RowSchedule, target: TargetNumbers) -> int:
    """Bytes of scratch memory a thread needs: the kept part of a row and its last, incomplete vectors."""
    del target
    return (schedule.cached + ALONG_SUMS) * problem.bits // 8 if schedule.cached else 0


def heuristic(problem: RowProblem, target: TargetNumbers) -> RowSchedule:
    """A good schedule at once."""
    if not problem.is_contiguous:
        vectors, lanes = 2, target.lanes(problem.bits)
        if isinstance(problem.inner, int) and problem.inner % (2 * lanes):
            vectors = 1 if problem.inner % lanes == 0 or problem.inner < lanes else 2
        return RowSchedule(0, vectors)
    if problem.is_reduction and problem.kind != "log_sum_exp":
        return RowSchedule(0, 1)
    room = target.l2 // 2 // (problem.bits // 8) // ALONG_SUMS * ALONG_SUMS
    if isinstance(problem.length, int):
        needed = ceil(max(1, problem.length) / ALONG_SUMS) * ALONG_SUMS
        return RowSchedule(min(needed, room), 1)
    return RowSchedule(min(room, 8192), 1)


def space(problem: RowProblem, target: TargetNumbers) -> Iterator[RowSchedule]:
    """All legal schedules around the heuristic's one, that first."""
    first = heuristic(problem, target)
    yield first
    choices = (1, 2) if not problem.is_contiguous else (1,)
    for vectors in choices:
        for cached in sorted({first.cached, first.cached // 2 // ALONG_SUMS * ALONG_SUMS}):
            schedule = RowSchedule(cached, vectors)
            if schedule != first:
                yield schedule
