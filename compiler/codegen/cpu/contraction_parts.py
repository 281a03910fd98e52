"""What the emitter of contractions works on: blocks of rows, panels of columns, tiles of both."""

from collections.abc import Sequence
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.builder import Buffer, Index, Value
from xcompile.compiler.codegen.cpu.left_rows import BlockRows


@dataclass(frozen=True)
class Block:
    """Rows of C and a part of k.

    Attributes:
        batch: the index along the batch.
        left: the rows of A.
        row: the first row.
        rows: how many rows.
        low: the first unit of k.
        high: the unit after the last.
    """

    batch: Sequence[Index]
    left: BlockRows
    row: Index
    rows: Index
    low: Index
    high: Index


@dataclass(frozen=True)
class Panel:
    """Columns of C and the panel of B that belongs to them.

    Attributes:
        source: the memory.
        base: element at k = 0.
        stride: elements from one unit of k to the next.
        column: the first column in C.
        slot: the first column in the partial sums.
        masks: one for each vector of columns: a mask, or None when all lanes exist.
    """

    source: Buffer
    base: Index
    stride: Index
    column: Index
    slot: Index
    masks: tuple[Value | None, ...]


@dataclass(frozen=True)
class Tile:
    """Rows of a block.

    Attributes:
        row: the first row in C.
        slot: element of the partial sums of the first row and column.
        rows: how many rows are computed; those at `present` and later are copies of the last one.
        present: how many rows exist.
    """

    row: Index
    slot: Index
    rows: int
    present: Index
