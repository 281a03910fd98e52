"""nn-insert-quantization: a float model gets quantize and dequantize pairs where a calibration table has ranges."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.rewrite import RewriteStats
from xcompile.compiler.quantize.equalize import equalize_channels
from xcompile.compiler.quantize.plan import (
    INT8,
    KEPT_IN_FLOAT,
    Product,
    QuantizationPlan,
    has_quantization,
    plan_quantization,
)
from xcompile.compiler.quantize.sharing import shared_ranges
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.quantize.weights import mean_error
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.matmul import MatMul
from xcompile.passes.nn.quantized_weights import QuantizedWeights, correctable_addend

_QUANTIZED = "Quantized"


@dataclass(frozen=True)
class InsertQuantization(Pass):
    """Quantize convolutions and matrix products with their inputs, as a calibration table says.

    Tensors get 8 bits, unsigned, with one scale and zero point each, and one pair of ops for all their users. What
    moves and concatenations make of tensors has their scale where ranges are alike (`compiler/quantize/sharing.py`).
    Constant weights get a signed scale for each output channel; a bias becomes int32 where it fits, and makes up for
    the mean error of the weights. A model that has quantization of its own stays as it is. Options: `table` is the path
    of a table, by default that of the compile; `refine` fits scales of weights by least squares; `correct` corrects
    biases.
    """

    NAME: ClassVar[str] = "nn-insert-quantization"
    CHANGES_VALUES: ClassVar[bool] = True

    table: str = ""
    refine: bool = True
    correct: bool = True

    def run(self, module: Module, context: PassContext) -> None:
        with module.context, ir.Location.unknown():
            if has_quantization(module):
                return
            table = self._table(context)
            if table.equalized:
                equalize_channels(module)
            precisions = context.precisions.asking(INT8.default).keeping_float(table.keep_float)
            plan = plan_quantization(module, precisions)
            table = replace(table, tensors=shared_ranges(plan.ties, table.tensors))
            stats = _Insertion(module, plan, table, refine=self.refine, correct=self.correct).run()
        context.record(self.NAME, stats)

    def _table(self, context: PassContext) -> CalibrationTable:
        if self.table:
            return CalibrationTable.load(Path(self.table))
        if not context.calibration:
            raise CompileError(
                "XC6008", "the model is in floating point and nothing says what its tensors hold",
                help="give samples (calibrate=, --calibrate=DATA), or a table that was made of some"
                " (calibration_table=, --calibration-table=FILE)",
            )  # fmt: skip
        return CalibrationTable.from_text(context.calibration)


class _Insertion:
    """One run of the pass."""

    def __init__(
        self,
        module: Module,
        plan: QuantizationPlan,
        table: CalibrationTable,
        *,
        refine: bool,
        correct: bool,
    ) -> None:
        self._module, self._plan, self._table = module, plan, table
        self._writer, self._correct = (
            QuantizedWeights(module, refine, correct, table.rounded),
            correct,
        )
        self._names = {value: name for name, value in plan.tensors.items()}
        self._stats = RewriteStats()

    def run(self) -> RewriteStats:
        floats = self._plan.floats
        for op, reason in floats.items():
            self._tell(op, KEPT_IN_FLOAT, reason)
        found = [p for p in self._plan.products if self._names[p.x] in self._table.tensors]
        if self._plan.products and not found:
            raise CompileError(
                "XC6009", "the calibration table has none of the model's tensors",
                help="it was made for another model, or by another pipeline: calibrate again",
            )  # fmt: skip
        for product in self._plan.products:
            if product not in found:
                floats[product.op] = f"the table has no range of '{self._names[product.x]}'"
                self._tell(product.op, KEPT_IN_FLOAT, floats[product.op])
        for name, value in self._plan.tensors.items():
            if name in self._table.tensors:
                self._quantize_tensor(name, value)
        for product in found:
            self._quantize_product(product)
        gone = self._module.graveyard.why
        changed = [*self._writer.made, *self._stats.changed]
        self._stats.changed = [o for o in changed if gone(o) is None]
        return self._stats

    def _tell(self, op: Op, what: str, reason: str = "") -> None:
        node = describe(op.location) or "?"
        if reason:
            self._stats.missed.append((what, node, reason))
        else:
            self._stats.fired[what] += 1
            self._stats.fired_at.append((what, node))

    def _quantize_tensor(self, name: str, value: Value) -> None:
        """Put a pair of ops behind a value, for all its users but outputs and what stays in floating point."""
        stays = {op.operation for op in self._plan.floats}
        block = self._module.main.regions[0].blocks[0]
        uses = [
            (use.owner.operation, use.operand_number)
            for use in value.uses
            if use.owner.operation not in stays
            and use.owner.operation.block == block
            and use.owner.operation.name != "func.return"
        ]
        owner = value.owner
        if isinstance(owner, ir.Block):
            point, location = ir.InsertionPoint.at_block_begin(owner), ir.Location.unknown()
        else:
            point, location = ir.InsertionPoint.after(owner.operation), owner.location
        with point, location:
            _, back = self._writer.tensor(value, self._table.tensors[name])
        for operation, position in uses:
            operation.operands[position] = back.y
            self._stats.changed.append(operation)

    def _quantize_product(self, product: Product) -> None:
        """Replace a product by one of constants that are dequantized integers."""
        op, seen = product.op, self._table.tensors[self._names[product.x]]
        integers, scales = self._writer.weights(product)
        with ir.InsertionPoint(op.operation), op.location:
            made = self._writer.product(product, seen, integers, scales)
        self._tell(made, _QUANTIZED)
        if isinstance(op, MatMul) and self._correct:
            self._correct_addend(op, product, integers, scales)
        op.y.replace_all_uses_with(made.y)
        self._module.graveyard.bury(op.operation, InsertQuantization.NAME)

    def _correct_addend(
        self, matmul: MatMul, product: Product, integers: np.ndarray, scales: np.ndarray
    ) -> None:
        """Take the mean error of the weights from the constant that is added behind a matrix product."""
        seen = self._table.tensors[self._names[product.x]]
        found = correctable_addend(matmul, product, seen)
        if found is None:
            return
        add, place, given = found
        error = mean_error(product.weights, integers, scales, np.array(seen.means), 1)
        bias = given.array(self._module.weights) - error
        if np.isfinite(bias).all():
            with ir.InsertionPoint(add.operation), add.location:
                add.operation.operands[place] = self._writer.constant(bias.astype(np.float32))
            self._stats.changed.append(add.operation)
