"""Rows of A as the register tile of a contraction reads them: in place, or packed into scratch memory."""

from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.register_tile import TileRows
from xcompile.compiler.ir.dtypes import is_float
from xcompile.compiler.schedule.products import ProductForm


@dataclass(frozen=True)
class BlockRows:
    """The rows of a block of A, for a part of k.

    Attributes:
        buffer: the memory.
        start: element of row `first` at k = 0.
        first: the first row.
        row_stride: elements from one row to the next.
        unit_stride: elements from one unit of k to the next.
        present: elements of the part's last unit that exist; None when all do.
    """

    buffer: Buffer
    start: Index
    first: Index
    row_stride: Index
    unit_stride: Index
    present: Index | None

    def tile(self, b: Builder, row: Index, count: int, present: Index) -> TileRows:
        """`count` rows from `row` on, of which `present` exist."""
        start = b.add(self.start, b.mul(b.sub(row, self.first), self.row_stride))
        last = None if present == count else b.sub(present, 1)
        return TileRows(
            self.buffer, start, self.row_stride, self.unit_stride, count, last, self.present
        )


@dataclass(frozen=True)
class LeftRows:
    """Where rows of A are, or how they get there.

    Attributes:
        b: where the code goes.
        form: how products are summed.
        lanes: of a vector of sums.
        source: A.
        signed: whether 8-bit elements are.
        k: columns of A.
        strides: elements from one row and one column to the next.
        memory: where rows are packed to; None when they are read in place.
        memory_stride: elements from one packed row to the next.
    """

    b: Builder
    form: ProductForm
    lanes: int
    source: Buffer
    signed: bool
    k: Index
    strides: tuple[Index, Index]
    memory: Buffer | None = None
    memory_stride: int = 0

    def at(self, start: Index, first: Index, rows: Index, low: Index, high: Index) -> BlockRows:
        """The units [low, high) of a block of rows, packed first when that is to be done.

        Args:
            start: the element of `source` where A begins.
            first: the block's first row.
            rows: how many rows.
            low: the first unit of k.
            high: the unit after the last.
        """
        b, group = self.b, self.form.group
        if self.memory is None:
            stride = b.mul(self.strides[1], group)
            return BlockRows(self.source, start, 0, self.strides[0], stride, self._present(high))
        begin = b.add(start, b.mul(first, self.strides[0]))
        with b.loop(0, rows) as row:
            source = b.add(begin, b.mul(row, self.strides[0]))
            target = b.mul(row, self.memory_stride)
            if self.strides[1] == 1:
                self._copy_vectors(self.memory, source, target, low, high)
            else:
                self._copy_elements(self.memory, source, target, low, high)
        return BlockRows(self.memory, b.mul(low, -group), first, self.memory_stride, group, None)

    def _present(self, high: Index) -> Index | None:
        """Elements of unit `high` - 1 that exist."""
        b, group = self.b, self.form.group
        if group == 1 or (isinstance(self.k, int) and self.k % group == 0):
            return None
        return b.min(group, b.sub(self.k, b.mul(b.sub(high, 1), group)))

    def _copy_vectors(
        self, memory: Buffer, source: Index, target: Index, low: Index, high: Index
    ) -> None:
        """A row that is contiguous along k, with zeros behind its end up to a whole vector."""
        b, step = self.b, 2 * self.lanes
        first = b.mul(low, self.form.group)
        size = b.sub(b.min(b.mul(high, self.form.group), self.k), first)
        source = b.add(source, first)

        def copy(k: Index, mask: Value | None) -> None:
            value = self._widened(b.load(self.source, b.add(source, k), step, mask), step)
            b.store(value, memory, b.add(target, k), step)

        whole = b.mul(b.div(size, step), step)
        if whole != 0:
            with b.loop(0, whole, step) as k:
                copy(k, None)
        rest = b.sub(size, whole)
        if rest == 0:
            return
        with b.when(b.compare("ne", rest, 0)):
            copy(whole, b.tail_mask(rest, step))

    def _copy_elements(
        self, memory: Buffer, source: Index, target: Index, low: Index, high: Index
    ) -> None:
        """A row in any layout; behind its end are floats that are zero, and any integers: B has zeros there."""
        b, group = self.b, self.form.group
        padded = group > 1 and is_float(self.form.left)
        first = b.mul(low, group)
        with b.loop(0, b.mul(b.sub(high, low), group)) as k:
            place = b.min(b.add(first, k), b.sub(self.k, 1))
            value = b.load(self.source, b.add(source, b.mul(place, self.strides[1])))
            value = self._widened(value, 0)
            if padded:
                within = b.compare("slt", b.add(first, k), self.k)
                value = b.zero_unless(within, value, self.form.left)
            b.store(value, memory, b.add(target, k))

    def _widened(self, value: Value, lanes: int) -> Value:
        """Elements as the products read them."""
        if not self.form.widens_left:
            return value
        if self.form.left == "f32":
            return cast(self.b, value, self.source.dtype, "f32", lanes)
        here, there = (f"vector<{lanes}x{t}>" if lanes else t for t in ("i8", "i16"))
        extend = "arith.extsi" if self.signed else "arith.extui"
        return self.b.op(f"{extend} {value} : {here} to {there}")
