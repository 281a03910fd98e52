"""The recurrent part of rnn, gru and lstm: sums of a state's products with r, packed at compile time.

A unit of the parallel axis takes a few sequences of one direction through all their steps. A step is one *product*,
or two (a gru whose reset gate multiplies the state needs that gate before the second). For a panel of hidden elements
the sums of all gates of a product are held in registers, where the gates are joined. So r is stored as it is
read: [direction][product][panel][k][gate][vectors · V].

Of r in int8 the sums are multiplied by scales. Where states are quantized too, elements of k are grouped as the
target's products of bytes take them, and behind r lie the sums of its rows, which zero points of states multiply.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.schedule.products import ProductForm, product_form
from xcompile.compiler.schedule.schedule import UNITS_A_CORE, ScheduleError, TargetNumbers
from xcompile.compiler.schedule.window import Size, resolve
from xcompile.compiler.target.target import CACHE_LINE

_LATENCY = 4
"""Cycles until the sum of a fused multiply-add can be added to."""


@dataclass(frozen=True)
class RecurrentProblem:
    """The steps of a recurrent layer whose inputs are projected already.

    Attributes:
        products: the gates whose sums each product of a step gives, by number.
        directions: 1 or 2.
        batch: sequences.
        hidden: elements of a state.
        dtype: of everything but r.
        weights: of r.
        quantized: whether the state is one of 8 bits when r multiplies it.
    """

    products: tuple[tuple[int, ...], ...]
    directions: int
    batch: Size
    hidden: int
    dtype: Literal["f32", "f64"] = "f32"
    weights: Literal["f32", "f64", "i8"] = "f32"
    quantized: bool = False

    @property
    def bits(self) -> int:
        """The width of an element of a state."""
        return bits_of(self.dtype)

    def form(self, target: TargetNumbers) -> ProductForm:
        """How a state and r are multiplied."""
        if not self.quantized:
            return product_form(self.dtype, self.weights, target)
        mixed = product_form("ui8", "i8", target)
        return mixed if mixed.instruction == "vpdpbusd" else product_form("i8", "i8", target)

    def depth(self, target: TargetNumbers) -> int:
        """Elements of k in the packed r: whole groups."""
        group = self.form(target).group
        return ceil(self.hidden / group) * group


@dataclass(frozen=True)
class RecurrentSchedule:
    """How the steps are computed.

    Attributes:
        rows: sequences in a register tile.
        vectors: vectors of hidden elements in a register tile, for each product.
        sequences: in a unit of the parallel axis, a multiple of `rows`; they share the panels of a step.
        unroll: steps along k in one pass of the innermost loop.
        prefetch: panel rows fetched ahead of their use; 0 for none.
    """

    rows: int
    vectors: tuple[int, ...]
    sequences: int
    unroll: int
    prefetch: int = 0

    def check(self, problem: RecurrentProblem, target: TargetNumbers) -> None:
        """Raise unless the schedule is legal.

        Raises:
            ScheduleError: with the reason.
        """
        if min(self.rows, self.sequences, self.unroll, *self.vectors) < 1 or self.prefetch < 0:
            raise ScheduleError(f"all numbers of {self} must be positive")
        if len(self.vectors) != len(problem.products):
            raise ScheduleError(f"{len(problem.products)} products need as many numbers of vectors")
        if self.sequences % self.rows:
            raise ScheduleError(f"{self.sequences} sequences are not whole tiles of {self.rows}")
        for gates, vectors in zip(problem.products, self.vectors, strict=True):
            needed = problem.form(target).registers(self.rows, len(gates) * vectors)
            if needed > target.vector_registers:
                raise ScheduleError(
                    f"rows={self.rows}, vectors={vectors} of {len(gates)} gates need {needed} registers; "
                    f"the target has {target.vector_registers}"
                )


@dataclass(frozen=True)
class RecurrentPacking:
    """Where the panels of each product lie in the packed r, in elements.

    Attributes:
        widths: columns of a panel's hidden elements, by product.
        starts: of the panels of each product, from the beginning of a direction.
        size: of a direction.
        columns: of the panels before those of each product; the last number counts all of a direction.
        sums: the byte where the sums of the rows begin.
    """

    widths: tuple[int, ...]
    starts: tuple[int, ...]
    size: int
    columns: tuple[int, ...]
    sums: int

    @classmethod
    def of(
        cls, problem: RecurrentProblem, schedule: RecurrentSchedule, target: TargetNumbers
    ) -> "RecurrentPacking":
        """The packing of a problem."""
        lanes, columns = target.lanes(problem.bits), [0]
        widths = tuple(v * lanes for v in schedule.vectors)
        for gates, width in zip(problem.products, widths, strict=True):
            columns.append(columns[-1] + ceil(problem.hidden / width) * width * len(gates))
        depth = problem.depth(target)
        size = columns[-1] * depth
        sums = ceil(problem.directions * size / CACHE_LINE) * CACHE_LINE
        return cls(widths, tuple(c * depth for c in columns[:-1]), size, tuple(columns), sums)


def row_stride(problem: RecurrentProblem, target: TargetNumbers) -> int:
    """Elements from one sequence's state to the next in scratch memory: whole vectors."""
    lanes = target.lanes(problem.bits)
    return ceil(problem.hidden / lanes) * lanes


def pack(
    r: np.ndarray, problem: RecurrentProblem, schedule: RecurrentSchedule, target: TargetNumbers
) -> np.ndarray:
    """The constant r [directions, gates·hidden, hidden] in the order of use, zeros past the hidden elements.

    Returns:
        A flat array of the type of r; for states that are quantized, behind it int32 sums of the rows, as bytes, in the
        order of the columns.
    """
    hidden, depth, group = problem.hidden, problem.depth(target), problem.form(target).group
    gates = r.reshape(problem.directions, -1, hidden, hidden)
    packing = RecurrentPacking.of(problem, schedule, target)
    parts, sums = list[np.ndarray](), list[np.ndarray]()
    for chosen, width in zip(problem.products, packing.widths, strict=True):
        panels = ceil(hidden / width)
        padded = np.zeros((problem.directions, len(chosen), panels * width, depth), r.dtype)
        padded[:, :, :hidden, :hidden] = gates[:, list(chosen)]
        split = padded.reshape(problem.directions, len(chosen), panels, width, -1, group)
        parts.append(split.transpose(0, 2, 4, 1, 3, 5).reshape(problem.directions, -1))
        if problem.quantized:
            rows = split.sum(axis=(4, 5), dtype=np.int32)
            sums.append(rows.transpose(0, 2, 1, 3).reshape(problem.directions, -1))
    packed = np.ascontiguousarray(np.concatenate(parts, axis=1)).reshape(-1)
    if not problem.quantized:
        return packed
    behind = np.zeros(packing.sums - len(packed), np.int8)
    rows_of_all = np.ascontiguousarray(np.concatenate(sums, axis=1)).reshape(-1)
    return np.concatenate([packed, behind, rows_of_all.view(np.int8)])


def extent(
    problem: RecurrentProblem,
    schedule: RecurrentSchedule,
    target: TargetNumbers,
    sizes: Mapping[str, Any] | None = None,
) -> Any:
    """The number of units of the parallel axis: directions, then groups of sequences.

    Args:
        problem: the layer.
        schedule: a legal schedule.
        target: the machine.
        sizes: values of the problem's symbols: integers or anything with integer arithmetic.
    """
    del target
    batch = resolve(problem.batch, sizes or {})
    return problem.directions * ((batch + (schedule.sequences - 1)) // schedule.sequences)


def scratch_bytes(
    problem: RecurrentProblem, schedule: RecurrentSchedule, target: TargetNumbers, states: int
) -> int:
    """Bytes of scratch memory a thread needs for so many vectors of hidden elements a sequence.

    Behind them lie, for states that are quantized, their codes, and a scale and a zero point for each sequence.
    """
    elements = schedule.sequences * row_stride(problem, target)
    total = states * elements * problem.bits // 8
    if problem.quantized:
        total += elements * bits_of(problem.form(target).left) // 8 + schedule.sequences * 8
    return total


def heuristic(problem: RecurrentProblem, target: TargetNumbers) -> RecurrentSchedule:
    """A good schedule at once."""
    most = _most_rows(problem, target)
    rows = min(most, 4)
    if isinstance(problem.batch, int):
        batch = max(1, problem.batch)
        rows = ceil(batch / ceil(batch / most))
    vectors = tuple(_vectors(problem, target, len(gates), rows) for gates in problem.products)
    return RecurrentSchedule(
        rows, vectors, _sequences(problem, target, rows), _unroll(problem, target)
    )


def _unroll(problem: RecurrentProblem, target: TargetNumbers) -> int:
    """Four steps along k, but for codes that are widened: LLVM would widen those of all steps ahead of their use."""
    if problem.form(target).widens_right:
        return 2 if target.memory_operands else 1
    return 4


def _most_rows(problem: RecurrentProblem, target: TargetNumbers) -> int:
    widest, form = max(len(gates) for gates in problem.products), problem.form(target)
    fitting = [r for r in range(1, 9) if form.registers(r, widest) <= target.vector_registers]
    return max(fitting)


def _vectors(problem: RecurrentProblem, target: TargetNumbers, gates: int, rows: int) -> int:
    """Enough sums to hide the latency of the multiply-adds, and no more than there are hidden elements."""
    most = ceil(problem.hidden / target.lanes(problem.bits))
    wanted, form = ceil(_LATENCY * target.fma_ports / (rows * gates)), problem.form(target)
    fitting = [
        v for v in range(1, most + 1) if form.registers(rows, gates * v) <= target.vector_registers
    ]
    return min(max(fitting, default=1), wanted)


def _sequences(problem: RecurrentProblem, target: TargetNumbers, rows: int) -> int:
    """One tile while r stays in the second-level cache; else as many as leave units for all cores."""
    gates = sum(len(g) for g in problem.products)
    resident = gates * problem.hidden**2 * bits_of(problem.weights) // 8 <= target.l2 // 2
    if resident or not isinstance(problem.batch, int):
        return rows
    units = max(1, UNITS_A_CORE * target.cores // problem.directions)
    return max(1, problem.batch // rows // units) * rows


def space(problem: RecurrentProblem, target: TargetNumbers) -> Iterator[RecurrentSchedule]:
    """All legal schedules around the heuristic's one, that first."""
    first = heuristic(problem, target)
    yield first
    for rows in range(1, _most_rows(problem, target) + 1):
        for vectors in (1, 2, 3, 4):
            for tiles in (1, 4):
                for prefetch in (0, 8):
                    schedule = RecurrentSchedule(
                        rows, (vectors,) * len(first.vectors), rows * tiles, first.unroll, prefetch
                    )
                    try:
                        schedule.check(problem, target)
                    except ScheduleError:
                        continue
                    if schedule != first:
                        yield schedule
