"""A module of the IR with what belongs to it: its context and its weights."""

from dataclasses import dataclass, field

from torch_mlir import ir
from torch_mlir.dialects import func

from xcompile.compiler.ir.weights import WeightStore


@dataclass
class Module:
    """One model at the nn or kernel level.

    Attributes:
        module: the MLIR module; `@main` is the model's function.
        weights: the store that its constants refer to.
        name: the model's name, for reports.
    """

    module: ir.Module
    weights: WeightStore = field(default_factory=WeightStore)
    name: str = "model"

    @property
    def context(self) -> ir.Context:
        return self.module.context

    @property
    def main(self) -> func.FuncOp:
        """The function `@main`; LookupError when there is none."""
        for operation in self.module.body.operations:
            if isinstance(operation, func.FuncOp) and operation.sym_name.value == "main":
                return operation
        raise LookupError("the module has no function @main")

    def text(self, *, locations: bool = False) -> str:
        """The module as MLIR text, with node names when `locations`."""
        return self.module.operation.get_asm(enable_debug_info=locations)
