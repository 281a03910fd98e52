"""A pass without patterns: it walks the module itself and removes what nobody uses."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.passes import PASS_REGISTRY, Pass, PassContext
from xcompile.compiler.ir.rewrite import is_dead, walk


@PASS_REGISTRY.register
@dataclass(frozen=True)
class DeadOp(Pass):
    """Remove ops whose results nobody uses, the last ones first."""

    NAME: ClassVar[str] = "dead-op"

    def run(self, module: Module, context: PassContext) -> None:
        for operation in reversed(list(walk(module))):
            op = view(operation)
            if op is not None and is_dead(op):
                operation.erase()
