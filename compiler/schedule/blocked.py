"""Products with weights of a few bits that stay packed in memory: problem, schedule, packing.

C[m, n] = sum over k of A[m, k]·(B[k, n] - Z[k / block, n])·S[k / block, n], with integers B and Z of 2, 4 or 8 bits and
scales S. A 32-bit *word* holds neighbours along k of one column, the first in its lowest bits; a vector of words holds
them for as many columns as it has lanes. Weights lie in panels [k / word][vectors · V], scales in panels
[k / span][vectors · V].

Two ways to compute one, chosen when the kernel runs by the number of rows:

- Up to `few` rows: weights become floats in registers, exactly, and are multiplied there. Of each *span* (a block, or a
  part of a large one) there are two sums, of the first and of the second halves of the words, each in the order of k;
  their sum, times the scale, is added to the total by a fused multiply-add. So it is on every target, for any number of
  threads and rows.
- More rows: a panel of weights, times their scales and rounded to float32, is unpacked into scratch memory, once for
  each block of rows and of k, and multiplied as any contraction is (`schedule/contraction.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from xcompile.compiler.schedule import contraction
from xcompile.compiler.schedule.contraction_problem import ContractionProblem, ContractionSchedule
from xcompile.compiler.schedule.schedule import UNITS_A_CORE, ScheduleError, TargetNumbers
from xcompile.compiler.schedule.window import Size

LONGEST_SPAN = 128
"""So many terms are summed before they are multiplied by their scale, at most."""

FEW_ROWS = 4
"""Heuristics unpack weights for more rows than these."""

_ROWS_AT_ONCE = 2
_WORD = 32


@dataclass(frozen=True)
class BlockedProblem:
    """See the module.

    Attributes:
        m: rows of A.
        n: columns of B.
        k: what is summed over, at least 1.
        bits: of an element of B: 2, 4 or 8.
        block: elements of a column that a scale serves.
        least: the least number of B's type, which packed weights are counted from.
        scale: the type of the scales in memory, "f32" or "f16".
        zero_points: whether there are any.
    """

    m: Size
    n: int
    k: int
    bits: int
    block: int
    least: int
    scale: str = "f32"
    zero_points: bool = False

    @property
    def word(self) -> int:
        """Elements of a word."""
        return _WORD // self.bits

    @property
    def words(self) -> int:
        """Words of a column."""
        return ceil(self.k / self.word)

    @property
    def span(self) -> int:
        """Elements that are summed before they meet their scale: whole words, and a part of a block.

        Raises:
            ScheduleError: blocks are not whole words.
        """
        if self.block >= self.k:
            return LONGEST_SPAN
        for parts in range(ceil(self.block / LONGEST_SPAN), self.block // self.word + 1):
            if self.block % (parts * self.word) == 0:
                return self.block // parts
        raise ScheduleError(f"blocks of {self.block} are not whole words of {self.word}")

    @property
    def spans(self) -> int:
        """Spans of a column."""
        return ceil(self.k / self.span)

    @property
    def contraction(self) -> ContractionProblem:
        """The product of unpacked weights."""
        return ContractionProblem(self.m, self.n, self.k)


@dataclass(frozen=True)
class BlockedSchedule:
    """How a product is computed.

    Attributes:
        few: up to so many rows, weights are unpacked in registers.
        rows: of these, rows that are computed at once.
        tile: how unpacked panels are multiplied; its panels are those of the packed weights.
    """

    few: int
    rows: int
    tile: ContractionSchedule

    def width(self, target: TargetNumbers) -> int:
        """Columns of a panel."""
        return self.tile.vectors * target.lanes(_WORD)

    def check(self, problem: BlockedProblem, target: TargetNumbers) -> None:
        """Raise unless the schedule is legal.

        Raises:
            ScheduleError: with the reason.
        """
        if not 0 <= self.few <= self.tile.m_block:
            raise ScheduleError(f"{self.few} rows are not in one block of {self.tile.m_block}")
        needed = registers(self.rows, self.tile.vectors)
        if self.rows < 1 or needed > target.vector_registers:
            raise ScheduleError(
                f"rows={self.rows}, vectors={self.tile.vectors} need {needed} registers; "
                f"the target has {target.vector_registers}"
            )
        if self.tile.k_block % problem.span:
            raise ScheduleError(f"blocks of k are not whole spans of {problem.span}")
        self.tile.check(problem.contraction, target)


def registers(rows: int, vectors: int) -> int:
    """Vector registers of few rows: two sums and a total of each, a vector of weights and one of its words."""
    return 3 * rows * vectors + 2


def heuristic(problem: BlockedProblem, target: TargetNumbers) -> BlockedSchedule:
    """A good schedule at once."""
    lanes, available = target.lanes(_WORD), target.vector_registers
    vectors = min(4 if available >= 32 else 2, ceil(problem.n / lanes))
    width, span = vectors * lanes, problem.span
    rows = min(12 if available >= 32 else 6, (available - 1 - vectors) // vectors)
    k_block = max(1, target.l2 // 8 // (4 * width) // span) * span
    m_block = max(1, 512 // rows) * rows
    if isinstance(problem.m, int):
        rows = min(rows, max(1, problem.m))
        m_block = max(1, min(m_block // rows, ceil(problem.m / rows))) * rows
    m_block = max(m_block, ceil(FEW_ROWS / rows) * rows)
    panels = ceil(problem.n / width)
    n_block = width * max(1, min(4, panels // (UNITS_A_CORE * target.cores)))
    tile = ContractionSchedule("tile", rows, vectors, m_block, n_block, k_block, 4, "pack")
    return BlockedSchedule(FEW_ROWS, _ROWS_AT_ONCE, tile)


def extent(
    problem: BlockedProblem,
    schedule: BlockedSchedule,
    target: TargetNumbers,
    sizes: Mapping[str, Any] | None = None,
) -> Any:
    """The number of units of the parallel axis: row blocks, column blocks (fastest)."""
    return contraction.extent(problem.contraction, schedule.tile, target, sizes)


def scratch_bytes(problem: BlockedProblem, schedule: BlockedSchedule, target: TargetNumbers) -> int:
    """Bytes of scratch memory a thread needs; none where rows are known to be few."""
    if isinstance(problem.m, int) and problem.m <= schedule.few:
        return 0
    return contraction.scratch_bytes(problem.contraction, schedule.tile, target)


# -- packing ------------------------------------------------------------------------------------------


def pack_weights(weights: np.ndarray, problem: BlockedProblem, width: int) -> np.ndarray:
    """Weights [k, n] as words in panels of `width` columns: uint32 [panel][k / word][width], zeros past k and n."""
    panels = ceil(problem.n / width)
    codes = np.zeros((problem.words * problem.word, panels * width), np.uint32)
    codes[: problem.k, : problem.n] = weights.astype(np.int32) - problem.least
    shifts = np.arange(problem.word, dtype=np.uint32) * np.uint32(problem.bits)
    parts = codes.reshape(problem.words, problem.word, -1) << shifts[:, np.newaxis]
    words = np.bitwise_or.reduce(parts, axis=1)
    return words.reshape(problem.words, panels, width).transpose(1, 0, 2).reshape(-1)


def pack_zero_points(zeros: np.ndarray, problem: BlockedProblem, width: int) -> np.ndarray:
    """Zero points [k / block, n], counted from the least number, as `pack_scales` does: uint8."""
    counted = zeros.astype(np.int32) - problem.least
    return pack_scales(counted.astype(np.uint8), problem, width)


def pack_scales(scales: np.ndarray, problem: BlockedProblem, width: int) -> np.ndarray:
    """Scales [k / block, n] in panels: [panel][k / span][width] of their type, zeros past n."""
    panels = ceil(problem.n / width)
    places = np.arange(problem.spans) * problem.span // problem.block
    padded = np.zeros((problem.spans, panels * width), scales.dtype)
    padded[:, : problem.n] = scales[places]
    return padded.reshape(problem.spans, panels, width).transpose(1, 0, 2).reshape(-1)
