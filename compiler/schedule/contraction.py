"""Contractions C[batch, m, n] = sum over k of A[batch, m, k]·B[batch, k, n]: problem, schedules, packing.

Two ways to compute one:

- "tile": registers hold `rows` rows of C times `vectors` vectors along n. A is read in place, an element at a time; B
  comes as *panels* [k][vectors · V], which were packed at compile time ("packed"), are packed by each thread while it
  runs ("pack"), or are rows of B as it lies in memory ("direct"). K is cut into blocks whose sums are added to those
  that wait in scratch memory: a panel's block stays in the first-level cache while all rows of a block pass by, and
  short sums round less than long ones.
- "dot": for n = 1 and rows of A that are contiguous along k: lanes run along k.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, Literal

import numpy as np

from xcompile.compiler.schedule.schedule import (
    LONGEST_SUM,
    UNITS_A_CORE,
    ScheduleError,
    TargetNumbers,
)
from xcompile.compiler.schedule.window import Size, resolve

Stride = int | str | None
"""Elements from one index to the next: an integer, a product of symbols, or None: as in a contiguous array."""

MOST_PANEL_BYTES = 64 << 20
"""Scratch memory that a thread may take for packing."""

DOT_SUMS = 16
"""Interleaved partial sums of a dot product, whatever the vector length."""


@dataclass(frozen=True)
class ContractionProblem:
    """C[batch, m, n] = sum over k of A[batch, m, k]·B[batch, k, n].

    Attributes:
        m: rows of A and C.
        n: columns of B and C.
        k: what is summed over; zero gives zeros.
        batch: sizes of the leading axes.
        a_strides: of A along batch, m and k, in elements; 0 repeats A.
        b_strides: of B along batch, k and n.
        constant_b: whether B is known when compiling; it is then packed and its strides mean its numpy layout.
        dtype: of everything, "f32" or "f64".
    """

    m: Size
    n: Size
    k: Size
    batch: tuple[Size, ...] = ()
    a_strides: tuple[Stride, ...] | None = None
    b_strides: tuple[Stride, ...] | None = None
    constant_b: bool = False
    dtype: Literal["f32", "f64"] = "f32"

    @property
    def bits(self) -> int:
        """The width of an element."""
        return 64 if self.dtype == "f64" else 32

    def strides(self, operand: Literal["a", "b"]) -> tuple[int | str, ...]:
        """The strides of an operand with every None worked out."""
        given = self.a_strides if operand == "a" else self.b_strides
        inner = (self.m, self.k) if operand == "a" else (self.k, self.n)
        shape = (*self.batch, *inner)
        natural = tuple(product(shape[i + 1 :]) for i in range(len(shape)))
        if given is None:
            return natural
        return tuple(n if g is None else g for g, n in zip(given, natural, strict=True))


def product(sizes: tuple[Size, ...]) -> Size:
    """The product of sizes as a size."""
    known = prod(s for s in sizes if isinstance(s, int))
    symbols = [s for s in sizes if isinstance(s, str)]
    if not symbols or known == 0:
        return known
    return "*".join(symbols if known == 1 else [*symbols, str(known)])


@dataclass(frozen=True)
class ContractionSchedule:
    """How a contraction is computed.

    Attributes:
        kind: "tile" or "dot", see the module.
        rows: rows of C in the register tile.
        vectors: vectors along n in the register tile and in a panel ("dot": ignored).
        m_block: rows of C in a unit of the parallel axis; a multiple of `rows`.
        n_block: columns of C in a unit; a multiple of the panel's width.
        k_block: how much of k is summed up at a time; at least k where no partial sums are wanted.
        unroll: steps along k in one pass of the innermost loop.
        b: how B is read: "packed", "pack" or "direct".
        prefetch: panel rows fetched ahead of their use; 0 for none.
    """

    kind: Literal["tile", "dot"]
    rows: int
    vectors: int
    m_block: int
    n_block: int
    k_block: int
    unroll: int
    b: Literal["packed", "pack", "direct"]
    prefetch: int = 0

    def check(self, problem: ContractionProblem, target: TargetNumbers) -> None:
        """Raise unless the schedule is legal.

        Raises:
            ScheduleError: with the reason.
        """
        numbers = (self.rows, self.vectors, self.m_block, self.n_block, self.k_block, self.unroll)
        if min(numbers) < 1 or self.prefetch < 0:
            raise ScheduleError(f"all of {numbers} must be positive")
        if self.kind == "dot":
            return _check_dot(self, problem, target)
        needed = registers(self.rows, self.vectors)
        if needed > target.vector_registers:
            raise ScheduleError(
                f"rows={self.rows}, vectors={self.vectors} need {needed} registers; "
                f"the target has {target.vector_registers}"
            )
        width = self.vectors * target.lanes(problem.bits)
        if self.m_block % self.rows or self.n_block % width:
            raise ScheduleError(
                f"blocks of {self.m_block} by {self.n_block} are not whole tiles of {self.rows} by {width}"
            )
        if problem.constant_b != (self.b == "packed"):
            raise ScheduleError("B is packed at compile time exactly when it is constant")
        if self.b == "direct" and problem.strides("b")[-1] != 1:
            raise ScheduleError("B can be read in place only where it is contiguous along n")
        if panel_elements(problem, self, target) * problem.bits // 8 > MOST_PANEL_BYTES:
            raise ScheduleError(
                f"a panel of {self.k_block} rows is more than {MOST_PANEL_BYTES >> 20} MiB"
            )
        return None


def _check_dot(
    schedule: ContractionSchedule, problem: ContractionProblem, target: TargetNumbers
) -> None:
    if problem.n != 1 or problem.strides("a")[-1] != 1 or problem.constant_b:
        raise ScheduleError(
            "a dot product needs n = 1, contiguous rows of A and a B that is no constant"
        )
    if problem.strides("b")[-2] != 1:
        raise ScheduleError("a dot product needs a B that is contiguous along k")
    sums = ceil(DOT_SUMS / target.lanes(problem.bits))
    if schedule.rows * sums + sums + 1 > target.vector_registers:
        raise ScheduleError(f"{schedule.rows} rows of dot products need too many registers")


def registers(rows: int, vectors: int) -> int:
    """Vector registers of a tile: sums, a row of the panel, one element of A. One row reads the panel from memory."""
    return rows * vectors + 2 if rows == 1 else rows * vectors + vectors + 1


def extent(
    problem: ContractionProblem,
    schedule: ContractionSchedule,
    target: TargetNumbers,
    sizes: Mapping[str, Any] | None = None,
) -> Any:
    """The number of units of the parallel axis: batch, row blocks, column blocks (fastest).

    Args:
        problem: the contraction.
        schedule: a legal schedule.
        target: the machine.
        sizes: values of the problem's symbols: integers or anything with integer arithmetic.
    """
    del target
    m, n, *batch = (resolve(size, sizes or {}) for size in (problem.m, problem.n, *problem.batch))
    columns = 1 if schedule.kind == "dot" else (n + (schedule.n_block - 1)) // schedule.n_block
    return prod(batch) * ((m + (schedule.m_block - 1)) // schedule.m_block) * columns


def scratch_bytes(
    problem: ContractionProblem, schedule: ContractionSchedule, target: TargetNumbers
) -> int:
    """Bytes of scratch memory a thread needs: a packed panel, then the partial sums of a unit."""
    return (
        problem.bits
        // 8
        * (panel_elements(problem, schedule, target) + partial_elements(problem, schedule))
    )


def panel_elements(
    problem: ContractionProblem, schedule: ContractionSchedule, target: TargetNumbers
) -> int:
    """Elements of the panel that a thread packs; 0 when it packs none."""
    lanes = target.lanes(problem.bits)
    if schedule.kind == "dot" or schedule.b != "pack":
        return 0
    rows = (
        schedule.k_block if isinstance(problem.k, str) else max(1, min(schedule.k_block, problem.k))
    )
    return ceil(rows / lanes) * lanes * schedule.vectors * lanes


def partial_elements(problem: ContractionProblem, schedule: ContractionSchedule) -> int:
    """Elements of the partial sums; 0 when k is summed up at once."""
    if schedule.kind == "dot" or not has_k_blocks(problem, schedule):
        return 0
    return schedule.m_block * schedule.n_block


def has_k_blocks(problem: ContractionProblem, schedule: ContractionSchedule) -> bool:
    """Whether k may take more than one block."""
    return isinstance(problem.k, str) or problem.k > schedule.k_block


def pack(
    weight: np.ndarray,
    problem: ContractionProblem,
    schedule: ContractionSchedule,
    target: TargetNumbers,
) -> np.ndarray:
    """A constant B in the order of use: [batch][panel][k][vectors · V], zeros past n.

    Args:
        weight: of shape (batch…, k, n), where an axis of the batch along which B repeats may have size 1, in any memory
            layout.
        problem: the contraction, `n` and `k` known.
        schedule: a legal schedule.
        target: the machine.

    Returns:
        A flat array of the problem's dtype.
    """
    width = schedule.vectors * target.lanes(problem.bits)
    *batch, k, n = weight.shape
    panels = ceil(n / width)
    padded = np.zeros(
        (prod(batch), k, panels * width), np.float64 if problem.bits == 64 else np.float32
    )
    padded[:, :, :n] = weight.reshape(prod(batch), k, n)
    packed = padded.reshape(prod(batch), k, panels, width).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(packed).reshape(-1)


def heuristic(problem: ContractionProblem, target: TargetNumbers) -> ContractionSchedule:
    """A good schedule at once."""
    if problem.n == 1 and not problem.constant_b:
        strides = problem.strides("a")[-1], problem.strides("b")[-2]
        if strides == (1, 1):
            sums = ceil(DOT_SUMS / target.lanes(problem.bits))
            rows = max(1, min(4, (target.vector_registers - 1) // sums - 1))
            return ContractionSchedule("dot", rows, 1, 16, 1, 1 << 30, 1, "direct")
    rows, vectors = _register_tile(problem, target)
    return _blocks(problem, target, rows, vectors)


def _register_tile(problem: ContractionProblem, target: TargetNumbers) -> tuple[int, int]:
    """Rows and vectors: as many sums as registers hold, and no more rows or columns than there are."""
    lanes, available = target.lanes(problem.bits), target.vector_registers
    widest = ceil(problem.n / lanes) if isinstance(problem.n, int) else 8
    if isinstance(problem.m, int) and problem.m <= 4:
        rows = max(1, problem.m)
        most = 8 if problem.constant_b else 4  # panels may be wide where they are read in order
        fitting = [v for v in range(1, most + 1) if registers(rows, v) <= available]
        return rows, max(1, min(max(fitting), widest))
    vectors = min(widest, 2 if available <= 16 or lanes * problem.bits >= 512 else 4)
    rows = (available - 1) // max(1, vectors) - 1
    rows = min(rows, 12 if available > 16 else 8)
    if isinstance(problem.m, int):
        tiles = ceil(problem.m / rows)
        rows = min(rows, ceil(problem.m / tiles)) if tiles <= 2 else rows
    return max(1, rows), max(1, vectors)


def _blocks(
    problem: ContractionProblem, target: TargetNumbers, rows: int, vectors: int
) -> ContractionSchedule:
    lanes, size = target.lanes(problem.bits), problem.bits // 8
    width = vectors * lanes
    contiguous = problem.strides("b")[-1] == 1
    few_rows = isinstance(problem.m, int) and problem.m <= rows
    b: Literal["packed", "pack", "direct"] = "pack"
    if problem.constant_b:
        b = "packed"
    elif contiguous and (few_rows or (isinstance(problem.n, int) and problem.n <= 8 * width)):
        b = "direct"
    unroll = 4 if rows > 1 else 8
    k_block = max(64, target.l1d * 3 // 4 // (width * size) // 32 * 32)
    if few_rows and b == "packed":
        k_block = LONGEST_SUM
    elif few_rows and b == "direct":
        k_block = 8  # rows of B that are read side by side
    if isinstance(problem.k, int) and problem.k > k_block:
        parts = ceil(problem.k / k_block)
        k_block = ceil(problem.k / parts / unroll) * unroll
    depth = min(problem.k, k_block) if isinstance(problem.k, int) else k_block
    m_block = max(1, target.l2 // 2 // (max(1, depth) * size) // rows) * rows
    m_block = min(m_block, ceil(512 / rows) * rows)
    if isinstance(problem.m, int):
        m_block = min(m_block, ceil(max(1, problem.m) / rows) * rows)
    panels = ceil(problem.n / width) if isinstance(problem.n, int) else 4
    most = 4 if not few_rows else max(1, panels // 32)
    if target.cores > 1 and not few_rows:
        blocks = ceil(problem.m / m_block) if isinstance(problem.m, int) else 1
        images = prod(size for size in problem.batch if isinstance(size, int))
        most = min(most, panels * blocks * images // (UNITS_A_CORE * target.cores))
    n_block = width * max(1, min(panels, most))
    if few_rows and b == "direct":
        n_block = width * max(1, min(panels, 2048 // width))
    prefetch = 32 if b == "packed" and not few_rows else 0
    return ContractionSchedule(
        "tile", rows, vectors, m_block, n_block, k_block, unroll, b, prefetch
    )


def space(problem: ContractionProblem, target: TargetNumbers) -> Iterator[ContractionSchedule]:
    """All legal schedules around the heuristic's one, that first."""
    first = heuristic(problem, target)
    yield first
    if first.kind == "dot":
        return
    lanes, known_m = target.lanes(problem.bits), isinstance(problem.m, int)
    for vectors in (1, 2, 3, 4, 6, 8):
        for rows in range(1, 15):
            if known_m and rows > max(1, int(problem.m)):
                break
            for k_block in sorted({first.k_block, 128, 256, 512, 1 << 30}):
                for panels in (1, 4, 16):
                    schedule = ContractionSchedule(
                        "tile", rows, vectors, ceil(first.m_block / rows) * rows,
                        panels * vectors * lanes, k_block, first.unroll, first.b,
                    )  # fmt: skip
                    if schedule == first or rows * vectors < target.vector_registers // 2:
                        continue
                    try:
                        schedule.check(problem, target)
                    except ScheduleError:
                        continue
                    yield schedule
