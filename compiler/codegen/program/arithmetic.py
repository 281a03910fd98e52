"""What kind of numbers a kernel computes with, for reports."""

from collections.abc import Sequence

from xcompile.compiler.ir.dtypes import DTYPES, bits_of
from xcompile.compiler.ir.op import Op
from xcompile.dialects.nn.base import dtype_of

INTEGER = "int8"
"""Products of 8-bit numbers, summed in int32."""

_INTEGER_PRODUCTS = frozenset({"nn.conv_integer", "nn.matmul_integer"})
_PRODUCTS = frozenset({"nn.conv", "nn.conv_transpose", "nn.matmul", "nn.einsum", "nn.fused_attention", "nn.rnn",
                       "nn.gru", "nn.lstm"})  # fmt: skip


def arithmetic_of(ops: Sequence[Op]) -> str:
    """`INTEGER`, or the element type of the products of a kernel; "" for one without products.

    "w4" is float32 with weights that stay in 4 bits until they are multiplied.
    """
    for op in ops:
        if op.NAME in _INTEGER_PRODUCTS:
            return INTEGER
        if op.NAME == "nn.matmul_blocked":
            return f"w{bits_of(dtype_of(op.operands[1]))}"
        if op.NAME in _PRODUCTS:
            return DTYPES[dtype_of(op.operands[0])].name
    return ""
