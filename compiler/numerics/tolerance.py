"""Which error is allowed: one table, keyed on the dtype and on how many terms a sum has.

Errors are relative to the largest magnitude of the tensor that is expected: elements that are small because large
terms cancel carry the rounding of the large ones.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Op

_ANY = 1 << 62

TOLERANCES: Mapping[str, Sequence[tuple[int, float]]] = {
    "float64": ((_ANY, 1e-11),),
    "float32": ((16, 1e-5), (256, 4e-5), (4096, 1e-4), (_ANY, 2e-4)),
    "float16": ((256, 4e-3), (_ANY, 1e-2)),
    "bfloat16": ((256, 3e-2), (_ANY, 8e-2)),
}
"""By dtype: sums of up to so many terms may err by so much. Other floats: see `tolerance`."""

_NARROW = 0.25
"""What floats of 8 and fewer bits may err by: about two units in the last place."""

OUTLIERS = 1e-3
"""Behind an op that jumps, so large a share of the elements may be on the other side of the jump."""

JUMPS = frozenset(
    {"nn.floor", "nn.ceil", "nn.round", "nn.sign", "nn.mod", "nn.less", "nn.less_equal", "nn.greater",
     "nn.greater_equal", "nn.equal", "nn.cast", "nn.argmax", "nn.argmin", "nn.topk", "nn.nonzero", "nn.compress",
     "nn.unique", "nn.hardmax", "nn.thresholded_relu", "nn.shrink", "nn.max_pool_with_indices", "nn.quantize"}
)  # fmt: skip
"""Ops with results that a rounding of an operand can change by more than a rounding."""

BOUNDED = frozenset(
    {
        "nn.sigmoid",
        "nn.tanh",
        "nn.erf",
        "nn.softmax",
        "nn.hard_sigmoid",
        "nn.softsign",
        "nn.sin",
        "nn.cos",
    }
)
"""Ops with results up to 1, which other engines compute to so many places behind the point, however small they are."""


def tolerance(dtype: np.dtype, length: int) -> float:
    """The error that a tensor may have after sums of `length` terms, by its largest magnitude; 0 for integers."""
    if dtype.kind in "biu" or dtype.name.startswith(("int", "uint")):
        return 0.0
    steps = TOLERANCES.get(dtype.name, ((_ANY, _NARROW),))
    return next(error for most, error in steps if length <= most)


def reduction_length(op: Op, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> int:
    """How many terms the sums of an op have, about: 1 for an elementwise op.

    Args:
        op: the op.
        operands: its operands as arrays, those that are there, in order.
        results: its results.
    """
    view: Any = op
    if not operands or not results:
        return 1
    first, made = operands[0], max(results, key=lambda r: r.size)
    if op.NAME in ("nn.conv", "nn.conv_transpose"):
        weight = operands[1]
        return max(1, weight.size // max(1, weight.shape[0 if op.NAME == "nn.conv" else 1]))
    if op.NAME in ("nn.matmul", "nn.matmul_blocked"):
        return first.shape[-2 if view.transpose_a and first.ndim > 1 else -1]
    if op.NAME == "nn.fused_attention":
        return operands[1].shape[-1] + operands[1].shape[-2]
    if op.NAME == "nn.einsum":
        return _einsum_length(view.terms(), operands)
    if op.NAME.endswith(("_norm", "softmax", "hardmax")) or op.NAME == "nn.lrn":
        return max(1, first.size // max(1, first.shape[0]))
    if op.NAME in ("nn.lstm", "nn.gru", "nn.rnn"):
        return sum(x.shape[-1] for x in operands[:3]) * first.shape[0]
    return max(1, first.size // max(1, made.size))


def _einsum_length(terms: tuple[list[str], str], operands: Sequence[np.ndarray]) -> int:
    """The product of the sizes of the labels that are summed over."""
    inputs, output = terms
    sizes: dict[str, int] = {}
    for term, operand in zip(inputs, operands, strict=True):
        for label, size in zip(term, operand.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    return math.prod(size for label, size in sizes.items() if label not in output)
