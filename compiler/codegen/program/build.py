"""From the kernel level to the program: jobs for the workers, places in memory, packed weights."""

from collections.abc import Mapping
from dataclasses import dataclass

from xcompile.compiler.codegen.cpu.family import Plan
from xcompile.compiler.codegen.job import Job
from xcompile.compiler.codegen.program import program as rt
from xcompile.compiler.codegen.program.in_place import join_in_place
from xcompile.compiler.codegen.program.kernels import Constants, Kernels
from xcompile.compiler.codegen.program.memory import Memory
from xcompile.compiler.codegen.program.steps import Steps
from xcompile.compiler.codegen.program.values import Values
from xcompile.compiler.codegen.program.work import Work
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.target.target import Target


@dataclass(frozen=True)
class Built:
    """What the driver needs to make a model.

    Attributes:
        program: the rt level.
        jobs: one a distinct kernel, by symbol.
        weights: the packed constants.
        plans: the plan of each symbol, for reports.
        arithmetic: the kind of numbers that its products are of.
        stores: the types of its results.
        work: how much it has to do.
    """

    program: rt.Program
    jobs: Mapping[str, Job]
    weights: bytes
    plans: Mapping[str, Plan]
    arithmetic: Mapping[str, str]
    stores: Mapping[str, str]
    work: Mapping[str, Work]


def build(module: Module, target: Target, prefix: str, checks: tuple[rt.Check, ...] = ()) -> Built:
    """Plan every kernel of a module at the kernel level and lay out its memory."""
    with module.context, ir.Location.unknown():
        values = Values(module)
        join_in_place(module, values, target)
        kernels = Kernels(module, target, values.launches)
        constants = Constants(module, kernels)
        memory = Memory(values)
        steps = Steps(values, kernels, constants, memory).write()
    program = rt.Program(
        prefix=prefix,
        inputs=tuple(module.input_shapes()),
        outputs=tuple(values.shape(v) for v in values.returned),
        arena=memory.arena,
        definitions=memory.definitions,
        checks=checks,
        steps=tuple(steps),
        setup=tuple(constants.setup),
        prepared=constants.prepared_bytes,
        heap=memory.heap,
        on_device=target.device is not None,
        device=tuple(kernels.device.values()),
    )
    return Built(
        program,
        kernels.jobs,
        bytes(constants.weights),
        kernels.by_symbol,
        kernels.arithmetic,
        kernels.stores,
        kernels.work,
    )
