"""Panels of B: blocks of k by a few vectors of columns, as the register tile reads them.

Steps along k are *units*: `group` neighbours along k for each column, one element where products are of floats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.casts import cast
from xcompile.compiler.codegen.cpu.shuffles import interleave, transpose
from xcompile.compiler.ir.dtypes import bits_of

Fill = Callable[[Buffer, Index, Index, Index], None]
"""`fill(memory, column, low, high)` writes the units [low, high) of the panel of a column to the start of memory."""


@dataclass(frozen=True)
class Panels:
    """Where the panels of a matrix are, or how they get there.

    Attributes:
        b: where the code goes.
        kind: "packed" when compiling, to be packed here ("pack"), or rows of the matrix itself ("direct").
        lanes: of a vector.
        vectors: of a panel.
        source: the matrix, or its packed panels.
        k: rows of the matrix.
        n: its columns.
        strides: elements from one row and one column to the next; not used when packed.
        memory: where a panel is packed to; of "f32" where elements of 16 bits are widened on the way.
        group: elements of a unit.
        fill: packs panels that are not made of `source`.
    """

    b: Builder
    kind: Literal["packed", "pack", "direct"]
    lanes: int
    vectors: int
    source: Buffer
    k: Index
    n: Index
    strides: tuple[Index, Index]
    memory: Buffer | None = None
    group: int = 1
    fill: Fill | None = None

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    @property
    def stride(self) -> int:
        """Elements from one unit to the next in a panel."""
        return self.width * self.group

    def at(
        self, start: Index, column: Index, low: Index, high: Index
    ) -> tuple[Buffer, Index, Index]:
        """The units [low, high) of the panel of a column, packed first when that is to be done.

        Args:
            start: the element of `source` where the matrix begins.
            column: the panel's first column.
            low: the first unit.
            high: the unit after the last.

        Returns:
            A buffer, the element of unit 0 and the stride of units.
        """
        b = self.b
        if self.kind == "direct":
            return self.source, b.add(start, column), self.strides[0]
        if self.kind == "packed":
            # Panel p starts at p·units·stride = column·units·group.
            depth = b.mul(b.ceildiv(self.k, self.group), self.group)
            return self.source, b.add(start, b.mul(column, depth)), self.stride
        assert self.memory is not None
        if self.fill is not None:
            self.fill(self.memory, column, low, high)
        elif self.strides[1] == 1 and self.group == 1:
            self._pack_rows(start, column, low, high)
        elif self.strides[1] == 1:
            self._pack_interleaved(start, column, low, high)
        elif self.strides[0] == 1:
            self._pack_transposed(start, column, low, high)
        else:
            self._pack_elements(start, column, low, high)
        return self.memory, b.mul(low, -self.stride), self.stride

    def masks(self, column: Index) -> list[Value]:
        """For each vector of a panel, which of its columns exist."""
        left = self.b.sub(self.n, column)
        return [
            self.b.tail_mask(self.b.max(self.b.sub(left, v * self.lanes), 0), self.lanes)
            for v in range(self.vectors)
        ]

    def _stored(self, value: Value, lanes: int) -> Value:
        """Elements as the panel has them."""
        assert self.memory is not None
        if self.memory.dtype == self.source.dtype:
            return value
        return cast(self.b, value, self.source.dtype, self.memory.dtype, lanes)

    def _pack_rows(self, start: Index, column: Index, low: Index, high: Index) -> None:
        b = self.b
        assert self.memory is not None

        def copy(masked: bool) -> None:
            masks: list[Value | None] = [None] * self.vectors
            if masked:
                masks = list(self.masks(column))
            assert self.memory is not None
            with b.loop(low, high) as k:
                source = b.add(start, b.mul(k, self.strides[0]), column)
                target = b.mul(b.sub(k, low), self.width)
                for v, mask in enumerate(masks):
                    at = b.add(source, v * self.lanes)
                    value = self._stored(b.load(self.source, at, self.lanes, mask), self.lanes)
                    b.store(value, self.memory, b.add(target, v * self.lanes), self.lanes)

        whole = isinstance(self.n, int) and self.n % self.width == 0
        condition = True if whole else b.compare("sge", b.sub(self.n, column), self.width)
        b.either(condition, partial(copy, False), partial(copy, True))

    def _pack_interleaved(self, start: Index, column: Index, low: Index, high: Index) -> None:
        """Rows of B that are contiguous along n: the elements of a unit come from as many rows."""
        b, group = self.b, self.group
        memory = self.memory
        assert memory is not None

        def unit(masks: Sequence[Value | None], k: Index, present: Index) -> None:
            target = b.mul(b.sub(k, low), self.stride)
            for v, mask in enumerate(masks):
                parts: list[Value] = []
                for i in range(group):
                    row = b.add(b.mul(k, group), b.min(i, b.sub(present, 1)))
                    at = b.add(start, b.mul(row, self.strides[0]), column, v * self.lanes)
                    value = b.load(self.source, at, self.lanes, mask)
                    present_here = b.compare("slt", i, present)
                    parts.append(b.zero_unless(present_here, value, self.source.dtype, self.lanes))
                value = interleave(b, parts, self.lanes, self.source.dtype)
                b.store(value, memory, b.add(target, v * self.lanes * group), self.lanes * group)

        def copy(masked: bool) -> None:
            masks = self.masks(column) if masked else [None] * self.vectors
            whole = b.min(high, b.div(self.k, group))
            with b.loop(low, whole) as k:
                unit(masks, k, group)
            rest = b.rem(self.k, group)
            if rest != 0:
                with b.when(b.compare("slt", whole, high)):
                    unit(masks, whole, rest)

        known = isinstance(self.n, int) and self.n % self.width == 0
        condition = True if known else b.compare("sge", b.sub(self.n, column), self.width)
        b.either(condition, partial(copy, False), partial(copy, True))

    def _pack_transposed(self, start: Index, column: Index, low: Index, high: Index) -> None:
        """Columns of B that are contiguous along k: squares of V by V units are transposed in registers."""
        b, lanes, length = self.b, self.lanes, self.lanes * self.group
        memory = self.memory
        assert memory is not None

        def square(v: int, k: Index, mask: Value | None) -> None:
            rows: list[Value] = []
            for lane in range(lanes):
                at = b.min(b.add(column, v * lanes + lane), b.sub(self.n, 1))
                source = b.add(start, b.mul(at, self.strides[1]), b.mul(k, self.group))
                rows.append(self._stored(b.load(self.source, source, length, mask), length))
            for step, value in enumerate(self._transposed_units(rows)):
                at = b.add(b.mul(b.sub(k, low), self.stride), step * self.stride + v * length)
                b.store(value, memory, at, length)

        end = b.min(b.mul(high, self.group), self.k) if self.group > 1 else high
        before = b.mul(low, self.group)
        whole = b.add(low, b.mul(b.div(b.sub(end, before), length), lanes))
        for v in range(self.vectors):
            with b.loop(low, whole, lanes) as k:
                square(v, k, None)
        rest = b.sub(end, b.mul(whole, self.group))
        if rest == 0:
            return
        with b.when(b.compare("ne", rest, 0)):
            mask = b.tail_mask(rest, length)
            for v in range(self.vectors):
                square(v, whole, mask)

    def _transposed_units(self, rows: list[Value]) -> list[Value]:
        """The columns of a square of units."""
        assert self.memory is not None
        b, element = self.b, self.memory.dtype
        if self.group == 1:
            return transpose(b, rows, element)
        unit = f"i{bits_of(element) * self.group}"
        inside, outside = (
            vector_type(self.lanes, unit),
            vector_type(self.lanes * self.group, element),
        )
        words = [b.op(f"vector.bitcast {row} : {outside} to {inside}") for row in rows]
        return [
            b.op(f"vector.bitcast {word} : {inside} to {outside}")
            for word in transpose(b, words, unit)
        ]

    def _pack_elements(self, start: Index, column: Index, low: Index, high: Index) -> None:
        b, group = self.b, self.group
        assert self.memory is not None
        k_stride, n_stride = self.strides
        with b.loop(low, high) as unit, b.loop(0, self.width) as j, b.loop(0, group) as i:
            at = b.min(b.add(column, j), b.sub(self.n, 1))
            k = b.add(b.mul(unit, group), i)
            row = b.min(k, b.sub(self.k, 1)) if group > 1 else k
            value = b.load(self.source, b.add(start, b.mul(row, k_stride), b.mul(at, n_stride)))
            if group > 1:
                value = b.zero_unless(b.compare("slt", k, self.k), value, self.source.dtype)
            target = b.add(b.mul(b.sub(unit, low), self.stride), b.mul(j, group), i)
            b.store(self._stored(value, 0), self.memory, target)
