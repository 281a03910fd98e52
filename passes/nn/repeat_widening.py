"""nn-repeat-widening: what widens 8-bit integers is computed by each op that reads it.

    %0 = "nn.cast"(%bytes) {to = "f32"}
    %1 = "nn.add"(%0, %a)
    %2 = "nn.mul"(%0, %b)
->
    %0 = "nn.cast"(%bytes) {to = "f32"}
    %1 = "nn.add"(%0, %a)
    %3 = "nn.cast"(%bytes) {to = "f32"}
    %2 = "nn.mul"(%3, %b)

Kernels read the bytes then, and no wider tensor is in memory. Runs right before kernels are formed.
"""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, identity, view
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.regions import nested
from xcompile.dialects.nn.kinds import WIDENS, is_elementwise
from xcompile.dialects.nn.shapes import ShapeAnalysis
from xcompile.passes.common.widening import widens_bytes


@dataclass(frozen=True)
class RepeatWidening(Pass):
    """Compute what widens 8-bit integers anew for each op whose kernel can take it in."""

    NAME: ClassVar[str] = "nn-repeat-widening"

    def run(self, module: Module, context: PassContext) -> None:
        analysis = ShapeAnalysis(module.main, module.input_shapes())
        wide = [
            operation
            for operation in nested(module.main.operation)
            if (op := view(operation)) is not None and widens_bytes(op, analysis)
        ]
        for operation in reversed(wide):  # a copy is one more reader of what it reads
            for positions in _readers(operation.results[0])[1:]:
                reader = positions[0][0]
                op = view(reader)
                if op is None or not (is_elementwise(op.NAME) or op.NAME in WIDENS):
                    continue
                with ir.InsertionPoint(reader):
                    copy = operation.clone()
                for _, position in positions:
                    reader.operands[position] = copy.results[0]


def _readers(value: Value) -> list[list[tuple[ir.Operation, int]]]:
    """For each op that reads a value: where. Those that come first in the list of uses stand last in the program."""
    found: dict[int, list[tuple[ir.Operation, int]]] = {}
    for use in reversed(list(value.uses)):
        reader = use.owner.operation
        found.setdefault(identity(reader), []).append((reader, use.operand_number))
    return list(found.values())
