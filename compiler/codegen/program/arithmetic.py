"""What kind of numbers a kernel computes with, for reports."""

from collections.abc import Sequence

from xcompile.compiler.ir.dtypes import DTYPES, bits_of, is_integer
from xcompile.compiler.ir.op import Op
from xcompile.dialects.nn.base import dtype_of

INTEGER = "int8"
"""Products of 8-bit numbers, summed in int32."""

INTEGER_PRODUCTS = frozenset({"nn.conv_integer", "nn.matmul_integer"})
"""Ops that multiply 8-bit integers."""

FLOAT_PRODUCTS = frozenset({"nn.conv", "nn.conv_transpose", "nn.matmul", "nn.einsum", "nn.fused_attention", "nn.rnn",
                            "nn.gru", "nn.lstm"})  # fmt: skip
"""Ops that multiply numbers of their operands' type."""

SMALL_WEIGHTS = frozenset({"nn.matmul_blocked", "nn.conv", "nn.rnn", "nn.gru", "nn.lstm"})
"""Ops that multiply floats, some with weights, their second operand, that are integers."""


def arithmetic_of(ops: Sequence[Op]) -> str:
    """`INTEGER`, or the element type of the products of a kernel; "" for one without products.

    "w4" and "w8" are float32 with weights that stay in 4 and 8 bits until they are multiplied.
    """
    for op in ops:
        if op.NAME in INTEGER_PRODUCTS or op.attributes().get("quantize_state", False):
            return INTEGER
        if op.NAME in SMALL_WEIGHTS and is_integer(dtype_of(op.operands[1])):
            return f"w{bits_of(dtype_of(op.operands[1]))}"
        if op.NAME in FLOAT_PRODUCTS:
            return DTYPES[dtype_of(op.operands[0])].name
    return ""
