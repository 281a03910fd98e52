"""Recurrent layers whose r has 8 bits, for passes that quantize."""

from typing import Any

import numpy as np

from xcompile.compiler.ir.module import Module
from xcompile.compiler.quantize.plan import MOST_TERMS
from xcompile.compiler.quantize.weights import quantize_weights
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.recurrent import Recurrent


def with_codes(
    op: Recurrent, module: Module, *, refine: bool, quantize_state: bool
) -> list[Const | Recurrent] | str:
    """The layer with an r of int8, a scale for each row, and what it is made of before; or why there is none.

    Args:
        op: a layer whose inputs are projected already; it stays.
        module: its module.
        refine: whether scales have the least square error.
        quantize_state: whether states are quantized for the products with r too.
    """
    known = const_of(op.r)
    if op.w is not None or known is None or dtype_of(op.r) != "f32" or dtype_of(op.x) != "f32":
        return "its weights are not float32 numbers that are known"
    r = known.array(module.weights)
    if not np.isfinite(r).all() or not r.size:
        return "its weights are not finite"
    if quantize_state and op.hidden > MOST_TERMS:
        return f"{op.hidden} products of 8 bits may overflow a sum of 32 bits"
    codes, scales = quantize_weights(r.reshape(-1, op.hidden), refine=refine)
    consts = [
        Const.from_array(np.ascontiguousarray(array), module.weights)
        for array in (codes.reshape(r.shape), scales.astype(np.float32).reshape(r.shape[:2]))
    ]
    fields: dict[str, Any] = {
        **op.operand_fields(),
        **op.attributes(),
        "quantize_state": quantize_state,
    }
    fields["r"], fields["r_scale"] = (made.y for made in consts)
    return [*consts, type(op).create(**fields)]
