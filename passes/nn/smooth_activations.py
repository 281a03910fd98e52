"""nn-smooth-activations: channels of activations share their spread with the weights, as a calibration table says."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.rewrite import RewriteStats
from xcompile.compiler.quantize.plan import has_quantization
from xcompile.compiler.quantize.smooth import smooth_activations
from xcompile.compiler.quantize.table import CalibrationTable


@dataclass(frozen=True)
class SmoothActivations(Pass):
    """Divide channels of the inputs of matrix products by powers of two, and multiply the weights by them.

    The factors are those of the calibration table; the model computes the same bits. They go into the constants of a
    normalization, an addition, a multiplication or a matrix product in front where nothing else reads its result, else
    a multiplication is put in front of the products. Option: `table` is the path of a table, by default that of the
    compile; without one nothing is done.
    """

    NAME: ClassVar[str] = "nn-smooth-activations"

    table: str = ""

    def run(self, module: Module, context: PassContext) -> None:
        if self.table:
            table = CalibrationTable.load(Path(self.table))
        elif context.calibration:
            table = CalibrationTable.from_text(context.calibration)
        else:
            return
        stats = RewriteStats()
        with module.context, ir.Location.unknown():
            done = {} if has_quantization(module) else smooth_activations(module, table.smooth)
            if done:
                stats.changed = [o.operation for o in module.main.regions[0].blocks[0].operations]
        for tensor, where in done.items():
            stats.fired[where.capitalize()] += 1
            stats.fired_at.append((where.capitalize(), tensor))
        context.record(self.NAME, stats)
