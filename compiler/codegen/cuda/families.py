"""Which family takes a kernel of a GPU, and the emitter that workers call."""

from typing import Any, Protocol, cast

from xcompile.compiler.codegen.cpu import families as cpu
from xcompile.compiler.codegen.cpu.family import Family, Kernel, Plan
from xcompile.compiler.codegen.cuda.launch import LaunchShape
from xcompile.compiler.codegen.cuda.rows import RowsFamily
from xcompile.compiler.codegen.cuda.simt import SimtFamily
from xcompile.compiler.codegen.job import EmittedKernel


class DevicePlan(Plan, Protocol):
    """What a family decided about one kernel of a GPU."""

    @property
    def launch(self) -> LaunchShape:
        """How blocks share the parallel units."""
        ...


FAMILIES: list[Family] = [
    RowsFamily(),
    SimtFamily(),
]
"""All families, the most specific first. Their plans are `DevicePlan`s."""


def plan(kernel: Kernel, *, node: str | None = None) -> DevicePlan:
    """The plan of the first family that takes the kernel.

    Raises:
        CompileError: XC4010 with each family's reason when none does.
    """
    return cast("DevicePlan", cpu.plan(kernel, node=node, families=FAMILIES))


def emit(payload: dict[str, Any]) -> EmittedKernel:
    """Emit one kernel; called in workers.

    Args:
        payload: see `compiler.codegen.cpu.families.emit_of`.
    """
    return cpu.emit_of(FAMILIES, payload)
