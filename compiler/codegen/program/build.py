"""From the kernel level to the program: jobs for the workers, places in memory, packed weights."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xcompile.compiler.codegen.cpu.family import Plan
from xcompile.compiler.codegen.job import Job
from xcompile.compiler.codegen.program import program as rt
from xcompile.compiler.codegen.program.kernels import Constants, Kernels
from xcompile.compiler.codegen.program.memory import Memory
from xcompile.compiler.codegen.program.values import Values
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.support.dims import Dim, parse, substitute, symbol, symbols_of
from xcompile.compiler.target.target import Target
from xcompile.dialects.kernel import Check, Define, Launch, Read
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.const import const_of

PART_CYCLES = 40_000
"""A part of a launch should take at least about so many cycles: waking a thread costs a few thousand."""


@dataclass(frozen=True)
class Built:
    """What the driver needs to make a model.

    Attributes:
        program: the rt level.
        jobs: one a distinct kernel, by symbol.
        weights: the packed constants.
        plans: the plan of each symbol, for reports.
    """

    program: rt.Program
    jobs: Mapping[str, Job]
    weights: bytes
    plans: Mapping[str, Plan]


def build(module: Module, target: Target, prefix: str, checks: tuple[rt.Check, ...] = ()) -> Built:
    """Plan every kernel of a module at the kernel level and lay out its memory."""
    with module.context, ir.Location.unknown():
        values = Values(module)
        kernels = Kernels(module, target, values.launches)
        constants = Constants(module, kernels)
        memory = Memory(values)
        steps = _Steps(values, kernels, constants, memory).write()
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
    )
    return Built(program, kernels.jobs, bytes(constants.weights), kernels.by_symbol)


class _Steps:
    """Writes the steps of a block in order."""

    def __init__(
        self, values: Values, kernels: Kernels, constants: Constants, memory: Memory
    ) -> None:
        self._values = values
        self._kernels = kernels
        self._constants = constants
        self._memory = memory
        self._late: set[str] = set()
        self._named: dict[Dim, Dim] = {}
        self._steps: list[rt.Step] = []

    def write(self) -> list[rt.Step]:
        for number, op in enumerate(self._values.ops):
            for slot, size in self._memory.born(op, number):
                self._steps.append(rt.Allocate(slot, self._size(size)))
            self._write(op)
            self._steps += [rt.Free(slot) for slot in self._memory.dead(number)]
        first = 0
        for position, slot, value in self._memory.given():
            sizes = tuple(d for d in self._values.shape(value) if self._is_late(d))
            self._steps.append(rt.Give(position, slot, sizes, first))
            first += len(sizes)
        return self._steps

    def _write(self, op: Op) -> None:
        match op:
            case Launch():
                self._steps.append(self._launch(op))
            case Read():
                self._read(op)
            case Define():
                self._late.add(op.symbol)
                self._steps.append(rt.Define(op.symbol, parse(op.dim)))
            case Check():
                self._steps.append(rt.Check(parse(op.left), parse(op.right), op.text))
            case _:
                raise AssertionError(f"{op.NAME} has no steps")

    def _read(self, op: Read) -> None:
        constant = const_of(self._values.base(op.x))
        place = self._constants.stored(constant) if constant else self._memory.place(op.x)
        for index, name in enumerate(op.symbols):
            if name:
                self._late.add(name)
                self._steps.append(rt.Read(name, place, index, dtype_of(op.x)))

    def _launch(self, launch: Launch) -> rt.Launch:
        kernel = self._kernels[launch.callee]
        places = [self._operand(launch, i, v) for i, v in enumerate(launch.inputs)]
        places += [self._memory.place(r) for r in launch.results]
        sizes = tuple(parse(s) for s in launch.sizes)
        binding = {f"d{i}": size for i, size in enumerate(sizes)}
        touched = (*launch.inputs, *launch.results)
        return rt.Launch(
            symbol=kernel.symbol,
            places=tuple(replace(p, offset=self._size(p.offset)) for p in places),
            sizes=tuple(map(self._size, sizes)),
            extent=self._size(substitute(kernel.plan.extent, binding)),
            grain=max(1, int(PART_CYCLES / max(1.0, kernel.plan.unit_cost))),
            scratch=kernel.plan.scratch,
            node=describe(launch.location) or launch.callee,
            flops=substitute(kernel.flops, binding),
            lengths=tuple(self._values.bytes_of(v) for v in touched),
            results=len(launch.results),
        )

    def _operand(self, launch: Launch, position: int, value: Value) -> rt.Place:
        constant = const_of(self._values.base(value))
        if constant is not None:
            return self._constants.place(launch, position, constant)
        return self._memory.place(value)

    def _is_late(self, dim: Dim) -> bool:
        return not self._late.isdisjoint(symbols_of(dim))

    def _size(self, dim: Dim) -> Dim:
        """The size as steps use it: one that depends on data is computed once, and has a symbol from then on."""
        if isinstance(dim, int) or not self._is_late(dim):
            return dim
        if str(dim) in map(str, map(symbol, symbols_of(dim))):
            return dim
        if dim not in self._named:
            name = f"@late{len(self._named)}"
            self._late.add(name)
            self._named[dim] = symbol(name)
            self._steps.append(rt.Define(name, dim))
        return self._named[dim]
