"""A compiled model that can be run."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Never, cast

import numpy as np
from numpy.typing import NDArray

from xcompile.runtime import native_library
from xcompile.runtime.abi import (
    ALIGNMENT,
    MAX_THREADS,
    Context,
    Default,
    InitFunction,
    Manifest,
    PrepareFunction,
    RunFunction,
    TensorSpec,
)
from xcompile.runtime.arena import AlignedMemory, Arena, round_up
from xcompile.runtime.arrays import READABLE, AnyArray, Port, Shape, address_of, check_overlap
from xcompile.runtime.errors import RuntimeModelError, shorten

Arrays = Mapping[str, Any] | Sequence[Any]
Shapes = Mapping[str, Sequence[int]] | Sequence[Sequence[int]]

_ARRAY: Final = np.ndarray
_ORDERED: Final = (list, tuple)
_MAX_PLANS: Final = 64
_MAX_ARENA_BYTES: Final = 1 << 46


@dataclass(frozen=True)
class ModelEntry:
    """The native functions of a model, as addresses, and whatever keeps their code in memory.

    Attributes:
        prepare: of `P_prepare`.
        run: of `P_run`.
        init: of `P_init`.
        keep_alive: the loader or library that owns the code.
    """

    prepare: int
    run: int
    init: int
    keep_alive: object = None


@dataclass(slots=True)
class Plan:
    """Everything about a run that follows from the shapes of the inputs.

    Attributes:
        output_shapes: -1 is a size that depends on data.
        output_bytes: 0 for outputs that have such a size.
        late: the positions of outputs that have such a size.
    """

    table: ctypes.Array[ctypes.c_int64]
    table_address: int
    input_bytes: list[int]
    output_shapes: list[Shape]
    output_bytes: list[int]
    late: list[int]
    arena_bytes: int
    required_bytes: int
    last_use: int = 0


class Frame:
    """What one run needs for itself: a context, the buffers and the heap it points to, and memory."""

    __slots__ = ("address", "buffers", "context", "heap", "memory", "plan")

    def __init__(self, context: Context, buffer_count: int, heap: native_library.Heap) -> None:
        self.heap = heap
        context.heap = heap.address
        self.buffers = (ctypes.c_void_p * max(buffer_count, 1))()
        context.buffers = ctypes.addressof(self.buffers)
        self.context = context
        self.address = ctypes.addressof(context)
        self.memory = AlignedMemory(0)
        self.plan: Plan | None = None

    def use_memory(self, plan: Plan, memory: AlignedMemory) -> None:
        self.context.arena = memory.address
        self.context.scratch = memory.address + plan.arena_bytes


class Executable:
    """A compiled model, callable from any number of threads at once.

    Runs release the GIL, allocate nothing but the outputs they return (from the second run at the same
    shapes on), and give the same bits whatever the number of threads.

    Args:
        entry: the native functions.
        manifest: what the compiler said of the model.
        weights: the packed constants, or their address when they are part of a loaded library. A buffer that
            does not start at a multiple of 64 bytes is copied.
        threads: the most parts one kernel is split into; by default as many threads as this process
            may use. The threads themselves are the pool's: asking for more does not make more.
        pool: the threads to run on; by default those that all models of this process share.
        poison: fill the working memory with 0xFF before each run, to find reads of unset memory.
        observed: let `runtime.profile.record` see the launches.

    Raises:
        RuntimeModelError: the weights are not the manifest's, or the model's initialization failed.
    """

    def __init__(
        self,
        entry: ModelEntry,
        manifest: Manifest,
        weights: memoryview | bytes | bytearray | AnyArray | int,
        *,
        threads: int | None = None,
        pool: native_library.Pool | None = None,
        poison: bool = False,
        observed: bool = False,
    ) -> None:
        if threads is not None and (type(threads) is not int or not 1 <= threads <= MAX_THREADS):
            got = shorten(repr(threads))
            raise RuntimeModelError("XC5006", f"threads is {got}; expected 1 to {MAX_THREADS}")
        if pool is not None and not isinstance(pool, native_library.Pool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise RuntimeModelError("XC5006", f"a Pool is expected, not {type(pool).__name__}")
        self.manifest = manifest
        self.threads = threads or native_library.default_threads()
        self.entry = entry
        self._pool = pool
        self._pool_address = pool.address if pool else native_library.default_pool()
        self._poison = poison
        self._launch = native_library.launch_recorder() if observed else None
        self._inputs = [Port("input", spec) for spec in manifest.inputs]
        self._outputs = [Port("output", spec) for spec in manifest.outputs]
        self._input_names = [spec.name for spec in manifest.inputs]
        self._output_names = [spec.name for spec in manifest.outputs]
        self._prepare = PrepareFunction(entry.prepare)
        self._run = RunFunction(entry.run)
        self._weights_address, self._weights = _aligned_weights(weights, manifest.weights_bytes)
        self._prepared = AlignedMemory(manifest.prepared_bytes)
        self._defaults = {
            default.input: self._default(port, default)
            for default, port in zip(
                manifest.defaults, self._inputs[len(manifest.required) :], strict=True
            )
        }
        self._scratch_bytes = self.threads * round_up(manifest.scratch_stride)
        self._plans: dict[tuple[Shape, ...], Plan] = {}
        self._uses = 0
        self._frames: list[Frame] = []
        self._initialize()

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and sizes of each input, in order."""
        return self.manifest.inputs

    @property
    def required(self) -> tuple[TensorSpec, ...]:
        """The inputs that every run needs."""
        return self.manifest.required

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, element type and sizes of each output, in order."""
        return self.manifest.outputs

    def __repr__(self) -> str:
        return f"<Executable for {self.manifest.target}: {self.manifest.describe()}>"

    def __call__(self, *arrays: Any, **named: Any) -> dict[str, AnyArray]:
        """Runs the model on inputs given in order or by keyword; see `run`."""
        if arrays and named:
            raise RuntimeModelError("XC5001", "inputs are given in order or by name, not both")
        return self.run(named or arrays)

    def run(
        self, inputs: Arrays, outputs: Arrays | None = None, arena: Arena | None = None
    ) -> dict[str, AnyArray]:
        """Runs the model.

        Args:
            inputs: arrays by name, or in order; those that have a default may be left out. Contiguous ones are
                read in place, see `Port.readable`. They must not change during the run.
            outputs: arrays to write into, by name (not named: a new one is made) or all in order. They are
                writable, C-contiguous, of the exact shape, and overlap neither inputs nor each other. One whose
                shape depends on data must have the shape that comes out.
            arena: working memory of the caller, at least `required_bytes`. By default the model keeps one
                for each run that is under way at the same time. Values whose size depends on data lie
                in memory that the model keeps, with both.

        Returns:
            The outputs by name.

        Raises:
            RuntimeModelError: XC5001 to XC5007; nothing has been written unless the run itself failed.
        """
        values = _in_order(inputs, self._input_names, self._defaults)
        if len(values) != len(self._inputs):
            raise _wrong_count(len(values), self._input_names)
        arrays: list[AnyArray] = []  # what is read stays alive while it is
        shapes: list[Shape] = []
        addresses: list[int] = []
        for port, value in zip(self._inputs, values, strict=True):
            in_place = (
                type(value) is _ARRAY
                and value.dtype == port.dtype
                and value.flags.num & READABLE == READABLE
            )
            array = value if in_place else port.readable(value)
            arrays.append(array)
            shapes.append(array.shape)
            addresses.append(address_of(array))
        plan = self._plan(tuple(shapes))
        results: list[AnyArray | None]
        if outputs is None and not plan.late:
            new = [
                port.new(shape)
                for port, shape in zip(self._outputs, plan.output_shapes, strict=True)
            ]
            addresses += [address_of(array) for array in new]
            results = [*new]
        else:
            results = self._given_outputs(outputs or {}, plan)
            addresses += [0 if array is None else address_of(array) for array in results]
            self._check_overlap(addresses, plan, results)
        self._run_in_frame(addresses, plan, arena, results)
        return cast("dict[str, AnyArray]", dict(zip(self._output_names, results, strict=True)))

    def required_bytes(self, shapes: Shapes) -> int:
        """The bytes an arena needs for a run with inputs of these shapes, by name or in order.

        Raises:
            RuntimeModelError: XC5001, XC5003 or XC5004 when the model does not take such inputs.
        """
        return self._plan(self._shape_key(shapes)).required_bytes

    def output_shapes(self, shapes: Shapes) -> dict[str, Shape]:
        """The shapes of the outputs for inputs of these shapes, by name or in order; -1 depends on data.

        Raises:
            RuntimeModelError: XC5001, XC5003 or XC5004 when the model does not take such inputs.
        """
        plan = self._plan(self._shape_key(shapes))
        return dict(zip(self._output_names, plan.output_shapes, strict=True))

    def _shape_key(self, shapes: Shapes) -> tuple[Shape, ...]:
        defaults = {default.input: default.shape for default in self.manifest.defaults}
        given = _in_order(shapes, self._input_names, defaults)
        try:
            return tuple(tuple(operator.index(dim) for dim in shape) for shape in given)
        except TypeError as error:
            raise RuntimeModelError(
                "XC5003", f"a shape is a sequence of integers ({shorten(str(error))})"
            ) from error

    def _plan(self, shapes: tuple[Shape, ...]) -> Plan:
        plan = self._plans.get(shapes)
        if plan is None:
            plan = self._make_plan(shapes)
            # A new dictionary each time: readers in other threads need no lock, and a lost plan is made again.
            plans = dict(self._plans)
            if len(plans) >= _MAX_PLANS:
                del plans[min(plans, key=lambda key: plans[key].last_use)]
            plans[shapes] = plan
            self._plans = plans
        self._uses = plan.last_use = self._uses + 1
        return plan

    def _make_plan(self, shapes: tuple[Shape, ...]) -> Plan:
        if len(shapes) != len(self._inputs):
            raise _wrong_count(len(shapes), self._input_names)
        for port, shape in zip(self._inputs, shapes, strict=True):
            port.check_dims(shape)
        input_bytes = [
            port.byte_count(shape) for port, shape in zip(self._inputs, shapes, strict=True)
        ]
        dims = [dim for shape in shapes for dim in shape]
        dims_array = (ctypes.c_int64 * max(len(dims), 1))(*dims)
        table = (ctypes.c_int64 * self.manifest.table_slots)()
        table_address = ctypes.addressof(table)
        status = self._prepare(ctypes.addressof(dims_array), table_address)
        if status:
            got = ", ".join(
                f"{n} {list(s)}" for n, s in zip(self._input_names, shapes, strict=True)
            )
            raise RuntimeModelError(
                "XC5004", f"{self._check_text(status)}; the inputs are {shorten(got, 400)}"
            )
        output_shapes, output_bytes = list[Shape](), list[int]()
        slot = 1
        for port in self._outputs:
            output_shapes.append(tuple(table[slot : slot + port.spec.rank]))
            output_bytes.append(0)
            slot += port.spec.rank
            if -1 not in output_shapes[-1]:
                port.check_dims(output_shapes[-1])
                output_bytes[-1] = port.byte_count(output_shapes[-1])
        if not 0 <= table[0] <= _MAX_ARENA_BYTES:
            raise RuntimeModelError("XC5004", f"the model needs {table[0]} bytes of working memory")
        return Plan(
            table=table,
            table_address=table_address,
            input_bytes=input_bytes,
            output_shapes=output_shapes,
            output_bytes=output_bytes,
            late=[i for i, shape in enumerate(output_shapes) if -1 in shape],
            arena_bytes=round_up(table[0]),
            required_bytes=round_up(table[0]) + self._scratch_bytes,
        )

    def _given_outputs(self, outputs: Arrays, plan: Plan) -> list[AnyArray | None]:
        """The caller's arrays, else new ones; None for those that are made when their shape is known."""
        if isinstance(outputs, _ORDERED):
            values = outputs
        elif type(outputs) is dict or isinstance(outputs, Mapping):
            for name in outputs:
                if name not in self._output_names:
                    raise RuntimeModelError(
                        "XC5005", f"the model has no output '{shorten(str(name))}'"
                    )
            values = [outputs.get(name) for name in self._output_names]
        else:
            values = _in_order(outputs, self._output_names)
        if len(values) != len(self._outputs):
            raise RuntimeModelError(
                "XC5005", f"{len(values)} outputs for a model of {len(self._outputs)}"
            )
        return [
            (None if -1 in shape else port.new(shape))
            if value is None
            else port.writable(value, _completed(shape, value) if plan.late else shape)
            for port, value, shape in zip(self._outputs, values, plan.output_shapes, strict=True)
        ]

    def _check_overlap(
        self, addresses: list[int], plan: Plan, results: list[AnyArray | None]
    ) -> None:
        sizes = plan.input_bytes + (_bytes(results) if plan.late else plan.output_bytes)
        check_overlap([*self._inputs, *self._outputs], addresses, sizes, len(self._inputs))

    def _run_in_frame(
        self,
        addresses: list[int],
        plan: Plan,
        arena: Arena | None,
        results: list[AnyArray | None],
    ) -> None:
        """Run, and put into `results` what lies on the heap of the run."""
        try:
            frame = self._frames.pop()
        except IndexError:
            frame = Frame(
                self._context(), len(addresses), native_library.Heap(poisoned=self._poison)
            )
        if arena is not None:
            if not isinstance(arena, Arena):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise RuntimeModelError(
                    "XC5007", f"an Arena is expected, not {type(arena).__name__}"
                )
            self._check_outside(arena, addresses, plan, results)
            arena.acquire(plan.required_bytes)
        try:
            if arena is not None:
                frame.use_memory(plan, arena)
                frame.plan = None
            elif frame.plan is not plan:
                if frame.memory.capacity < plan.required_bytes:
                    frame.memory = AlignedMemory(plan.required_bytes)
                frame.use_memory(plan, frame.memory)
                frame.plan = plan
            if self._poison:
                (arena or frame.memory).array[: plan.required_bytes] = 0xFF
            frame.buffers[: len(addresses)] = addresses
            status = self._run(frame.address, plan.table_address)
            if plan.late and not status:
                self._take_late(frame, arena or frame.memory, plan, results)
        finally:
            if arena is not None:
                arena.release()
            self._frames.append(frame)
        if status:
            raise RuntimeModelError("XC5006", self._check_text(status))

    def _check_outside(
        self, arena: Arena, addresses: list[int], plan: Plan, results: list[AnyArray | None]
    ) -> None:
        """Raises when an input or output lies in the working memory."""
        ports, sizes = [*self._inputs, *self._outputs], plan.input_bytes + _bytes(results)
        for port, begin, size in zip(ports, addresses, sizes, strict=True):
            if begin < arena.address + arena.capacity and arena.address < begin + size and size:
                raise RuntimeModelError("XC5007", f"{port.title} lies in the arena")

    def __reduce__(self) -> Never:
        raise TypeError("a loaded model cannot be pickled: load its library where it is needed")

    def _take_late(
        self,
        frame: Frame,
        memory: AlignedMemory,
        plan: Plan,
        results: list[AnyArray | None],
    ) -> None:
        """Copy the outputs whose shape depends on data; their sizes are the first slots of the run's memory."""
        count = sum(plan.output_shapes[position].count(-1) for position in plan.late)
        sizes = iter(memory.array[: 8 * count].view(np.int64).tolist())
        for position in plan.late:
            port, given = self._outputs[position], results[position]
            shape = tuple(next(sizes) if dim < 0 else dim for dim in plan.output_shapes[position])
            array = port.new(shape) if given is None else port.writable(given, shape)
            source = frame.buffers[len(self._inputs) + position]
            self._fetch(array, source or 0)
            results[position] = array

    def _fetch(self, array: AnyArray, source: int) -> None:
        """Copy what a run has made."""
        if array.nbytes:
            ctypes.memmove(address_of(array), source, array.nbytes)

    def _default(self, port: Port, default: Default) -> AnyArray:
        """The default of an input, in the weights."""
        size = port.byte_count(default.shape)
        memory = (ctypes.c_char * size).from_address(self._weights_address + default.offset)
        return np.frombuffer(memoryview(memory), port.dtype).reshape(default.shape)

    def _context(self) -> Context:
        return Context(
            size=ctypes.sizeof(Context),
            weights=self._weights_address,
            prepared=self._prepared.address if self.manifest.prepared_bytes else None,
            pool=self._pool_address,
            threads=self.threads,
            launch=self._launch,
        )

    def _initialize(self) -> None:
        scratch = AlignedMemory(self._scratch_bytes)
        context = self._context()
        context.scratch = scratch.address
        status = InitFunction(self.entry.init)(ctypes.addressof(context))
        if status:
            raise RuntimeModelError("XC5006", f"initialization: {self._check_text(status)}")

    def _check_text(self, status: int) -> str:
        checks = self.manifest.checks
        return (
            checks[-1 - status]
            if 0 <= -1 - status < len(checks)
            else f"the model answered with code {status}"
        )


def _bytes(arrays: list[AnyArray | None]) -> list[int]:
    return [0 if array is None else array.nbytes for array in arrays]


def _completed(shape: Shape, array: object) -> Shape:
    """The shape with the array's own sizes where they depend on data."""
    own: object = getattr(array, "shape", None)
    if -1 not in shape or not isinstance(own, tuple) or len(cast("Shape", own)) != len(shape):
        return shape
    return tuple(a if d < 0 else d for a, d in zip(cast("Shape", own), shape, strict=True))


def _in_order(
    values: Arrays, names: list[str], defaults: Mapping[str, Any] = MappingProxyType({})
) -> Sequence[Any]:
    """Values in the order of the names; `defaults`, of the last names, stand for those that are not given."""
    if isinstance(values, _ORDERED):
        missing = names[len(values) :]
        if defaults and len(missing) <= len(defaults):
            return [*values, *(defaults[name] for name in missing)]
        return values
    if not isinstance(values, Mapping):
        raise RuntimeModelError(
            "XC5001",
            f"expected a mapping by name or a list, got {shorten(type(values).__name__)}",
            help=f"run({{'{shorten(names[0])}': array}}) or run([array])" if names else None,
        )
    if defaults:
        values = {**defaults, **values}
    try:
        if len(values) == len(names):
            return [values[name] for name in names]
    except KeyError:
        pass
    missing = [name for name in names if name not in values]
    unknown = [str(name) for name in values if name not in names]
    problem = (
        f"input '{shorten(missing[0])}' is missing"
        if missing
        else f"no input '{shorten(unknown[0])}'"
    )
    raise RuntimeModelError("XC5001", problem, help=_names_help(names))


def _wrong_count(got: int, names: list[str]) -> RuntimeModelError:
    return RuntimeModelError(
        "XC5001", f"{got} inputs for a model of {len(names)}", help=_names_help(names)
    )


def _names_help(names: list[str]) -> str | None:
    return f"the inputs are {shorten(', '.join(names), 200)}" if names else None


def _aligned_weights(
    weights: memoryview | bytes | bytearray | AnyArray | int, expected: int
) -> tuple[int, object]:
    """The address of the weights at a multiple of 64, and what keeps them there."""
    if isinstance(weights, int):
        return weights, None
    data: NDArray[np.uint8] = np.frombuffer(weights, np.uint8)
    if data.size != expected:
        raise RuntimeModelError(
            "XC7002", f"the weights are {data.size} bytes, the manifest says {expected}"
        )
    if data.ctypes.data % ALIGNMENT == 0:
        return data.ctypes.data, data
    memory = AlignedMemory(expected)
    memory.array[:] = data
    return memory.address, memory
