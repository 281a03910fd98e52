"""Runs the kernels of a module one at a time on numpy arrays: the code that a model ships, without its program."""

import ctypes
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from xcompile.compiler.codegen.cpu.families import plan
from xcompile.compiler.codegen.cpu.family import Kernel, Plan, Preparation
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.job import Job, MachineSpec
from xcompile.compiler.codegen.loader import LoadedObjects
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value
from xcompile.compiler.schedule.schedule import to_json
from xcompile.compiler.support.dims import evaluate
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.target import Target
from xcompile.compiler.worker.pool import WorkerPool
from xcompile.dialects.kernel import Func, Launch
from xcompile.dialects.kernel_interpreter import KernelInterpreter
from xcompile.dialects.nn.base import numpy_dtype
from xcompile.runtime import native_library
from xcompile.runtime.abi import Context
from xcompile.runtime.arena import AlignedMemory

_THREADS = 2
"""Kernels are cut into so many parts: an error at the seams is one of the kernel."""

_PARALLEL_FOR = ctypes.CFUNCTYPE(
    None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 3
)  # fmt: skip


class NativeKernel:
    """One kernel, ready to run.

    Attributes:
        func: its op.
        plan: how it is computed.
    """

    def __init__(self, func: Func, target: Target) -> None:
        """Plan a kernel; its code is in the jobs of `jobs`.

        Raises:
            CompileError: XC4010 when no family takes it.
        """
        self.func = func
        self._kernel = Kernel(func, target)
        self.plan: Plan = plan(self._kernel)
        self._target = target
        self._code: LoadedObjects | None = None
        self._symbols: dict[int | None, str] = {}

    def jobs(self) -> dict[str, Job]:
        """What makes the code, by symbol: the kernel, and what prepares its constants; the same as for the program."""
        holder = ir.Module.create(ir.Location.unknown())
        holder.body.append(self.func.operation.clone())
        holder.body.operations[0].operation.attributes["sym_name"] = ir.StringAttr.get("kernel")
        payload = {
            "text": str(holder),
            "family": self.plan.family,
            "schedule": to_json(self.plan.schedule),
            "target": self._target.to_json(),
        }
        found: dict[str, Job] = {}
        for position in (None, *self.plan.preparations):
            job = self._job({**payload, "prepare": position})
            self._symbols[position] = job.payload["symbol"]
            found[job.payload["symbol"]] = job
        return found

    def _job(self, payload: dict[str, Any]) -> Job:
        family = self.plan.family if payload["prepare"] is None else f"{self.plan.family}_setup"
        digest = hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:16]
        symbol = f"xk_{family.replace('-', '_')}_{digest}"
        return Job(
            "xcompile.compiler.codegen.cpu.families:emit", {**payload, "symbol": symbol}, MachineSpec.of(self._target),
            kernel=self.func.sym_name,
        )  # fmt: skip

    def load(self, objects: Mapping[str, bytes]) -> None:
        """Take the code that the jobs gave, by symbol."""
        names = list(self._symbols.values())
        tasks = [f"{name}_task" for name in names]
        code = [objects[name] for name in names]
        self._code = LoadedObjects(code, native_library.symbols(), tasks)

    def run(self, inputs: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[np.ndarray]:
        """The results for the given arguments.

        Args:
            inputs: one array a parameter, row-major whatever its layout.
            sizes: what d0, d1, … are.
        """
        memory = [self._argument(i, x, sizes) for i, x in enumerate(inputs)]
        outputs = [self._result(i, sizes) for i in range(len(self._kernel.results))]
        slots = [m.address for m in (*memory, *(made.memory for made in outputs))]
        slots += [sizes[name] for name in self._kernel.symbols]
        extent = evaluate(self.plan.extent, sizes)
        self._call(None, slots, extent, self.plan.scratch)
        return [made.read() for made in outputs]

    def _result(self, position: int, sizes: Mapping[str, int]) -> "_Result":
        """Memory for a result, in rows where the kernel stores in rows."""
        value, rows = self._kernel.results[position], self._kernel.rows[position]
        shape = tuple(evaluate(d, sizes) for d in self._kernel.shape(value))
        axes = [evaluate(d, {}) for d in Layout.of(value.type).sizes(shape)]
        count = prod(axes[: rows.axes]) if rows else 1
        row = prod(axes[rows.axes if rows else 0 :])
        pitch = evaluate(rows.pitch, sizes) if rows else row
        memory = AlignedMemory(max(count * pitch * numpy_dtype(value).itemsize, 1))
        memory.array[:] = 0xFF  # what a kernel forgets to write is seen
        return _Result(value, shape, memory, count, row, pitch)

    def _argument(
        self, position: int, array: np.ndarray, sizes: Mapping[str, int]
    ) -> AlignedMemory:
        value = self._kernel.parameters[position]
        if position not in self.func.constants:
            return _stored(Layout.of(value.type).pack(array))
        packing = self.plan.packings.get(position)
        packed = _stored(packing.pack(array) if packing else array)
        preparation = self.plan.preparations.get(position)
        return self._prepare(position, preparation, packed) if preparation else packed

    def _prepare(
        self, position: int, preparation: Preparation, packed: AlignedMemory
    ) -> AlignedMemory:
        made = AlignedMemory(preparation.bytes)
        self._call(position, [packed.address, made.address], preparation.extent, 0)
        return made

    def _call(self, which: int | None, slots: Sequence[int], extent: int, scratch: int) -> None:
        assert self._code is not None, "loaded first"
        stride = -(-scratch // 64) * 64
        space = AlignedMemory(max(_THREADS * stride, 1))
        context = Context(
            size=ctypes.sizeof(Context), threads=_THREADS, pool=native_library.default_pool()
        )
        context.scratch = space.address
        record = (ctypes.c_int64 * max(len(slots), 1))(*slots)
        run = _PARALLEL_FOR(native_library.symbols()["xc_parallel_for"])
        task = self._code.address(f"{self._symbols[which]}_task")
        run(ctypes.addressof(context), task, ctypes.addressof(record), extent, 1, stride)


def compile_kernels(
    funcs: Sequence[Func],
    target: Target,
    pool: WorkerPool,
    *,
    load: Sequence[str] = (),
    known: Mapping[str, bytes] | None = None,
) -> list[NativeKernel | CompileError]:
    """Kernels ready to run; an error in the place of one that cannot be made.

    Args:
        funcs: the kernels.
        target: this machine.
        pool: makes the code.
        load: plug-ins for the workers.
        known: code that is there already, by symbol.
    """
    planned: list[NativeKernel | CompileError] = []
    for func in funcs:
        try:
            planned.append(NativeKernel(func, target))
        except CompileError as error:
            planned.append(error)
    own = [k.jobs() if isinstance(k, NativeKernel) else {} for k in planned]
    missing = {s: j for jobs in own for s, j in jobs.items() if s not in (known or {})}
    outcomes = pool.outcomes([replace(job, load=tuple(load)) for job in missing.values()])
    made = dict(zip(missing, outcomes, strict=True))
    errors = {s: r for s, r in made.items() if isinstance(r, CompileError)}
    objects = {s: r.code for s, r in made.items() if not isinstance(r, CompileError)}
    ready: list[NativeKernel | CompileError] = []
    for kernel, jobs in zip(planned, own, strict=True):
        error = next((errors[s] for s in jobs if s in errors), None)
        if isinstance(kernel, NativeKernel) and error is None:
            kernel.load({**(known or {}), **objects})
        ready.append(error or kernel)
    return ready


class NativeInterpreter(KernelInterpreter):
    """Executes a module at the kernel level by its compiled kernels, one launch at a time."""

    def __init__(
        self, module: Module, inputs: Sequence[np.ndarray], kernels: Mapping[str, NativeKernel]
    ) -> None:
        super().__init__(module, inputs)
        self._native = kernels

    def launch(self, op: Launch, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._native[op.callee].run(inputs, self.bindings(op))


def _stored(array: np.ndarray) -> AlignedMemory:
    """The bytes of an array at an aligned address."""
    data = np.ascontiguousarray(array)
    memory = AlignedMemory(max(data.nbytes, 1))
    memory.array[: data.nbytes] = data.reshape(-1).view(np.uint8)
    return memory


@dataclass(frozen=True)
class _Result:
    """Memory that a kernel stores a result in.

    Attributes:
        value: the result.
        shape: its logical sizes.
        memory: where it lies.
        count: how many rows it lies in.
        row: elements of a row.
        pitch: elements from the beginning of one row to that of the next.
    """

    value: Value
    shape: tuple[int, ...]
    memory: AlignedMemory
    count: int
    row: int
    pitch: int

    def read(self) -> np.ndarray:
        """The elements, row-major."""
        dtype, layout = numpy_dtype(self.value), Layout.of(self.value.type)
        raw = self.memory.array[: self.count * self.pitch * dtype.itemsize]
        kind = np.dtype(np.uint8) if dtype == np.bool_ else dtype
        rows = raw.view(kind).reshape(self.count, self.pitch)[:, : self.row]
        flat = np.ascontiguousarray(rows).reshape(-1)
        return layout.unpack(flat != 0 if dtype == np.bool_ else flat.copy(), self.shape)
