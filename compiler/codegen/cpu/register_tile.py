"""The innermost loop of contractions: sums of products held in registers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.products import Products, multiply_tile
from xcompile.compiler.target.target import CACHE_LINE


@dataclass(frozen=True)
class TileRows:
    """The rows of a tile, read a unit at a time: an element, or the few that a product takes in one step.

    Attributes:
        buffer: the memory.
        start: element of the first row at k = 0.
        row_stride: elements from one row to the next.
        k_stride: elements from one unit to the next.
        count: how many rows are computed.
        last: the last row that exists, which those behind it repeat; None when all do.
        present: elements of the last unit that exist; None when all do.
    """

    buffer: Buffer
    start: Index
    row_stride: Index
    k_stride: Index
    count: int
    last: Index | None = None
    present: Index | None = None

    def clamp(self, b: Builder, row: int) -> Index:
        """The row that is read for `row`."""
        return row if self.last is None else b.min(row, self.last)


@dataclass(frozen=True)
class TileColumns:
    """The columns of a tile, read as vectors.

    Attributes:
        buffer: the memory.
        start: element of the first column at k = 0.
        k_stride: elements from one unit to the next.
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
    products: Products,
    rows: TileRows,
    columns: TileColumns,
    lanes: int,
    low: Index,
    high: Index,
    unroll: int,
    sums: Sequence[Value],
) -> list[Value]:
    """Add the products of the units [low, high) of k to `sums`, which go row by row, in the order of k.

    `unroll` steps are written into a loop and one into another for what is left, if there may be anything. A last unit
    that is not whole has a step of its own.
    """
    types = [vector_type(lanes, products.form.sum)] * len(sums)
    step = partial(_steps, b, products, rows, columns, lanes)
    end = high if rows.present is None else b.max(low, b.sub(high, 1))
    whole = b.add(low, b.mul(b.div(b.sub(end, low), unroll), unroll))
    result = list(sums)
    if whole != low:
        result = b.reduce(low, whole, unroll, result, types, partial(step, unroll, None))
    if whole != end:
        result = b.reduce(whole, end, 1, result, types, partial(step, 1, None))
    if rows.present is None:
        return result
    present = rows.present
    return b.choose(
        b.compare("slt", low, high),
        types,
        lambda: step(1, present, end, result),
        lambda: result,
    )


def _steps(
    b: Builder,
    products: Products,
    rows: TileRows,
    columns: TileColumns,
    lanes: int,
    count: int,
    present: Index | None,
    k: Index,
    sums: Sequence[Value],
) -> list[Value]:
    row_of_b = b.add(columns.start, b.mul(k, columns.k_stride))
    column_of_a = b.add(rows.start, b.mul(k, rows.k_stride))
    out = list(sums)
    for step in range(count):
        at = b.add(row_of_b, b.mul(step, columns.k_stride))
        _prefetch(b, products, columns, at, lanes)
        factors = [
            products.load_right(
                b, columns.buffer, b.add(at, v * products.form.group * lanes), lanes, mask
            )
            for v, mask in enumerate(columns.masks)
        ]
        column = b.add(column_of_a, b.mul(step, rows.k_stride))

        def place(r: int, column: Index = column) -> Index:
            return b.add(column, b.mul(rows.clamp(b, r), rows.row_stride))

        out = multiply_tile(b, products, rows.buffer, place, factors, out, lanes, present)
    return out


def _prefetch(b: Builder, products: Products, columns: TileColumns, at: Index, lanes: int) -> None:
    """Fetch the cache lines that will be used `prefetch` steps later."""
    if not columns.prefetch:
        return
    line = CACHE_LINE // columns.buffer.element_bytes
    ahead = b.add(at, b.mul(columns.k_stride, columns.prefetch))
    for offset in range(0, len(columns.masks) * products.form.group * lanes, line):
        b.prefetch(columns.buffer, b.add(ahead, offset))
