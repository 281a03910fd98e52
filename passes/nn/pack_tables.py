"""nn-pack-tables: tables of 2 and 4 bits whose rows are gathered keep as many elements in a byte as it holds."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.binary import BitShift
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.gather import Gather
from xcompile.passes.nn.expression import Expression

_NARROW = ("i2", "ui2", "i4", "ui4")
_BYTE = 8


class PackedRows(Pattern[Gather]):
    """Gather bytes, and take each apart. Byte j of a row of W elements of 4 bits holds the elements j and j + W/2.

        %1 = "nn.gather"(%table, %i) {axis = 0} : (tensor<9x32xi4>, tensor<?xi64>) -> tensor<?x32xi4>
    ->
        %0 = "nn.gather"(%bytes, %i) {axis = 0} : (tensor<9x16xui8>, tensor<?xi64>) -> tensor<?x16xui8>
        %2 = "nn.unsqueeze"(%0) {axes = [1]}
        %3 = "nn.bit_shift"(%2, [[0], [4]]) {left = false}
        %4 = "nn.cast"(%3) {to = "i4"}
        %1 = "nn.reshape"(%4, [0, 32])
    """

    def rewrite(self, op: Gather, rewriter: Rewriter) -> None:
        constant = const_of(op.x) or no_match("the table is no constant")
        dtype, rank = dtype_of(op.x), rank_of(op.x)
        if dtype not in _NARROW:
            no_match("the elements fill bytes")
        if op.axis % rank == rank - 1:
            no_match("single elements are gathered")
        bits, e, axis = bits_of(dtype), Expression(rewriter), rank_of(op.y) - 1
        codes = constant.array(rewriter.weights)
        table, width = packed(codes, bits), codes.shape[-1]
        rows = e.gather(e.constant(table), op.indices, op.axis)
        shifts = np.arange(0, _BYTE, bits, dtype=np.uint8)[:, np.newaxis]
        parts = e.make(BitShift, a=e.unsqueeze(rows, axis), b=e.constant(shifts), left=False)
        whole = len(shifts) * table.shape[-1]
        y = e.reshape(e.cast(parts, dtype), (*[0] * axis, whole))
        rewriter.replace(op, y if width == whole else e.slice(y, axis, 0, width))


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Integers of a few bits, in bytes along the last axis: byte j has the elements j, j + length, …, the first lowest.

    Args:
        codes: of any shape, each in a byte.
        bits: of an element.

    Returns:
        uint8; the last axis has as few bytes as hold the elements.
    """
    parts, width = _BYTE // bits, codes.shape[-1]
    length = -(-width // parts)
    padded = np.zeros((*codes.shape[:-1], parts * length), np.uint8)
    padded[..., :width] = codes.astype(np.int8).view(np.uint8) & np.uint8((1 << bits) - 1)
    split = padded.reshape(*codes.shape[:-1], parts, length)
    shifts = np.arange(0, _BYTE, bits, dtype=np.uint8)[:, np.newaxis]
    return np.bitwise_or.reduce(split << shifts, axis=-2)


@dataclass(frozen=True)
class PackTables(PatternPass):
    """Pack constant tables of 2 and 4 bits whose rows are gathered; a row is unpacked where it is read."""

    NAME: ClassVar[str] = "nn-pack-tables"
    PATTERNS: ClassVar = (PackedRows,)
