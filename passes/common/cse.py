"""cse: merge ops that compute the same."""

from collections import ChainMap
from dataclasses import dataclass
from typing import Any, ClassVar

from xcompile.compiler.ir.location import fuse
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.rewrite import Rewriter, RewriteStats
from xcompile.dialects.nn.const import Const

COMMUTATIVE = frozenset(
    f"nn.{name}"
    for name in ("add", "mul", "equal", "and", "or", "xor", "bitwise_and", "bitwise_or", "bitwise_xor")
)  # fmt: skip


@dataclass(frozen=True)
class CommonSubexpressions(Pass):
    """Merge pure ops of equal operands, attributes and types; the one that stays names the nodes of all."""

    NAME: ClassVar[str] = "cse"

    def run(self, module: Module, context: PassContext) -> None:
        stats, rewriter = RewriteStats(), Rewriter(module)
        for operation in module.module.body.operations:
            for region in operation.operation.regions:
                _merge_region(region, ChainMap(), rewriter, stats)
        context.record(self.NAME, stats)


def _merge_region(
    region: ir.Region, outer: ChainMap[Any, ir.Operation], rewriter: Rewriter, stats: RewriteStats
) -> None:
    for block in region.blocks:
        known = outer.new_child()
        for operation in [o.operation for o in block.operations]:
            for inner in operation.regions:
                _merge_region(inner, known, rewriter, stats)
            op = view(operation)
            if op is None or not op.PURE or not op.results or operation.regions:
                continue
            kept = known.setdefault(_key(operation), operation)
            if kept is operation:
                continue
            if op.NAME != Const.NAME:
                kept.location = fuse([kept.location, operation.location])
            rewriter.begin(operation, CommonSubexpressions.NAME)
            rewriter.replace(op, list(kept.results))
            stats.fired[CommonSubexpressions.NAME] += 1


def _key(operation: ir.Operation) -> Any:
    """Equal for ops that compute the same."""
    operands = tuple(operation.operands)
    attributes = operation.attributes
    return (
        operation.name,
        frozenset(operands) if operation.name in COMMUTATIVE else operands,
        tuple((name, attributes[name]) for name in attributes),
        tuple(result.type for result in operation.results),
    )
