"""The problem, the schedule and the scratch memory of contractions; see compiler/schedule/contraction.py."""

from dataclasses import dataclass
from math import ceil, prod
from typing import Literal

from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.schedule.products import ProductForm, product_form
from xcompile.compiler.schedule.schedule import ScheduleError, TargetNumbers
from xcompile.compiler.schedule.window import Size

Stride = int | str | None
"""Elements from one index to the next: an integer, a product of symbols, or None: as in a contiguous array."""

MOST_PANEL_BYTES = 64 << 20
"""Scratch memory that a thread may take for packing."""

Narrow = Literal["i8", "ui8", "f16", "bf16"]
"""The types of operands that are narrower than their sums."""

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
        dtype: of the sums, and of A and B where these have no types of their own: "f32", "f64" or "i32".
        operands: the types of A and B when they are 8-bit integers, whose sums are "i32", or floats of 16 bits, whose
            sums are "f32".
    """

    m: Size
    n: Size
    k: Size
    batch: tuple[Size, ...] = ()
    a_strides: tuple[Stride, ...] | None = None
    b_strides: tuple[Stride, ...] | None = None
    constant_b: bool = False
    dtype: Literal["f32", "f64", "i32"] = "f32"
    operands: tuple[Narrow, Narrow] | None = None

    @property
    def bits(self) -> int:
        """The width of a sum."""
        return 64 if self.dtype == "f64" else 32

    def element_bytes(self) -> int:
        """Bytes of an element of A and of B."""
        return bits_of(self.operands[0]) // 8 if self.operands else self.bits // 8

    @property
    def is_integer(self) -> bool:
        """Whether the sums are integers, which are exact in any order."""
        return self.dtype == "i32"

    @property
    def signed_left(self) -> bool:
        """Whether elements of A are signed integers."""
        return self.operands is not None and self.operands[0] == "i8"

    def form(self, target: TargetNumbers, rows: int) -> ProductForm:
        """How products are summed on a target, in tiles of `rows` rows.

        Raises:
            ScheduleError: there are no products of these types.
        """
        return product_form(*(self.operands or (self.dtype, self.dtype)), target, rows)

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
        form = problem.form(target, self.rows)
        needed = form.registers(self.rows, self.vectors)
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
        if self.k_block % form.group:
            raise ScheduleError(f"blocks of k are not whole groups of {form.group}")
        if problem.constant_b != (self.b == "packed"):
            raise ScheduleError("B is packed at compile time exactly when it is constant")
        if self.b == "direct" and (problem.strides("b")[-1] != 1 or form.group > 1):
            raise ScheduleError(
                "B can be read in place only where it is contiguous along n, and not in groups along k"
            )
        panel = panel_elements(problem, self, target) * problem.element_bytes()
        if max(panel, left_elements(problem, self, target)) > MOST_PANEL_BYTES:
            raise ScheduleError(
                f"a panel of {self.k_block} rows is more than {MOST_PANEL_BYTES >> 20} MiB"
            )
        return None


def _check_dot(
    schedule: ContractionSchedule, problem: ContractionProblem, target: TargetNumbers
) -> None:
    if problem.operands:
        raise ScheduleError("a dot product is of float32 or float64")
    if problem.n != 1 or problem.strides("a")[-1] != 1 or problem.constant_b:
        raise ScheduleError(
            "a dot product needs n = 1, contiguous rows of A and a B that is no constant"
        )
    if problem.strides("b")[-2] != 1:
        raise ScheduleError("a dot product needs a B that is contiguous along k")
    sums = ceil(DOT_SUMS / target.lanes(problem.bits))
    factors = sums + 1 if schedule.rows > 1 else 2  # one row reads them from memory
    if schedule.rows * sums + factors > target.vector_registers:
        raise ScheduleError(f"{schedule.rows} rows of dot products need too many registers")


def registers(rows: int, vectors: int) -> int:
    """Vector registers of a tile: sums, a row of the panel, one element of A. One row reads the panel from memory."""
    return rows * vectors + 2 if rows == 1 else rows * vectors + vectors + 1


def scratch_bytes(
    problem: ContractionProblem, schedule: ContractionSchedule, target: TargetNumbers
) -> int:
    """Bytes of scratch memory a thread needs: see `ContractionScratch`."""
    return ContractionScratch.of(problem, schedule, target).size


@dataclass(frozen=True)
class ContractionScratch:
    """The scratch memory of a thread, in bytes from its beginning.

    Attributes:
        panel: where a packed panel starts; None when there is none.
        partial: where the partial sums of a unit start.
        left: where the packed rows of A start.
        size: bytes in all.
    """

    panel: int | None
    partial: int | None
    left: int | None
    size: int

    @classmethod
    def of(
        cls, problem: ContractionProblem, schedule: ContractionSchedule, target: TargetNumbers
    ) -> "ContractionScratch":
        """The layout; a part that is not needed takes no bytes."""
        left_bytes = bits_of(problem.form(target, schedule.rows).left) // 8
        sizes = (
            panel_elements(problem, schedule, target) * problem.element_bytes(),
            partial_elements(problem, schedule) * problem.bits // 8,
            left_elements(problem, schedule, target) * left_bytes,
        )
        starts: list[int | None] = []
        end = 0
        for size in sizes:
            starts.append(end if size else None)
            end += size
        return cls(starts[0], starts[1], starts[2], end)


def panel_elements(
    problem: ContractionProblem, schedule: ContractionSchedule, target: TargetNumbers
) -> int:
    """Elements of the panel that a thread packs; 0 when it packs none."""
    lanes = target.lanes(problem.bits)
    if schedule.kind == "dot" or schedule.b != "pack":
        return 0
    group = problem.form(target, schedule.rows).group
    units = ceil(_block_depth(problem, schedule) / group)
    return ceil(units / lanes) * lanes * schedule.vectors * lanes * group


def _block_depth(problem: ContractionProblem, schedule: ContractionSchedule) -> int:
    """Elements of k in a block, at most."""
    if isinstance(problem.k, str):
        return schedule.k_block
    return max(1, min(schedule.k_block, problem.k))


def packs_left(problem: ContractionProblem, form: ProductForm) -> bool:
    """Whether rows of A are packed into scratch memory before they are read."""
    return form.widens_left or (form.group > 1 and problem.strides("a")[-1] != 1)


def left_row_elements(
    problem: ContractionProblem, schedule: ContractionSchedule, target: TargetNumbers
) -> int:
    """Elements from one packed row of A to the next: whole vectors and a cache line, lest rows collide in the cache."""
    vector = target.lanes(16)
    return ceil(_block_depth(problem, schedule) / vector) * vector + 64


def left_elements(
    problem: ContractionProblem, schedule: ContractionSchedule, target: TargetNumbers
) -> int:
    """Elements of A that a thread packs at a time; 0 when it packs none."""
    if schedule.kind == "dot" or not packs_left(problem, problem.form(target, schedule.rows)):
        return 0
    return schedule.m_block * left_row_elements(problem, schedule, target)


def partial_elements(problem: ContractionProblem, schedule: ContractionSchedule) -> int:
    """Elements of the partial sums; 0 when k is summed up at once."""
    if schedule.kind == "dot" or not has_k_blocks(problem, schedule):
        return 0
    return schedule.m_block * schedule.n_block


def has_k_blocks(problem: ContractionProblem, schedule: ContractionSchedule) -> bool:
    """Whether k may take more than one block."""
    return isinstance(problem.k, str) or problem.k > schedule.k_block
