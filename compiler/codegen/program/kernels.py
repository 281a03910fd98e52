"""The kernels of a program: their plans, their jobs, and the constants in the form that they read."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.families import plan
from xcompile.compiler.codegen.cpu.family import Kernel, Packing, Plan
from xcompile.compiler.codegen.cuda.families import DevicePlan
from xcompile.compiler.codegen.cuda.families import plan as plan_device
from xcompile.compiler.codegen.job import Job, MachineSpec
from xcompile.compiler.codegen.program import program as rt
from xcompile.compiler.codegen.program.arithmetic import arithmetic_of
from xcompile.compiler.codegen.program.storage import ALIGNMENT
from xcompile.compiler.codegen.program.work import Work, work_of
from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.location import describe, node_names
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.schedule.schedule import to_json
from xcompile.compiler.support.dims import Dim
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.target import Target
from xcompile.dialects.kernel import Func, Launch
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.cost import flops
from xcompile.runtime.device import DeviceKernel


@dataclass(frozen=True)
class Planned:
    """A kernel that launches call.

    Attributes:
        symbol: of its code.
        plan: how it is computed.
        flops: over its own symbols.
    """

    symbol: str
    plan: Plan
    flops: Dim


class Kernels:
    """Plans the kernels that are launched; equal ones become one job.

    Attributes:
        jobs: by symbol.
        by_symbol: the plan of each.
        arithmetic: what kind of numbers the products of each are of, see `arithmetic_of`.
        stores: the types of the results of each.
        work: how much each has to do.
        device: what launches of a GPU must know of each; empty for a CPU.
    """

    def __init__(self, module: Module, target: Target, launches: Sequence[Launch]) -> None:
        self._target = target
        self._planned: dict[str, Planned] = {}
        self._setup_symbols: dict[tuple[str, int], str] = {}
        self.jobs: dict[str, Job] = {}
        self.by_symbol: dict[str, Plan] = {}
        self.arithmetic: dict[str, str] = {}
        self.stores: dict[str, str] = {}
        self.work: dict[str, Work] = {}
        self.device: dict[str, DeviceKernel] = {}
        nodes: dict[str, dict[str, None]] = {}
        for launch in launches:
            nodes.setdefault(launch.callee, {}).update(dict.fromkeys(node_names(launch.location)))
        for operation in module.module.body.operations:
            func = Func.of(operation)
            if func is not None and func.sym_name in nodes:
                self._planned[func.sym_name] = self._plan(func, tuple(nodes[func.sym_name]))

    def __getitem__(self, callee: str) -> Planned:
        return self._planned[callee]

    def setup_symbol(self, callee: str, position: int) -> str:
        """The symbol of the kernel that prepares a constant operand."""
        return self._setup_symbols[callee, position]

    def _plan(self, func: Func, nodes: tuple[str, ...]) -> Planned:
        kernel, node = Kernel(func, self._target), " + ".join(nodes) or None
        if self._target.device is None:
            made = plan(kernel, node=node)
            symbol = self._job(func, made, nodes)
        else:
            made = plan_device(kernel, node=node)
            symbol = self._job(func, made, nodes)
            self.device[symbol] = _device_kernel(symbol, kernel, made)
        self.arithmetic[symbol] = arithmetic_of(kernel.ops)
        self.work[symbol] = work_of(kernel, made)
        stored = (DTYPES[dtype_of(value)].name for value in kernel.results)
        self.stores[symbol] = ", ".join(dict.fromkeys(stored))
        return Planned(symbol, made, flops(kernel.ops, kernel.sizes))

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
        self.by_symbol[symbol] = made
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
        device = self._target.device
        emitter = f"xcompile.compiler.codegen.{'cpu' if device is None else 'cuda'}.families:emit"
        machine = MachineSpec.of(self._target) if device is None else MachineSpec.of_device(device)
        payload = {**payload, "symbol": symbol}
        self.jobs[symbol] = Job(emitter, payload, machine, kernel=kernel, nodes=nodes)
        return symbol


def _device_kernel(symbol: str, kernel: Kernel, plan: DevicePlan) -> DeviceKernel:
    buffers, sizes = len(kernel.parameters) + len(kernel.results), len(kernel.symbols)
    shape = plan.launch
    return DeviceKernel(
        symbol, buffers + sizes, buffers, plan.scratch, shape.threads, shape.units, shape.shared, shape.blocks
    )  # fmt: skip


class Constants:
    """The constants of a model as its kernels read them; equal ones are stored once.

    Attributes:
        weights: the packed constants.
        setup: launches that compute what `prepared` places hold, once at load.
        prepared_bytes: how much that is.
    """

    def __init__(self, module: Module, kernels: Kernels) -> None:
        self._module = module
        self._kernels = kernels
        self.weights = bytearray()
        self.setup: list[rt.Launch] = []
        self.prepared_bytes = 0
        self._packed: dict[tuple[str, str], int] = {}
        self._prepared: dict[tuple[int, str], int] = {}

    def place(self, launch: Launch, position: int, constant: Const) -> rt.Place:
        """Where the operand of a launch at a position lies."""
        made = self._kernels[launch.callee].plan
        packed = self.stored(constant, made.packings.get(position))
        return self._prepare(launch, position, packed) if position in made.preparations else packed

    def stored(self, constant: Const, packing: Packing | None = None) -> rt.Place:
        """Where a constant lies in the weights, packed."""
        return rt.Place("weights", self._pack(constant, packing))

    def _prepare(self, launch: Launch, position: int, packed: rt.Place) -> rt.Place:
        """Where the prepared form of a packed constant will be; equal ones are prepared once."""
        preparation = self._kernels[launch.callee].plan.preparations[position]
        assert isinstance(packed.offset, int)
        key = (packed.offset, preparation.key)
        if key not in self._prepared:
            self._prepared[key] = self.prepared_bytes
            place = rt.Place("prepared", self.prepared_bytes)
            self.prepared_bytes += -(-preparation.bytes // ALIGNMENT) * ALIGNMENT
            self.setup.append(
                rt.Launch(
                    symbol=self._kernels.setup_symbol(launch.callee, position), places=(packed, place), sizes=(),
                    extent=preparation.extent, grain=1, scratch=0, node=describe(launch.location) or launch.callee,
                    lengths=(0, preparation.bytes),
                )
            )  # fmt: skip
        return rt.Place("prepared", self._prepared[key])

    def _pack(self, constant: Const, packing: Packing | None) -> int:
        """The offset of a constant in the weights, packed; equal ones are stored once."""
        key = (f"{constant.value}{constant.y.type}", packing.key if packing else "")
        if key not in self._packed:
            array = constant.array(self._module.weights)
            stored = np.ascontiguousarray(packing.pack(array) if packing else array)
            if stored.dtype.byteorder == ">":
                raise CompileError("XC4009", "a packed constant is big-endian")
            self.weights += b"\0" * (-len(self.weights) % 64)
            self._packed[key] = len(self.weights)
            self.weights += stored.tobytes()
        return self._packed[key]
