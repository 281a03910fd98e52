"""From the kernel level to the program: jobs for the workers, places in memory, packed weights."""

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.families import plan
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Plan
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.cpu.pull import memory_dtype
from xcompile.compiler.codegen.job import Job, MachineSpec
from xcompile.compiler.codegen.program.program import Check, Place, Program, Step
from xcompile.compiler.codegen.program.storage import ALIGNMENT, Life, place
from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.ir.location import describe, node_names
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.schedule.schedule import to_json
from xcompile.compiler.support.dims import Dim, parse, substitute, symbols_of
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.target import Target
from xcompile.dialects.kernel import Func, Launch, View, parse_shape
from xcompile.dialects.nn.base import Shape, dtype_of
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.cost import flops
from xcompile.dialects.nn.layouts import block_of
from xcompile.dialects.nn.slicing import Concat

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

    program: Program
    jobs: Mapping[str, Job]
    weights: bytes
    plans: Mapping[str, Plan]


def machine_of(target: Target) -> MachineSpec:
    """The machine in LLVM's words."""
    return MachineSpec(target.triple, target.llvm_cpu(), target.llvm_features())


def build(module: Module, target: Target, prefix: str, checks: tuple[Check, ...] = ()) -> Built:
    """Plan every kernel of a module at the kernel level and lay out its memory."""
    return _Build(module, target, prefix, checks).run()


class _Build:
    def __init__(
        self, module: Module, target: Target, prefix: str, checks: tuple[Check, ...]
    ) -> None:
        self._module = module
        self._target = target
        self._prefix = prefix
        self._checks = checks
        self._block = module.main.regions[0].blocks[0]
        self._plans: dict[str, Plan] = {}
        self._flops: dict[str, Dim] = {}
        self._symbols: dict[str, str] = {}
        self._jobs: dict[str, Job] = {}
        self._by_symbol: dict[str, Plan] = {}
        self._shapes: dict[Value, Shape] = {}
        self._inside: dict[Value, tuple[Value, Dim]] = {}
        self._weights = bytearray()
        self._packed: dict[tuple[str, str], int] = {}
        self._setup_symbols: dict[tuple[str, int], str] = {}
        self._prepared: dict[tuple[int, str], int] = {}
        self._prepared_bytes = 0
        self._setup: list[Step] = []

    def run(self) -> Built:
        with self._module.context, ir.Location.unknown():
            launches = self._join_in_place(self._find_shapes())
            self._plan_kernels({launch.callee for launch in launches})
            places = self._place(launches)
            steps = tuple(self._step(launch, places) for launch in launches)
        outputs = [self._shapes[v] for v in self._returned()]
        program = Program(
            prefix=self._prefix,
            inputs=tuple(self._module.input_shapes()),
            outputs=tuple(outputs),
            arena=self._arena.total,
            definitions=self._arena.definitions,
            checks=self._checks,
            steps=steps,
            setup=tuple(self._setup),
            prepared=self._prepared_bytes,
        )
        return Built(program, self._jobs, bytes(self._weights), self._by_symbol)

    # -- kernels ------------------------------------------------------------------------------

    def _plan_kernels(self, used: set[str]) -> None:
        nodes = self._kernel_nodes()
        for operation in self._module.module.body.operations:
            func = Func.of(operation)
            if func is None or func.sym_name not in used:
                continue
            name = func.sym_name
            kernel = Kernel(func, self._target)
            made = plan(kernel, node=" + ".join(nodes.get(name, ())) or None)
            self._flops[name] = flops(kernel.ops, kernel.sizes)
            self._plans[name] = made
            self._symbols[name] = self._job(func, made, nodes.get(name, ()))

    def _kernel_nodes(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, dict[str, None]] = {}
        for operation in self._block.operations:
            launch = Launch.of(operation)
            if launch is not None:
                found.setdefault(launch.callee, {}).update(
                    dict.fromkeys(node_names(launch.location))
                )
        return {name: tuple(nodes) for name, nodes in found.items()}

    def _job(self, func: Func, made: Plan, nodes: tuple[str, ...]) -> str:
        holder = ir.Module.create(ir.Location.unknown())
        holder.body.append(func.operation.clone())
        copy = holder.body.operations[0].operation
        copy.attributes["sym_name"] = ir.StringAttr.get("kernel")
        payload = {
            "text": str(holder),
            "family": made.family,
            "schedule": to_json(made.schedule),
            "target": self._target.to_json(),
            "prepare": None,
        }
        symbol = self._add_job(payload, made.family, func.sym_name, nodes)
        self._by_symbol[symbol] = made
        for position in made.preparations:
            self._setup_symbols[func.sym_name, position] = self._add_job(
                {**payload, "prepare": position}, f"{made.family}_setup", func.sym_name, nodes
            )
        return symbol

    def _add_job(
        self, payload: dict[str, Any], family: str, kernel: str, nodes: tuple[str, ...]
    ) -> str:
        digest = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:16]
        symbol = f"xk_{family.replace('-', '_')}_{digest}"
        self._jobs[symbol] = Job(
            "xcompile.compiler.codegen.cpu.families:emit", {**payload, "symbol": symbol}, machine_of(self._target),
            kernel=kernel, nodes=nodes,
        )  # fmt: skip
        return symbol

    # -- values -------------------------------------------------------------------------------

    def _returned(self) -> list[Value]:
        return list(list(self._block.operations)[-1].operation.operands)

    def _find_shapes(self) -> list[Launch]:
        """Record the shape of every value; the launches in order."""
        launches: list[Launch] = []
        self._shapes.update(zip(self._block.arguments, self._module.input_shapes(), strict=True))
        for operation in self._block.operations:
            op = view(operation)
            if isinstance(op, Launch):
                self._check_sizes(op)
                launches.append(op)
                for result, text in zip(op.results, op.shapes, strict=True):
                    self._shapes[result] = parse_shape(text)
            elif isinstance(op, View):
                self._shapes[op.y] = parse_shape(op.shape)
            elif isinstance(op, Const):
                self._shapes[op.y] = op.dims
            elif op is not None:
                raise CompileError(
                    "XC3010",
                    f"{op.NAME} is in no kernel after the passes",
                    node=describe(op.location),
                    help="the last pass of a pipeline is kernel-form",
                )
        return launches

    def _check_sizes(self, launch: Launch) -> None:
        """Raise XC4011 for sizes that do not follow from those of the inputs: the data would have to be seen first."""
        inputs = {s for shape in self._module.input_shapes() for d in shape for s in symbols_of(d)}
        dims = [d for text in launch.shapes for d in parse_shape(text)]
        for dim in (*dims, *map(parse, launch.sizes)):
            if not inputs.issuperset(symbols_of(dim)):
                raise CompileError(
                    "XC4011",
                    f"the size {dim} depends on the values of a tensor",
                    node=describe(launch.location),
                    help="make the operand that says it a constant",
                )

    def _base(self, value: Value) -> Value:
        """The value whose memory `value` is."""
        while not isinstance(value.owner, ir.Block) and (seen := View.of(value.owner)) is not None:
            value = seen.x
        return value

    def _join_in_place(self, launches: list[Launch]) -> list[Launch]:
        """Let the operands of concatenations be made where the result lies; the launches that remain.

        That takes operands that are next to each other in the result: no axis before theirs is longer than 1.
        """
        concats = {f.sym_name: c for f in self._funcs() if (c := _only_concat(f)) is not None}
        movable = {result for launch in launches for result in launch.results}
        movable -= {self._base(v) for v in self._returned()}  # outputs lie where the caller says
        kept: list[Launch] = []
        for launch in launches:
            concat = concats.get(launch.callee)
            result = launch.results[0]
            if (
                concat is None
                or result not in movable
                or not self._are_neighbours(launch, concat.axis, movable)
            ):
                kept.append(launch)
                continue
            offset: Dim = 0
            for value in launch.inputs:
                self._inside[value] = (result, offset)
                offset = offset + self.bytes_of(value)
        return kept

    def _are_neighbours(self, launch: Launch, axis: int, movable: Set[Value]) -> bool:
        """Whether the operands can lie next to each other in the result, and nowhere else."""
        shape, inputs = self._shapes[launch.results[0]], list(launch.inputs)
        free = all(v in movable and v not in self._inside for v in inputs) and len(
            set(inputs)
        ) == len(inputs)
        block = block_of(launch.results[0].type)
        whole = not block or all(self._shapes[v][1] % block == 0 for v in inputs[:-1])
        return free and whole and all(d == 1 for d in shape[: axis % len(shape)])

    def _whole(self, value: Value) -> tuple[Value, Dim]:
        """The value that owns the memory, and the byte where `value` starts in it."""
        value, offset = self._base(value), 0
        while value in self._inside:
            value, inner = self._inside[value]
            offset = offset + inner
        return value, offset

    def _funcs(self) -> list[Func]:
        return [f for o in self._module.module.body.operations if (f := Func.of(o)) is not None]

    def bytes_of(self, value: Value) -> Dim:
        """How many bytes the value takes in memory."""
        elements = Layout.of(value.type).elements(self._shapes[value])
        return elements * (bits_of(memory_dtype(dtype_of(value))) // 8)

    def _place(self, launches: list[Launch]) -> dict[Value, Place]:
        """The place of every value that memory holds."""
        places: dict[Value, Place] = {
            a: Place("input", i) for i, a in enumerate(self._block.arguments)
        }
        for position, value in enumerate(self._returned()):
            places[self._base(value)] = Place("output", position)
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for number, launch in enumerate(launches):
            for value in (*launch.inputs, *launch.results):
                whole, _ = self._whole(value)
                last[whole] = number
                if value in launch.results:
                    first.setdefault(whole, number)
        inner = [v for v in first if v not in places]
        lives = [Life(self.bytes_of(v), first[v], last[v]) for v in inner]
        self._arena = place(lives)
        offsets = self._arena.offsets
        places.update({v: Place("arena", o) for v, o in zip(inner, offsets, strict=True)})
        for value in self._inside:
            whole, offset = self._whole(value)
            places[value] = Place("arena", places[whole].offset + offset)
        return places

    # -- steps --------------------------------------------------------------------------------

    def _step(self, launch: Launch, places: Mapping[Value, Place]) -> Step:
        made = self._plans[launch.callee]
        found: list[Place] = []
        for position, value in enumerate(launch.inputs):
            base = self._base(value)
            constant = const_of(base)
            if constant is not None:
                place = Place("weights", self._pack(constant, made.packings.get(position)))
                found.append(
                    self._prepare(launch, position, place)
                    if position in made.preparations
                    else place
                )
            else:
                found.append(places[base])
        found += [places[self._base(r)] for r in launch.results]
        sizes = tuple(parse(s) for s in launch.sizes)
        binding = {f"d{i}": size for i, size in enumerate(sizes)}
        return Step(
            symbol=self._symbols[launch.callee],
            places=tuple(found),
            sizes=sizes,
            extent=substitute(made.extent, binding),
            grain=max(1, int(PART_CYCLES / max(1.0, made.unit_cost))),
            scratch=made.scratch,
            node=describe(launch.location) or launch.callee,
            flops=substitute(self._flops[launch.callee], binding),
            bytes=sum((self.bytes_of(v) for v in (*launch.inputs, *launch.results)), start=0),
        )

    def _prepare(self, launch: Launch, position: int, packed: Place) -> Place:
        """Where the prepared form of a packed constant will be; equal ones are prepared once."""
        preparation = self._plans[launch.callee].preparations[position]
        assert isinstance(packed.offset, int)
        key = (packed.offset, preparation.key)
        if key not in self._prepared:
            self._prepared[key] = self._prepared_bytes
            place = Place("prepared", self._prepared_bytes)
            self._prepared_bytes += -(-preparation.bytes // ALIGNMENT) * ALIGNMENT
            self._setup.append(
                Step(
                    symbol=self._setup_symbols[launch.callee, position], places=(packed, place), sizes=(),
                    extent=preparation.extent, grain=1, scratch=0, node=describe(launch.location) or launch.callee,
                )
            )  # fmt: skip
        return Place("prepared", self._prepared[key])

    def _pack(self, constant: Const, packing: Packing | None) -> int:
        """The offset of a constant in the weights, packed; equal ones are stored once."""
        key = (f"{constant.value}{constant.y.type}", packing.key if packing else "")
        if key not in self._packed:
            array = constant.array(self._module.weights)
            stored = np.ascontiguousarray(packing.pack(array) if packing else array)
            if stored.dtype.byteorder == ">":
                raise CompileError("XC4009", "a packed constant is big-endian")
            self._weights += b"\0" * (-len(self._weights) % 64)
            self._packed[key] = len(self._weights)
            self._weights += stored.tobytes()
        return self._packed[key]


def _only_concat(func: Func) -> Concat | None:
    """The concatenation of a kernel that does nothing else."""
    *ops, returned = func.ops
    concat = Concat.of(ops[0]) if len(ops) == 1 else None
    if (
        concat is None
        or list(concat.xs) != func.parameters
        or list(returned.operands) != [concat.y]
    ):
        return None
    return concat
