"""The innermost loop of contractions: sums of products held in registers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.target.target import CACHE_LINE


@dataclass(frozen=True)
class TileRows:
    """The rows of a tile, read an element at a time.

    Attributes:
        buffer: the memory.
        start: element of the first row at k = 0.
        row_stride: elements from one row to the next.
        k_stride: elements from one step along k to the next.
        count: how many rows are computed.
        last: the last row that exists, which those behind it repeat; None when all do.
    """

    buffer: Buffer
    start: Index
    row_stride: Index
    k_stride: Index
    count: int
    last: Index | None = None

    def clamp(self, b: Builder, row: int) -> Index:
        """The row that is read for `row`."""
        return row if self.last is None else b.min(row, self.last)


@dataclass(frozen=True)
class TileColumns:
    """The columns of a tile, read as vectors.

    Attributes:
        buffer: the memory.
        start: element of the first column at k = 0.
        k_stride: elements from one step along k to the next.
        masks: one for each vector: the lanes that may be read, or None.
        prefetch: steps along k fetched ahead of their use; 0 for none.
    """

    buffer: Buffer
    start: Index
    k_stride: Index
    masks: tuple[Value | None, ...]
    prefetch: int = 0


def sum_products(
    b: Builder,
    rows: TileRows,
    columns: TileColumns,
    lanes: int,
    low: Index,
    high: Index,
    unroll: int,
    sums: Sequence[Value],
) -> list[Value]:
    """Add the products of k in [low, high) to `sums`, which go row by row, in the order of k.

    `unroll` steps are written into a loop and one into another for what is left, if there may be anything.
    """
    types = [vector_type(lanes, columns.buffer.dtype)] * len(sums)
    step = partial(_steps, b, rows, columns, lanes)
    whole = b.add(low, b.mul(b.div(b.sub(high, low), unroll), unroll))
    result = list(sums)
    if whole != low:
        result = b.reduce(low, whole, unroll, result, types, partial(step, unroll))
    if whole != high:
        result = b.reduce(whole, high, 1, result, types, partial(step, 1))
    return result


def _steps(
    b: Builder,
    rows: TileRows,
    columns: TileColumns,
    lanes: int,
    count: int,
    k: Index,
    sums: Sequence[Value],
) -> list[Value]:
    dtype, vectors = columns.buffer.dtype, len(columns.masks)
    row_of_b = b.add(columns.start, b.mul(k, columns.k_stride))
    column_of_a = b.add(rows.start, b.mul(k, rows.k_stride))
    out = list(sums)
    for step in range(count):
        at = b.add(row_of_b, b.mul(step, columns.k_stride))
        _prefetch(b, columns, at, lanes)
        factors = [
            b.load(columns.buffer, b.add(at, v * lanes), lanes, mask)
            for v, mask in enumerate(columns.masks)
        ]
        column = b.add(column_of_a, b.mul(step, rows.k_stride))
        for r in range(rows.count):
            at_row = b.add(column, b.mul(rows.clamp(b, r), rows.row_stride))
            factor = b.broadcast(b.load(rows.buffer, at_row), dtype, lanes)
            for v in range(vectors):
                cell = r * vectors + v
                out[cell] = b.fma(factor, factors[v], out[cell], lanes, dtype)
    return out


def _prefetch(b: Builder, columns: TileColumns, at: Index, lanes: int) -> None:
    """Fetch the cache lines that will be used `prefetch` steps later."""
    if not columns.prefetch:
        return
    line = CACHE_LINE // (8 if columns.buffer.dtype == "f64" else 4)
    ahead = b.add(at, b.mul(columns.k_stride, columns.prefetch))
    for offset in range(0, len(columns.masks) * lanes, line):
        b.prefetch(columns.buffer, b.add(ahead, offset))
