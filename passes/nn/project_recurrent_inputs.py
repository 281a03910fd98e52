"""nn-project-recurrent-inputs: what a recurrent layer makes of its inputs, for all steps in one product."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.recurrent import Gru, Recurrent
from xcompile.passes.common.constants import array_of, constant
from xcompile.passes.nn.expression import Expression


class InputsOfAllSteps(Pattern[Recurrent]):
    """The inputs of all steps times w at once; the layer keeps what depends on the step before.

        %0 = "nn.lstm"(%x, %w, %r, %bias)
    ->
        %0 = "nn.matmul"(%x, %columns)
        %1 = "nn.add"(%0, %biases)
        %2 = "nn.lstm"(%1, %r)

    A GRU whose reset gate multiplies `r·h + bias` keeps that bias.
    """

    def rewrite(self, op: Recurrent, rewriter: Rewriter) -> None:
        if op.w is None:
            no_match("the inputs are projected already")
        if dtype_of(op.x) not in ("f32", "f64"):
            no_match("products of 16-bit elements would be rounded")
        if const_of(op.r) is None:
            no_match("r is not a constant")
        w = array_of(rewriter, op.w, "w")
        e = Expression(rewriter)
        directions, rows, inputs = w.shape
        # A column for each row of w; those of the second direction come behind those of the first.
        columns = np.ascontiguousarray(w.reshape(directions * rows, inputs).T)
        products = e.make(MatMul, a=op.x, b=constant(rewriter, columns))
        kept: Value | None = None
        if op.bias is not None:
            ours, of_r = np.split(array_of(rewriter, op.bias, "the bias"), 2, axis=1)
            apart = isinstance(op, Gru) and op.linear_before_reset
            added = ours if apart else ours + of_r
            products = e.add(products, constant(rewriter, added.reshape(-1)))
            kept = constant(rewriter, np.ascontiguousarray(of_r)) if apart else None
        made = rewriter.create(type(op), x=products, w=None, bias=kept, **_others(op))
        rewriter.replace(op, made)


def _others(op: Recurrent) -> dict[str, Any]:
    """The layer's operands and attributes that stay as they are."""
    taken = ("x", "w", "bias")
    return {n: v for n, v in op.operand_fields().items() if n not in taken} | op.attributes()


@dataclass(frozen=True)
class ProjectRecurrentInputs(PatternPass):
    """Take the products with the inputs of all steps out of recurrent layers."""

    NAME: ClassVar[str] = "nn-project-recurrent-inputs"
    PATTERNS: ClassVar = (InputsOfAllSteps,)
