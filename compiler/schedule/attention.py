"""Fused attention: softmax(scale·Q·Kᵀ + mask)·V without the matrix of scores in memory.

A unit is a group of queries, which are the lanes: for one block of keys after the other, the scores of the
block [key][query] are computed into scratch memory, exponentials are taken against the running maximum of each query,
and the block's share is added to the sums [value depth][query], which are scaled down whenever a maximum grows.
K and V are read in place, an element at a time; only the queries are packed, and the result is transposed once,
at the end.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil, prod
from typing import Any, Literal

from xcompile.compiler.schedule.contraction import Stride, product, registers
from xcompile.compiler.schedule.schedule import ScheduleError, TargetNumbers
from xcompile.compiler.schedule.window import Size, resolve


@dataclass(frozen=True)
class AttentionProblem:
    """O[batch, i, d] = sum over j of softmax_j(scale·sum over c of Q[i, c]·K[j, c] + mask[i, j])·V[j, d].

    Attributes:
        queries: rows of Q.
        keys: rows of K and V.
        depth: columns of Q and K.
        value_depth: columns of V.
        batch: sizes of the leading axes; a stride of 0 shares an operand (heads that share keys, masks).
        q_strides: of Q along batch, i and c, in elements; None as in a contiguous array.
        k_strides: of K along batch, j and c.
        v_strides: of V along batch, j and d.
        mask_strides: of the additive mask along batch, i and j; None when there is no mask.
        scale: factor of the products.
        empty_rows: what a query gets whose scores are all -infinity: "nan", as a softmax, or "zero", as ONNX's
            Attention.
        dtype: of everything, "f32" or "f64".
    """

    queries: Size
    keys: Size
    depth: int
    value_depth: int
    batch: tuple[Size, ...] = ()
    q_strides: tuple[Stride, ...] | None = None
    k_strides: tuple[Stride, ...] | None = None
    v_strides: tuple[Stride, ...] | None = None
    mask_strides: tuple[Stride, ...] | None = None
    scale: float = 1.0
    empty_rows: Literal["nan", "zero"] = "nan"
    dtype: Literal["f32", "f64"] = "f32"

    @property
    def bits(self) -> int:
        """The width of an element."""
        return 64 if self.dtype == "f64" else 32

    def strides(self, operand: Literal["q", "k", "v", "mask"]) -> tuple[int | str, ...]:
        """The strides of an operand with every None worked out."""
        given, inner = {
            "q": (self.q_strides, (self.queries, self.depth)),
            "k": (self.k_strides, (self.keys, self.depth)),
            "v": (self.v_strides, (self.keys, self.value_depth)),
            "mask": (self.mask_strides, (self.queries, self.keys)),
        }[operand]
        shape = (*self.batch, *inner)
        natural = tuple(product(shape[i + 1 :]) for i in range(len(shape)))
        if given is None:
            return natural
        return tuple(n if g is None else g for g, n in zip(given, natural, strict=True))


@dataclass(frozen=True)
class AttentionSchedule:
    """How attention is computed.

    Attributes:
        vectors: vectors of queries in a unit.
        key_rows: keys in the register tile of the scores.
        value_rows: columns of V in the register tile of the sums.
        key_block: keys of a block.
        unroll: steps in one pass of the innermost loops.
    """

    vectors: int
    key_rows: int
    value_rows: int
    key_block: int
    unroll: int

    def check(self, problem: AttentionProblem, target: TargetNumbers) -> None:
        """Raise unless the schedule is legal.

        Raises:
            ScheduleError: with the reason.
        """
        numbers = (self.vectors, self.key_rows, self.value_rows, self.key_block, self.unroll)
        if min(*numbers, problem.depth, problem.value_depth) < 1:
            raise ScheduleError(f"all of {numbers} and the depths must be positive")
        needed = registers(max(self.key_rows, self.value_rows), self.vectors)
        if needed > target.vector_registers:
            raise ScheduleError(
                f"tiles of {self.key_rows} and {self.value_rows} by {self.vectors} vectors need {needed} "
                f"registers; the target has {target.vector_registers}"
            )


@dataclass(frozen=True)
class AttentionScratch:
    """The scratch memory of a thread, in elements from its beginning.

    Attributes:
        queries: where the packed queries start, [depth][width].
        scores: where the scores of a block start, [key][width].
        sums: where the sums start, [value depth][width].
        size: elements in all.
    """

    queries: int
    scores: int
    sums: int
    size: int

    @classmethod
    def of(
        cls, problem: AttentionProblem, schedule: AttentionSchedule, target: TargetNumbers
    ) -> "AttentionScratch":
        """The layout; parts are padded to whole squares of vectors."""
        lanes = target.lanes(problem.bits)
        width = schedule.vectors * lanes
        depth, keys, values = (
            ceil(size / lanes) * lanes
            for size in (problem.depth, schedule.key_block, problem.value_depth)
        )
        scores = depth * width
        sums = scores + keys * width
        return cls(0, scores, sums, sums + values * width)


def extent(
    problem: AttentionProblem,
    schedule: AttentionSchedule,
    target: TargetNumbers,
    sizes: Mapping[str, Any] | None = None,
) -> Any:
    """The number of units of the parallel axis: batch, then groups of queries.

    Args:
        problem: the attention.
        schedule: a legal schedule.
        target: the machine.
        sizes: values of the problem's symbols: integers or anything with integer arithmetic.
    """
    queries, *batch = (resolve(s, sizes or {}) for s in (problem.queries, *problem.batch))
    width = schedule.vectors * target.lanes(problem.bits)
    return prod(batch) * ((queries + (width - 1)) // width)


def scratch_bytes(
    problem: AttentionProblem, schedule: AttentionSchedule, target: TargetNumbers
) -> int:
    """Bytes of scratch memory a thread needs."""
    return AttentionScratch.of(problem, schedule, target).size * problem.bits // 8


def heuristic(problem: AttentionProblem, target: TargetNumbers) -> AttentionSchedule:
    """A good schedule at once."""
    lanes, available = target.lanes(problem.bits), target.vector_registers
    vectors = 2
    if isinstance(problem.queries, int):
        vectors = max(1, min(2, ceil(problem.queries / lanes)))
    rows = min(8, (available - 1) // vectors - 1)
    value_rows = _tile_rows(problem.value_depth, rows)
    width = vectors * lanes
    block = max(2 * lanes, target.l1d // 2 // (width * problem.bits // 8) // lanes * lanes)
    if isinstance(problem.keys, int) and problem.keys > block:
        block = ceil(problem.keys / ceil(problem.keys / block) / lanes) * lanes
    key_rows = _tile_rows(problem.keys, rows) if isinstance(problem.keys, int) else rows
    return AttentionSchedule(vectors, key_rows, value_rows, block, 8)


def _tile_rows(size: int, most: int) -> int:
    """Rows of a tile, with the least work for `size` rows: a tile costs its rows and a fixed amount."""

    def cost(rows: int) -> int:
        rest = size % rows
        return size // rows * (rows + 1) + (rest + 2 if rest else 0)

    return min(range(most, 0, -1), key=cost)


def space(problem: AttentionProblem, target: TargetNumbers) -> Iterator[AttentionSchedule]:
    """All legal schedules around the heuristic's one, that first."""
    first = heuristic(problem, target)
    yield first
    for vectors in (1, 2, 3, 4):
        most = (target.vector_registers - 1) // vectors - 1
        for rows in range(max(1, most // 2), min(most, 12) + 1):
            for block in sorted({first.key_block, 64, 128, 256, 512}):
                schedule = AttentionSchedule(vectors, rows, rows, block, first.unroll)
                if schedule != first:
                    yield schedule
