"""Which family takes a kernel, and the emitter that workers call."""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.codegen.cpu import attention_elements as _attention
from xcompile.compiler.codegen.cpu import box_kernels as _boxes
from xcompile.compiler.codegen.cpu import channel_norm as _channel_norm
from xcompile.compiler.codegen.cpu import contraction_elements as _contractions
from xcompile.compiler.codegen.cpu import counted_kernels as _counted
from xcompile.compiler.codegen.cpu import elementwise as _elementwise
from xcompile.compiler.codegen.cpu import lookup as _lookup
from xcompile.compiler.codegen.cpu import movement as _movement
from xcompile.compiler.codegen.cpu import norm_elements as _norms
from xcompile.compiler.codegen.cpu import order as _order
from xcompile.compiler.codegen.cpu import position_elements as _positions
from xcompile.compiler.codegen.cpu import recurrent as _recurrent
from xcompile.compiler.codegen.cpu import reduction_elements as _reductions
from xcompile.compiler.codegen.cpu import resize_elements as _resize
from xcompile.compiler.codegen.cpu import sampling_elements as _sampling
from xcompile.compiler.codegen.cpu import window_elements as _windows
from xcompile.compiler.codegen.cpu.arg_rows import ArgFamily
from xcompile.compiler.codegen.cpu.attentions import AttentionFamily
from xcompile.compiler.codegen.cpu.blocked_products import BlockedFamily
from xcompile.compiler.codegen.cpu.contractions import ContractionFamily
from xcompile.compiler.codegen.cpu.family import Family, Kernel, Plan
from xcompile.compiler.codegen.cpu.images import (
    ConvPlan,
    DepthwisePlan,
    ImageFamily,
    WinogradPlan,
)
from xcompile.compiler.codegen.cpu.integer_images import IntegerConvPlan, IntegerDepthwisePlan
from xcompile.compiler.codegen.cpu.map import FallbackFamily, MapFamily
from xcompile.compiler.codegen.cpu.pools import GlobalPoolPlan, IndexedPoolFamily, PoolPlan
from xcompile.compiler.codegen.cpu.recurrents import RecurrentFamily
from xcompile.compiler.codegen.cpu.row_kernels import RowFamily
from xcompile.compiler.codegen.cpu.scans import ScanFamily
from xcompile.compiler.codegen.cpu.scatters import ScatterFamily
from xcompile.compiler.codegen.cpu.transposed import ConvTransposePlan
from xcompile.compiler.codegen.job import EmittedKernel
from xcompile.compiler.ir.context import new_context
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.rewrite import NoMatch
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.target import Target
from xcompile.dialects import nn as _nn
from xcompile.dialects.kernel import Func

# importing the modules registers ops and their element functions
assert (
    _attention
    and _boxes
    and _channel_norm
    and _contractions
    and _counted
    and _elementwise
    and _lookup
    and _movement
    and _nn
    and _norms
    and _order
    and _positions
    and _recurrent
    and _reductions
    and _resize
    and _sampling
    and _windows
)

FAMILIES: list[Family] = [
    ImageFamily(DepthwisePlan, "nn.conv"),
    ImageFamily(WinogradPlan, "nn.conv"),
    ImageFamily(ConvPlan, "nn.conv"),
    ImageFamily(IntegerDepthwisePlan, "nn.conv_integer"),
    ImageFamily(IntegerConvPlan, "nn.conv_integer"),
    ImageFamily(ConvTransposePlan, "nn.conv_transpose"),
    ImageFamily(PoolPlan, "nn.max_pool", "nn.average_pool", "nn.lp_pool"),
    IndexedPoolFamily(),
    ImageFamily(GlobalPoolPlan, "nn.reduce_mean", "nn.reduce_sum"),
    ContractionFamily(),
    BlockedFamily(),
    AttentionFamily(),
    RecurrentFamily(),
    RowFamily(),
    ArgFamily(),
    ScanFamily(),
    ScatterFamily(),
    MapFamily(),
    FallbackFamily(),
]
"""All families, the most specific first."""


STORES_ROWS = frozenset(
    {"attention", "blocked", "contraction", "conv", "conv-transpose", "depthwise", "integer-conv", "integer-depthwise",
     "map", "pool", "rows", "winograd"}
)  # fmt: skip
"""Families whose kernels may store their result in rows of a larger tensor."""


def plan(kernel: Kernel, *, node: str | None = None, families: Sequence[Family] = FAMILIES) -> Plan:
    """The plan of the first family that takes the kernel.

    Args:
        kernel: the kernel.
        node: the model nodes that it computes, for the error.
        families: which ones there are.

    Raises:
        CompileError: XC4010 with each family's reason when none does.
    """
    reasons: list[str] = []
    for family in families:
        if kernel.seams and family.name not in STORES_ROWS:
            reasons.append(f"{family.name}: the result lies in rows of a larger tensor")
            continue
        try:
            return family.plan(kernel)
        except NoMatch as reason:
            reasons.append(f"{family.name}: {reason}")
    raise CompileError(
        "XC4010", f"no kernel family takes this kernel ({'; '.join(reversed(reasons))})", node=node
    )


def emit(payload: dict[str, Any]) -> EmittedKernel:
    """Emit one kernel; called in workers.

    Args:
        payload: see `emit_of`.
    """
    return emit_of(FAMILIES, payload)


def emit_of(families: Sequence[Family], payload: dict[str, Any]) -> EmittedKernel:
    """Emit one kernel of one of some families.

    Args:
        families: which ones there are.
        payload: `text` (a module with one kernel.func), `family`, `schedule` (JSON text), `target`
            (JSON), `symbol`, and `prepare`, the position of an argument whose preparation is meant,
            or null for the kernel itself.
    """
    context = _context()
    with context, ir.Location.unknown():
        module = ir.Module.parse(payload["text"])
        func = Func.of(module.body.operations[0].operation)
        assert func is not None
        kernel = Kernel(func, Target.from_json(payload["target"]))
        family = next(f for f in families if f.name == payload["family"])
        made = family.plan(kernel, payload["schedule"])
        prepare = payload["prepare"]
        return (made if prepare is None else made.preparations[prepare]).emit(payload["symbol"])


_CONTEXT: list[ir.Context] = []


def _context() -> ir.Context:
    """One context for the life of a worker."""
    if not _CONTEXT:
        _CONTEXT.append(new_context())
    return _CONTEXT[0]
