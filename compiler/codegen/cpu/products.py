"""The innermost multiply-add of matrix kernels as a value, so that one emitter serves floats and integers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from xcompile.compiler.codegen.cpu import isa
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.isa import Instruction
from xcompile.compiler.codegen.cpu.shuffles import shuffle
from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.schedule.products import ProductForm
from xcompile.compiler.schedule.schedule import TargetNumbers


class Products(Protocol):
    """Writes multiply-adds of a form. A *unit* is the group of elements that a lane takes in one step."""

    @property
    def form(self) -> ProductForm: ...

    def load_left(
        self,
        b: Builder,
        buffer: Buffer,
        places: Sequence[Index],
        lanes: int,
        present: Index | None = None,
    ) -> Value:
        """The units of A that begin at `places`, one for each of the form's rows, as a multiply-add takes them.

        Args:
            b: where to write.
            buffer: A, of the form's left type.
            places: the elements where the units begin.
            lanes: of a vector of sums.
            present: how many elements of the units exist; the others count as zero and are not read. None: all.
        """
        ...

    def load_right(
        self, b: Builder, buffer: Buffer, at: Index, lanes: int, mask: Value | None = None
    ) -> tuple[Value, ...]:
        """The units of B for `lanes` columns, the first of which begins at element `at`.

        `mask` is for forms of one element a unit: the columns that may be read.
        """
        ...

    def multiply_add(
        self, b: Builder, left: Value, right: tuple[Value, ...], sums: Sequence[Value], lanes: int
    ) -> list[Value]:
        """Add the products to as many vectors of sums as the form has rows."""
        ...

    def finished(self, b: Builder, sums: Sequence[Value], lanes: int) -> list[Value]:
        """The sums of as many rows as the form has, each with lanes along the columns."""
        ...


def multiply_tile(
    b: Builder,
    products: Products,
    left: Buffer,
    place: Callable[[int], Index],
    right: Sequence[tuple[Value, ...]],
    sums: Sequence[Value],
    lanes: int,
    present: Index | None = None,
) -> list[Value]:
    """One step along k of a tile: the units of each row of A times the vectors of B.

    Args:
        b: where to write.
        products: how.
        left: A.
        place: the element where a row's unit begins, by the row's number.
        right: what `load_right` gave, for each vector of columns.
        sums: row by row, a multiple of the form's rows.
        lanes: of a vector of sums.
        present: as in `load_left`.
    """
    rows, vectors = products.form.rows, len(right)
    out = list(sums)
    for first in range(0, len(out) // vectors, rows):
        places = [place(first + i) for i in range(rows)]
        factor = products.load_left(b, left, places, lanes, present)
        for v, column in enumerate(right):
            cells = range(first * vectors + v, (first + rows) * vectors + v, vectors)
            taken = [out[cell] for cell in cells]
            made = products.multiply_add(b, factor, column, taken, lanes)
            for cell, value in zip(cells, made, strict=True):
                out[cell] = value
    return out


def finish_tile(
    b: Builder, products: Products, sums: Sequence[Value], vectors: int, lanes: int
) -> list[Value]:
    """The sums of a tile, row by row, as vectors of columns."""
    rows = products.form.rows
    if rows == 1:
        return list(sums)
    out = list(sums)
    for first in range(0, len(out) // vectors, rows):
        for v in range(vectors):
            cells = range(first * vectors + v, (first + rows) * vectors + v, vectors)
            made = products.finished(b, [out[cell] for cell in cells], lanes)
            for cell, value in zip(cells, made, strict=True):
                out[cell] = value
    return out


@dataclass(frozen=True)
class FloatProducts:
    """Fused multiply-adds of "f32" or "f64", of which B may be stored in 16 or 8 bits; see `Products`."""

    dtype: str
    stored: str = ""

    @property
    def form(self) -> ProductForm:
        return ProductForm("fma", self.dtype, self.stored or self.dtype, self.dtype)

    def load_left(
        self,
        b: Builder,
        buffer: Buffer,
        places: Sequence[Index],
        lanes: int,
        present: Index | None = None,
    ) -> Value:
        del present  # a unit is one element
        one = cast(b, b.load(buffer, places[0]), buffer.dtype, self.dtype, 0)
        return b.broadcast(one, self.dtype, lanes)

    def load_right(
        self, b: Builder, buffer: Buffer, at: Index, lanes: int, mask: Value | None = None
    ) -> tuple[Value, ...]:
        loaded = b.load(buffer, at, lanes, mask)
        return (cast(b, loaded, self.form.right, self.dtype, lanes),)

    def multiply_add(
        self, b: Builder, left: Value, right: tuple[Value, ...], sums: Sequence[Value], lanes: int
    ) -> list[Value]:
        return [b.fma(left, right[0], sums[0], lanes, self.dtype)]

    def finished(self, b: Builder, sums: Sequence[Value], lanes: int) -> list[Value]:
        del b, lanes
        return list(sums)


@dataclass(frozen=True)
class HalfProducts:
    """Products of float16 added to float32 with one rounding, as if the factors were widened first; see `Products`.

    Attributes:
        form: for which instruction.
        portable: whether instructions are expanded.
    """

    form: ProductForm
    portable: bool = False

    def load_left(
        self,
        b: Builder,
        buffer: Buffer,
        places: Sequence[Index],
        lanes: int,
        present: Index | None = None,
    ) -> Value:
        del present  # a unit is one element
        return b.broadcast(b.load(buffer, places[0]), self.form.left, 2 * lanes)

    def load_right(
        self, b: Builder, buffer: Buffer, at: Index, lanes: int, mask: Value | None = None
    ) -> tuple[Value, ...]:
        """The upper half of the register is not read."""
        loaded = b.load(buffer, at, lanes, mask)
        kind, picks = vector_type(lanes, self.form.right), [*range(lanes), *[-1] * lanes]
        return (b.op(f"vector.shuffle {loaded}, {loaded} {picks} : {kind}, {kind}"),)

    def multiply_add(
        self, b: Builder, left: Value, right: tuple[Value, ...], sums: Sequence[Value], lanes: int
    ) -> list[Value]:
        del lanes
        return [isa.FMLAL.write(b, sums[0], left, right[0], portable=self.portable)]

    def finished(self, b: Builder, sums: Sequence[Value], lanes: int) -> list[Value]:
        del b, lanes
        return list(sums)


@dataclass(frozen=True)
class GroupProducts:
    """Products of neighbours along k: of 8-bit integers, summed in int32, or of bfloat16; see `Products`.

    Attributes:
        form: for which instruction.
        portable: whether instructions are expanded.
    """

    form: ProductForm
    portable: bool = False

    @property
    def _left_type(self) -> str:
        return self.form.left.removeprefix("u")

    def load_left(
        self,
        b: Builder,
        buffer: Buffer,
        places: Sequence[Index],
        lanes: int,
        present: Index | None = None,
    ) -> Value:
        group, element = self.form.group, self._left_type
        bits = group * bits_of(element)
        mask = None if present is None else b.tail_mask(present, group)
        if len(places) == 2:
            units = [b.load(buffer, at, group, mask) for at in places]
            return shuffle(b, units[0], units[1], group, range(2 * group), element)
        if mask is None and element == "i8":
            scalar = b.load_unaligned(buffer, places[0], f"i{bits}")
        else:
            unit = b.load(buffer, places[0], group, mask)
            scalar = b.op(f"llvm.bitcast {unit} : vector<{group}x{element}> to i{bits}")
        wide = b.broadcast(scalar, f"i{bits}", lanes)
        kind = vector_type(group * lanes, element)
        return b.op(f"vector.bitcast {wide} : {vector_type(lanes, f'i{bits}')} to {kind}")

    def load_right(
        self, b: Builder, buffer: Buffer, at: Index, lanes: int, mask: Value | None = None
    ) -> tuple[Value, ...]:
        assert mask is None, "columns of groups are read from whole panels"
        form = self.form
        length = form.group * lanes // form.rows
        loaded = [b.load(buffer, b.add(at, half * length), length) for half in range(form.rows)]
        if not form.widens_right:
            return tuple(loaded)
        extend = "arith.extui" if form.right == "ui8" else "arith.extsi"
        return tuple(
            b.op(f"{extend} {v} : vector<{length}xi8> to vector<{length}xi16>") for v in loaded
        )

    def multiply_add(
        self, b: Builder, left: Value, right: tuple[Value, ...], sums: Sequence[Value], lanes: int
    ) -> list[Value]:
        instruction = self.form.instruction
        if instruction == "pairs":
            products = isa.vpmaddwd(lanes).write(b, left, right[0], portable=self.portable)
            return [b.binary("arith.addi", sums[0], products, lanes, "i32")]
        if instruction == "smull":
            products = isa.SMULL.write(b, left, right[0], portable=self.portable)
            products = isa.SADDLP.write(b, products, portable=self.portable)
            return [b.binary("arith.addi", sums[0], products, lanes, "i32")]
        accumulate = self._accumulating(lanes)
        return [
            accumulate.write(b, total, left, half, portable=self.portable)
            for total, half in zip(sums, right, strict=True)
        ]

    def _accumulating(self, lanes: int) -> Instruction:
        if self.form.instruction == "vpdpbusd":
            return isa.vpdpbusd(lanes)
        if self.form.instruction == "vdpbf16ps":
            return isa.vdpbf16ps(lanes)
        return {
            "sdot": isa.SDOT, "udot": isa.UDOT, "smmla": isa.SMMLA, "bfdot": isa.BFDOT, "bfmmla": isa.BFMMLA,
        }[self.form.instruction]  # fmt: skip

    def finished(self, b: Builder, sums: Sequence[Value], lanes: int) -> list[Value]:
        """Two squares of 2x2 sums are two rows of four."""
        if self.form.rows == 1:
            return list(sums)
        return [
            shuffle(b, sums[0], sums[1], lanes, picks, self.form.sum)
            for picks in ([0, 1, 4, 5], [2, 3, 6, 7])
        ]


def products_of(form: ProductForm, target: TargetNumbers) -> Products:
    """The writer of a form's multiply-adds on a target."""
    if form.instruction == "fma":
        return FloatProducts(form.sum, form.right)
    native = not target.has("portable")
    if form.instruction == "fmlal":
        return HalfProducts(form, portable=not native)
    if form.instruction == "pairs":
        native = native and target.has("sse2")
    return GroupProducts(form, portable=not native)
