"""Panels of B: blocks of k by a few vectors of columns, as the register tile reads them."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value
from xcompile.compiler.codegen.cpu.shuffles import transpose


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
        memory: where a panel is packed to.
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

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.vectors * self.lanes

    def at(
        self, start: Index, column: Index, low: Index, high: Index
    ) -> tuple[Buffer, Index, Index]:
        """The rows [low, high) of the panel of a column, packed first when that is to be done.

        Args:
            start: the element of `source` where the matrix begins.
            column: the panel's first column.
            low: the first row.
            high: the row after the last.

        Returns:
            A buffer, the element of row 0 and the stride of rows.
        """
        b = self.b
        if self.kind == "direct":
            return self.source, b.add(start, column), self.strides[0]
        if self.kind == "packed":
            # Panel p starts at p·k·width = column·k.
            return self.source, b.add(start, b.mul(column, self.k)), self.width
        assert self.memory is not None
        if self.strides[1] == 1:
            self._pack_rows(start, column, low, high)
        elif self.strides[0] == 1:
            self._pack_transposed(start, column, low, high)
        else:
            self._pack_elements(start, column, low, high)
        return self.memory, b.mul(low, -self.width), self.width

    def masks(self, column: Index) -> list[Value]:
        """For each vector of a panel, which of its columns exist."""
        left = self.b.sub(self.n, column)
        return [
            self.b.tail_mask(self.b.max(self.b.sub(left, v * self.lanes), 0), self.lanes)
            for v in range(self.vectors)
        ]

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
                    value = b.load(self.source, at, self.lanes, mask)
                    b.store(value, self.memory, b.add(target, v * self.lanes), self.lanes)

        whole = isinstance(self.n, int) and self.n % self.width == 0
        condition = True if whole else b.compare("sge", b.sub(self.n, column), self.width)
        b.either(condition, partial(copy, False), partial(copy, True))

    def _pack_transposed(self, start: Index, column: Index, low: Index, high: Index) -> None:
        """Columns of B that are contiguous along k: squares of V by V are transposed in registers."""
        b, lanes = self.b, self.lanes
        assert self.memory is not None
        memory = self.memory

        def square(v: int, k: Index, mask: Value | None) -> None:
            rows: list[Value] = []
            for lane in range(lanes):
                at = b.min(b.add(column, v * lanes + lane), b.sub(self.n, 1))
                source = b.add(start, b.mul(at, self.strides[1]), k)
                rows.append(b.load(self.source, source, lanes, mask))
            for step, value in enumerate(transpose(b, rows, self.source.dtype)):
                at = b.add(b.mul(b.sub(k, low), self.width), step * self.width + v * lanes)
                b.store(value, memory, at, lanes)

        whole = b.add(low, b.mul(b.div(b.sub(high, low), lanes), lanes))
        for v in range(self.vectors):
            with b.loop(low, whole, lanes) as k:
                square(v, k, None)
        rest = b.sub(high, whole)
        if rest == 0:
            return
        with b.when(b.compare("ne", rest, 0)):
            mask = b.tail_mask(rest, lanes)
            for v in range(self.vectors):
                square(v, whole, mask)

    def _pack_elements(self, start: Index, column: Index, low: Index, high: Index) -> None:
        b = self.b
        assert self.memory is not None
        k_stride, n_stride = self.strides
        with b.loop(low, high) as k, b.loop(0, self.width) as j:
            at = b.min(b.add(column, j), b.sub(self.n, 1))
            value = b.load(self.source, b.add(start, b.mul(k, k_stride), b.mul(at, n_stride)))
            b.store(value, self.memory, b.add(b.mul(b.sub(k, low), self.width), j))
