"""nn.lookup: a function of bytes, written down."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.dialects.nn.base import Shape, Sizes, dtype_of, nn, rank_of
from xcompile.dialects.nn.elementwise import Elementwise

ENTRIES = 256
"""Elements of a table: one for each byte."""


@nn.op("lookup")
class Lookup(Elementwise):
    """For each 8-bit integer the element of `table` [256] whose number its bits are: -1 stands at 255.

    Tables are of 8-bit integers too.
    """

    x: Operand
    table: Operand
    y: Result

    def verify(self) -> None:
        for value in (self.x, self.table):
            if dtype_of(value) not in ("i8", "ui8"):
                raise self.error("XC2002", f"a table is of bytes, not of {dtype_of(value)}")
        if rank_of(self.table) != 1:
            raise self.error("XC2003", "a table has one axis")

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(self.table)]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        sizes.equal(
            sizes.shape(self.table)[0], ENTRIES, "the size of a table and of what a byte holds"
        )
        return [sizes.shape(self.x)]

    def reference(self, x: np.ndarray, table: np.ndarray) -> np.ndarray:
        return table[np.ascontiguousarray(x).view(np.uint8)]
