"""The steps of a run as llvm-dialect text."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from xcompile.compiler.codegen.program.native_text import Arithmetic, Writer
from xcompile.compiler.codegen.program.program import (
    NO_DEVICE,
    NO_MEMORY,
    SLOT_BYTES,
    TOO_LARGE,
    Allocate,
    Append,
    Check,
    Copy,
    Define,
    Free,
    Give,
    If,
    Launch,
    Loop,
    Move,
    Place,
    Program,
    Read,
    Step,
    Store,
    walk_steps,
)
from xcompile.compiler.support.dims import Dim, fold, symbol
from xcompile.runtime.device import ALLOCATE, COPY, FAILED, FETCH, FREE, PUT

_CONTEXT_OFFSETS = {"weights": 8, "prepared": 16, "arena": 24, "scratch": 32, "buffers": 40}
"""Byte offsets in `xc_context`; a test compares them with the runtime's."""

HOST_SYMBOLS = {
    COPY: "xc_copy",
    FETCH: "xc_fetch",
    PUT: "xc_put",
    ALLOCATE: "xc_allocate",
    FREE: "xc_free",
    FAILED: "xc_failed",
}
"""What a program of a GPU launches in the place of what a program of a CPU does itself; see `runtime/device.py`."""

_ANSWER_SLOT = 3
"""The slot of the record behind those that such a launch takes."""


def can_fail(step: Step) -> bool:
    """Whether the run may end at the step."""
    if isinstance(step, If | Loop):
        return any(map(can_fail, list(walk_steps([step]))[1:]))
    return isinstance(step, Check | Define | Allocate | Give | Append)


class Frame:
    """Where a run finds sizes and addresses: in the table that `P_prepare` made, and in the frame of the run itself."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.inputs = len(program.inputs)
        self.in_arena = 0 if program.on_device else program.frame
        self.late = {name: program.late_sizes + number for number, name in enumerate(program.late)}
        self._addresses = program.late_sizes + len(program.late)
        first = len(program.checks) + len(program.repeats) + 1
        self._codes = {text: -1 - first - i for i, text in enumerate(program.failures)}

    @cached_property
    def table(self) -> Mapping[Dim, int]:
        """The slot of each size in the table."""
        return {dim: n for n, dim in reversed(list(enumerate(self.program.table)))}

    def address(self, number: int) -> int:
        """The slot of the frame that holds an address of heap memory."""
        return self._addresses + number

    def code(self, text: str) -> int:
        """What `P_run` answers when this goes wrong."""
        return self._codes[text]


class RunWriter:
    """Writes the steps of one function."""

    def __init__(self, writer: Writer, frame: Frame, steps: Sequence[Step]) -> None:
        self._w = writer
        self._frame = frame
        self._first_buffer = {"input": 0, "output": frame.inputs}
        self._fields: dict[str, str] = {}
        self._sizes: dict[Dim, str] = {}
        self._on_device = frame.program.on_device
        self._slots = "scratch" if self._on_device else "arena"
        launches = [s for s in walk_steps(steps) if isinstance(s, Launch)]
        if launches or self._on_device:
            least = _ANSWER_SLOT + 1 if self._on_device else 1
            most = max([least, *(len(s.places) + len(s.sizes) for s in launches)])
            self._record = writer.op(
                f"llvm.alloca {writer.constant(most)} x i64 {{alignment = 16 : i64}} : (i64) -> !llvm.ptr"
            )

    def step(self, step: Step) -> None:
        """Write one step."""
        match step:
            case Launch():
                self._launch(step)
            case Check():
                self._check(step)
            case Read():
                self._read(step)
            case Define():
                self._set(self._frame.late[step.symbol], self._computed((step.dim,))[0])
            case Allocate():
                self._allocate(step)
            case Free():
                self._free(self._slot(self._frame.address(step.slot), "!llvm.ptr"))
            case Give():
                self._give(step)
            case Copy():
                self._copy(self._address(step.target), self._address(step.source), step.length)
            case Store():
                self._store(step)
            case Move():
                address = self._slot(self._frame.address(step.source), "!llvm.ptr")
                self._set(self._frame.address(step.slot), address, "!llvm.ptr")
            case Append():
                self._append(step)
            case If():
                self._if(step)
            case Loop():
                self._loop(step)

    def _inside(self, steps: Sequence[Step]) -> None:
        """Steps that may not be done: what they load is not known afterwards."""
        before = dict(self._sizes)
        for step in steps:
            self.step(step)
        self._sizes = before

    def _if(self, step: If) -> None:
        w = self._w
        then, otherwise, after = w.label("then"), w.label("else"), w.label("end")
        w.line(f"llvm.cond_br {self._holds(step.cond)}, {then}, {otherwise}")
        for label, steps in ((then, step.then), (otherwise, step.otherwise)):
            w.line(f"{label}:")
            self._inside(steps)
            w.line(f"llvm.br {after}")
        w.line(f"{after}:")

    def _loop(self, step: Loop) -> None:
        w, slot = self._w, self._frame.late[step.iteration]
        again, body, after = w.label("again"), w.label("body"), w.label("after")
        trip = self._size(step.trip)
        self._set(slot, w.constant(0))
        w.line(f"llvm.br {again}")
        w.line(f"{again}:")
        going = w.op("llvm.mlir.constant(true) : i1")
        if step.counted:
            going = w.op(f'llvm.icmp "slt" {self._slot(slot, "i64")}, {trip} : i64')
        if step.conditional:
            going = w.op(f"llvm.and {going}, {self._holds(step.going)} : i1")
        w.line(f"llvm.cond_br {going}, {body}, {after}")
        w.line(f"{body}:")
        if self._on_device:
            stopped = w.op(f'llvm.icmp "ne" {self._asked(FAILED, "i64")}, {w.constant(0)} : i64')
            w.leave_if(stopped, self._frame.code(NO_DEVICE))
        self._inside(step.body)
        self._set(slot, w.op(f"llvm.add {self._slot(slot, 'i64')}, {w.constant(1)} : i64"))
        w.line(f"llvm.br {again}")
        w.line(f"{after}:")

    def _holds(self, place: Place) -> str:
        w = self._w
        byte = self._loaded(self._address(place), "i8", 1)
        return w.op(f'llvm.icmp "ne" {byte}, {w.op("llvm.mlir.constant(0 : i8) : i8")} : i8')

    def _copy(self, target: str, source: str, length: Dim | str) -> None:
        count = length if isinstance(length, str) else self._size(length)
        if self._on_device:
            self._ask(COPY, ("!llvm.ptr", target), ("!llvm.ptr", source), ("i64", count))
            return
        kinds = "(!llvm.ptr, !llvm.ptr, i64) -> ()"
        self._w.line(
            f'"llvm.intr.memmove"({target}, {source}, {count}) <{{isVolatile = false}}> : {kinds}'
        )

    def _append(self, step: Append) -> None:
        w, frame = self._w, self._frame
        length, source = self._size(step.length), self._address(step.source)
        filled = self._slot(frame.late[step.filled], "i64")
        room = self._slot(frame.late[step.capacity], "i64")
        needed = w.op(f"llvm.add {filled}, {length} : i64")
        grow, go = w.label("grow"), w.label("fits")
        w.line(f'llvm.cond_br {w.op(f"""llvm.icmp "sgt" {needed}, {room} : i64""")}, {grow}, {go}')
        w.line(f"{grow}:")
        old = self._slot(frame.address(step.slot), "!llvm.ptr")
        doubled = w.op(f"arith.maxsi {w.op(f'llvm.add {room}, {room} : i64')}, {needed} : i64")
        memory = self._new_memory(doubled)
        self._copy(memory, old, filled)
        self._free(old)
        self._set(frame.address(step.slot), memory, "!llvm.ptr")
        self._set(frame.late[step.capacity], doubled)
        w.line(f"llvm.br {go}")
        w.line(f"{go}:")
        start = w.at(self._slot(frame.address(step.slot), "!llvm.ptr"), filled)
        self._copy(start, source, length)
        self._set(frame.late[step.filled], needed)

    def _launch(self, step: Launch) -> None:
        values = [("!llvm.ptr", self._address(p)) for p in step.places]
        values += [("i64", self._size(d)) for d in step.sizes]
        self._record_values(values)
        self._parallel_for(step.symbol, self._size(step.extent), step.grain, step.scratch)

    def _record_values(self, values: Sequence[tuple[str, str]]) -> None:
        """Fill the record of a launch."""
        for position, (kind, value) in enumerate(values):
            self._w.store(value, kind, self._w.at(self._record, 8 * position))

    def _parallel_for(self, symbol: str, extent: str, grain: int, scratch: int) -> None:
        w = self._w
        task = w.op(f"llvm.mlir.addressof @{symbol}_task : !llvm.ptr")
        w.line(
            f"llvm.call @xc_parallel_for(%ctx, {task}, {self._record}, {extent}, {w.constant(grain)}, "
            f"{w.constant(scratch)}) : (!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64) -> ()"
        )

    def _check(self, step: Check) -> None:
        left, right = self._computed((step.left, step.right))
        differs = self._w.op(f'llvm.icmp "ne" {left}, {right} : i64')
        self._w.leave_if(differs, self._frame.code(step.text))

    def _read(self, step: Read) -> None:
        w, size = self._w, 8 if step.dtype == "i64" else 4
        value = self._loaded(w.at(self._address(step.place), step.index * size), step.dtype, size)
        if step.dtype != "i64":
            value = w.op(f"llvm.sext {value} : {step.dtype} to i64")
        self._set(self._frame.late[step.symbol], value)

    def _allocate(self, step: Allocate) -> None:
        memory = self._new_memory(self._size(step.size))
        self._set(self._frame.address(step.slot), memory, "!llvm.ptr")

    def _new_memory(self, size: str) -> str:
        """The address of memory from the heap; the run ends when there is none."""
        w = self._w
        if self._on_device:
            memory = self._asked(ALLOCATE, "!llvm.ptr", ("i64", size))
        else:
            memory = w.op(
                f"llvm.call @xc_heap_allocate(%ctx, {size}) : (!llvm.ptr, i64) -> !llvm.ptr"
            )
        null = w.op("llvm.mlir.zero : !llvm.ptr")
        failed = w.op(f'llvm.icmp "eq" {memory}, {null} : !llvm.ptr')
        w.leave_if(failed, self._frame.code(NO_MEMORY))
        return memory

    def _free(self, memory: str) -> None:
        if self._on_device:
            self._ask(FREE, ("!llvm.ptr", memory))
            return
        self._w.line(f"llvm.call @xc_heap_free(%ctx, {memory}) : (!llvm.ptr, !llvm.ptr) -> ()")

    def _store(self, step: Store) -> None:
        (number,) = self._computed((step.dim,))
        place = self._address(step.place)
        if not self._on_device:
            self._w.store(number, "i64", place)
            return
        answer = self._answer
        self._w.store(number, "i64", answer)
        self._ask(PUT, ("!llvm.ptr", place), ("!llvm.ptr", answer), ("i64", self._w.constant(8)))

    def _loaded(self, address: str, kind: str, size: int) -> str:
        """What lies at an address, which may be of the device."""
        if not self._on_device:
            return self._w.load(address, kind)
        return self._asked(FETCH, kind, ("!llvm.ptr", address), ("i64", self._w.constant(size)))

    @property
    def _answer(self) -> str:
        return self._w.at(self._record, 8 * _ANSWER_SLOT)

    def _asked(self, number: int, kind: str, *values: tuple[str, str]) -> str:
        """What the device answers into memory of the host."""
        self._ask(number, ("!llvm.ptr", self._answer), *values)
        return self._w.load(self._answer, kind)

    def _ask(self, number: int, *values: tuple[str, str]) -> None:
        """Launch one of `HOST_SYMBOLS`."""
        self._record_values(values)
        self._parallel_for(HOST_SYMBOLS[number], self._w.constant(1), 1, 0)

    def _give(self, step: Give) -> None:
        for number, size in enumerate(self._computed(step.sizes)):
            self._set(step.first + number, size)
        memory = self._slot(self._frame.address(step.slot), "!llvm.ptr")
        position = self._frame.inputs + step.output
        self._w.store(memory, "!llvm.ptr", self._w.at(self._field("buffers"), 8 * position))

    # -- sizes and places -----------------------------------------------------------------------

    def _computed(self, dims: Sequence[Dim]) -> list[str]:
        """The values of sizes that depend on data; the run ends when one does not fit 64 bits."""
        arithmetic = Arithmetic(self._w, _Symbols(self))
        values = [fold(dim, arithmetic) for dim in dims]
        if arithmetic.may_overflow:
            self._w.leave_if(arithmetic.overflowed(), self._frame.code(TOO_LARGE))
        return values

    def symbol(self, name: str) -> str:
        """The value of a symbol."""
        if name in self._frame.late:
            return self._slot(self._frame.late[name], "i64")
        return self._size(symbol(name))

    def _size(self, dim: Dim) -> str:
        if isinstance(dim, int):
            return self._w.constant(dim)
        if self._frame.program.is_late(dim):
            return self._computed((dim,))[0]
        if dim not in self._sizes:
            slot = self._frame.table[dim]
            self._sizes[dim] = self._w.load(self._w.at("%table", SLOT_BYTES * slot), "i64")
        return self._sizes[dim]

    def _slot(self, slot: int, kind: str) -> str:
        return self._w.load(self._w.at(self._field(self._slots), SLOT_BYTES * slot), kind)

    def _set(self, slot: int, value: str, kind: str = "i64") -> None:
        self._w.store(value, kind, self._w.at(self._field(self._slots), SLOT_BYTES * slot))

    def _field(self, name: str) -> str:
        if name not in self._fields:
            self._fields[name] = self._w.field(_CONTEXT_OFFSETS[name])
        return self._fields[name]

    def _address(self, place: Place) -> str:
        if place.space in self._first_buffer:
            assert isinstance(place.offset, int)
            position = self._first_buffer[place.space] + place.offset
            base = self._w.load(self._w.at(self._field("buffers"), 8 * position), "!llvm.ptr")
            return self._w.at(base, place.at if isinstance(place.at, int) else self._size(place.at))
        offset = place.offset if isinstance(place.offset, int) else self._size(place.offset)
        if place.space == "heap":
            base = self._slot(self._frame.address(place.slot), "!llvm.ptr")
        else:
            base = self._field(place.space)
        if place.space == "arena" and self._frame.in_arena:
            if isinstance(offset, int):
                return self._w.at(base, self._frame.in_arena + offset)
            base = self._w.at(base, self._frame.in_arena)
        return self._w.at(base, offset)


class _Symbols(Mapping[str, str]):
    """The symbols of a run, each loaded where it is used: its value may change from one use to the next."""

    def __init__(self, run: RunWriter) -> None:
        self._run = run

    def __getitem__(self, name: str) -> str:
        return self._run.symbol(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
