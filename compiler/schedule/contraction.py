"""Contractions C[batch, m, n] = sum over k of A[batch, m, k]·B[batch, k, n]: problem, schedules, packing.

Two ways to compute one:

- "tile": registers hold `rows` rows of C times `vectors` vectors along n. A is read in place, an element at a time; B
  comes as *panels* [k][vectors · V], which were packed at compile time ("packed"), are packed by each thread while it
  runs ("pack"), or are rows of B as it lies in memory ("direct"). K is cut into blocks whose sums are added to those
  that wait in scratch memory: a panel's block stays in the first-level cache while all rows of a block pass by, and
  short sums round less than long ones.
- "dot": for n = 1 and rows of A that are contiguous along k: lanes run along k.

Products of 8-bit integers are summed in int32, and of pairs of bfloat16 in float32, by one of the target's
instructions (`schedule/products.py`), which takes *units* of a few neighbours along k: panels are
[k / group][vectors · V][group], with zeros past k. A is read in place where its rows are contiguous along k and the
instruction takes its elements; else each thread packs a block of its rows into scratch memory, once for all panels of a
unit of the parallel axis.
"""

from collections.abc import Iterator, Mapping
from math import ceil, prod
from typing import Any, Literal

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.schedule.contraction_problem import (
    DOT_SUMS,
    ContractionProblem,
    ContractionSchedule,
    ContractionScratch,
    Stride,
    has_k_blocks,
    packs_left,
    panel_elements,
    partial_elements,
    product,
    registers,
    scratch_bytes,
)
from xcompile.compiler.schedule.products import ProductForm
from xcompile.compiler.schedule.schedule import (
    LONGEST_SUM,
    UNITS_A_CORE,
    ScheduleError,
    TargetNumbers,
)
from xcompile.compiler.schedule.window import resolve

__all__ = [
    "DOT_SUMS",
    "ContractionProblem",
    "ContractionSchedule",
    "ContractionScratch",
    "Stride",
    "extent",
    "has_k_blocks",
    "heuristic",
    "pack",
    "panel_elements",
    "partial_elements",
    "product",
    "registers",
    "scratch_bytes",
    "space",
]


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


def pack(
    weight: np.ndarray,
    problem: ContractionProblem,
    schedule: ContractionSchedule,
    target: TargetNumbers,
) -> np.ndarray:
    """A constant B in the order of use: [batch][panel][k / group][vectors · V][group], zeros past n and k.

    Args:
        weight: of shape (batch…, k, n), where an axis of the batch along which B repeats may have size 1, in any memory
            layout.
        problem: the contraction, `n` and `k` known.
        schedule: a legal schedule.
        target: the machine.

    Returns:
        A flat array of B's type.
    """
    width, group = (
        schedule.vectors * target.lanes(problem.bits),
        problem.form(target, schedule.rows).group,
    )
    *batch, k, n = weight.shape
    panels, units, count = ceil(n / width), ceil(k / group), prod(batch)
    padded = np.zeros((count, units * group, panels * width), weight.dtype)
    padded[:, :k, :n] = weight.reshape(count, k, n)
    packed = padded.reshape(count, units, group, panels, width).transpose(0, 3, 1, 4, 2)
    return np.ascontiguousarray(packed).reshape(-1)


def heuristic(problem: ContractionProblem, target: TargetNumbers) -> ContractionSchedule:
    """A good schedule at once."""
    if problem.n == 1 and not problem.constant_b and not problem.operands:
        strides = problem.strides("a")[-1], problem.strides("b")[-2]
        if strides == (1, 1):
            sums = ceil(DOT_SUMS / target.lanes(problem.bits))
            rows = max(1, min(4, (target.vector_registers - 1) // sums - 1))
            return ContractionSchedule("dot", rows, 1, 16, 1, 1 << 30, 1, "direct")
    if problem.form(target, 1).group > 1:
        rows, vectors = _grouped_tile(problem, target)
    else:
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


def _grouped_tile(problem: ContractionProblem, target: TargetNumbers) -> tuple[int, int]:
    """As `_register_tile`, for instructions that take groups along k; rows are as even as their number allows."""
    lanes = target.lanes(problem.bits)
    widest = max(1, ceil(problem.n / lanes)) if isinstance(problem.n, int) else 8
    if isinstance(problem.m, int) and problem.m <= 4:
        rows = max(1, problem.m)
        wide = problem.constant_b and (rows == 1 or target.memory_operands)
        form, most = problem.form(target, rows), min(8 if wide else 4, widest)
        return rows, max(v for v in range(1, most + 1) if _fits(form, rows, v, target))
    pairs = problem.form(target, 2).rows
    fitting = [
        (r, v)
        for v in ((1, 2) if target.memory_operands else (1, 2, 4))
        for r in range(pairs, 16, pairs)
        if v <= widest and _fits(problem.form(target, r), r, v, target)
    ]
    rows, vectors = min(fitting, key=lambda tile: (tile[0] + tile[1] * pairs) / (tile[0] * tile[1]))
    if isinstance(problem.m, int):
        even = ceil(problem.m / ceil(problem.m / rows))
        rows = ceil(even / pairs) * pairs
    return rows, vectors


def _fits(form: ProductForm, rows: int, vectors: int, target: TargetNumbers) -> bool:
    """Whether registers hold a tile, with an element of A for each row where it is not read from memory."""
    others = 0 if target.memory_operands else rows // form.rows - 1
    return form.registers(rows, vectors) + others <= target.vector_registers


def _blocks(
    problem: ContractionProblem, target: TargetNumbers, rows: int, vectors: int
) -> ContractionSchedule:
    lanes, size = target.lanes(problem.bits), problem.element_bytes()
    form = problem.form(target, rows)
    width = vectors * lanes
    contiguous = problem.strides("b")[-1] == 1 and form.group == 1
    few_rows = isinstance(problem.m, int) and problem.m <= rows
    b: Literal["packed", "pack", "direct"] = "pack"
    if problem.constant_b:
        b = "packed"
    elif contiguous and (few_rows or (isinstance(problem.n, int) and problem.n <= 8 * width)):
        b = "direct"
    unroll = 4 if rows > 1 else 8
    if form.group > 1:
        unroll = (
            1 if form.instruction in ("pairs", "smull") else 2
        )  # more are moved ahead by LLVM, and spill
    elif form.widens_left:
        unroll = 2 if target.memory_operands else 1  # what is widened ahead takes registers
    k_block = max(64, _panel_bytes(problem, target) // (width * size) // 32 * 32)
    if not problem.is_integer:
        k_block = min(k_block, LONGEST_SUM)
    if few_rows and b == "packed":
        widened_symbol = packs_left(problem, form) and isinstance(problem.k, str)
        k_block = LONGEST_SUM
        if problem.is_integer:
            k_block = 4096 if widened_symbol else 1 << 30
    elif few_rows and b == "direct":
        k_block = 8  # rows of B that are read side by side
    if isinstance(problem.k, int) and problem.k > k_block:
        parts = ceil(problem.k / k_block)
        step = unroll * form.group
        k_block = ceil(problem.k / parts / step) * step
    depth = min(problem.k, k_block) if isinstance(problem.k, int) else k_block
    row_bytes = max(1, depth) * (bits_of(form.left) // 8 if form.widens_left else size)
    m_block = max(1, target.l2 // 2 // row_bytes // rows) * rows
    m_block = min(m_block, ceil(512 / rows) * rows)
    if isinstance(problem.m, int):
        m_block = ceil(max(1, problem.m) / ceil(max(1, problem.m) / m_block) / rows) * rows
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


def _panel_bytes(problem: ContractionProblem, target: TargetNumbers) -> int:
    """Bytes of a panel's block: floats come from the second-level cache as fast as tiles use them, and each block costs
    its partial sums; those of integers are cheap beside their products.
    """
    return target.l1d * 3 // 4 if problem.is_integer else target.l2 // 8


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
