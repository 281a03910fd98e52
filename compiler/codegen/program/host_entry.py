"""The entry functions of a model as loops-level text: `P_prepare`, `P_run`, `P_init`.

See docs/architecture.md, "The native boundary". The code is straight: sizes into a table, then for
each step its record and a call of `xc_parallel_for`. Nothing is interpreted when a model runs.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xcompile.compiler.codegen.job import EmittedModule
from xcompile.compiler.codegen.program.program import Place, Program, Step
from xcompile.compiler.support.dims import Dim, fold
from xcompile.compiler.support.errors import CompileError

STEPS_A_FUNCTION = 256
"""Launches in one native function at most."""

_CONTEXT_OFFSETS = {"weights": 8, "prepared": 16, "arena": 24, "buffers": 40}
"""Byte offsets in `xc_context`; a test compares them with the runtime's."""


def emit(payload: dict[str, Any]) -> EmittedModule:
    """The entry functions of a program, from `Program.to_json`; called in workers."""
    return EmittedModule(entry_text(Program.from_json(payload)))


def entry_text(program: Program) -> str:
    """The module of the entry functions of `program`."""
    symbols = dict.fromkeys(s.symbol for s in (*program.steps, *program.setup))
    declarations = [
        f"llvm.func @{symbol}_task(!llvm.ptr, i64, i64, !llvm.ptr)" for symbol in symbols
    ]
    declarations.append(
        "llvm.func @xc_parallel_for(!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64)"
    )
    functions = [
        _prepare(program),
        _run(program, "run", program.steps),
        _run(program, "init", program.setup),
    ]
    return "\n".join([*declarations, *functions])


class _Writer:
    """Writes one llvm.func body."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._constants: dict[int, str] = {}
        self._head: list[str] = []
        self._count = 0

    def op(self, text: str) -> str:
        self._count += 1
        self.lines.append(f"%v{self._count} = {text}")
        return f"%v{self._count}"

    def line(self, text: str) -> None:
        self.lines.append(text)

    def constant(self, value: int) -> str:
        if not -(1 << 63) <= value < 1 << 63:
            raise CompileError("XC2008", "a size of the model can never be less than 2^63 bytes")
        if value not in self._constants:
            name = f"%c{len(self._constants)}"
            self._head.append(f"{name} = llvm.mlir.constant({value} : i64) : i64")
            self._constants[value] = name
        return self._constants[value]

    def at(self, base: str, byte_offset: int | str) -> str:
        """The address `base + byte_offset`."""
        if byte_offset == 0:
            return base
        if isinstance(byte_offset, int):
            return self.op(
                f"llvm.getelementptr {base}[{byte_offset}] : (!llvm.ptr) -> !llvm.ptr, i8"
            )
        return self.op(
            f"llvm.getelementptr {base}[{byte_offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
        )

    def load(self, address: str, kind: str) -> str:
        return self.op(f"llvm.load {address} : !llvm.ptr -> {kind}")

    def store(self, value: str, kind: str, address: str) -> None:
        self.line(f"llvm.store {value}, {address} : {kind}, !llvm.ptr")

    def text(self) -> str:
        return "\n".join([*self._head, *self.lines])


class _Arithmetic:
    """A size as i64 arithmetic, see `dims.fold`."""

    def __init__(self, writer: _Writer, symbols: Mapping[str, str]) -> None:
        self._w = writer
        self._symbols = symbols
        self._overflows: list[str] = []

    def constant(self, value: int) -> str:
        return self._w.constant(value)

    def symbol(self, name: str) -> str:
        return self._symbols[name]

    def add(self, a: str, b: str) -> str:
        return self._checked("sadd", a, b)

    def multiply(self, a: str, b: str) -> str:
        return self._checked("smul", a, b)

    def call(self, function: str, arguments: Sequence[str]) -> str:
        if function == "floordiv":
            return self._w.op(
                f"arith.floordivsi {arguments[0]}, {self._nonzero(arguments[1])} : i64"
            )
        combinations: dict[str, Callable[[str, str], str]] = {
            "min": lambda a, b: self._w.op(f"arith.minsi {a}, {b} : i64"),
            "max": lambda a, b: self._w.op(f"arith.maxsi {a}, {b} : i64"),
            "broadcast": self._broadcast,
        }
        return functools.reduce(combinations[function], arguments)

    def overflowed(self) -> str:
        """Whether any result so far did not fit 64 bits."""
        return functools.reduce(
            lambda a, b: self._w.op(f"llvm.or {a}, {b} : i1"),
            self._overflows,
            self._w.op("llvm.mlir.constant(false) : i1"),
        )

    def _checked(self, operation: str, a: str, b: str) -> str:
        pair = self._w.op(
            f'"llvm.intr.{operation}.with.overflow"({a}, {b}) : (i64, i64) -> !llvm.struct<(i64, i1)>'
        )
        self._overflows.append(self._w.op(f"llvm.extractvalue {pair}[1] : !llvm.struct<(i64, i1)>"))
        return self._w.op(f"llvm.extractvalue {pair}[0] : !llvm.struct<(i64, i1)>")

    def _nonzero(self, divisor: str) -> str:
        """The divisor, or 1 where a hostile size made it 0: the checks refuse the call afterwards."""
        if divisor.startswith("%c"):
            return divisor
        is_zero = self._w.op(f'llvm.icmp "eq" {divisor}, {self._w.constant(0)} : i64')
        return self._w.op(f"llvm.select {is_zero}, {self._w.constant(1)}, {divisor} : i1, i64")

    def _broadcast(self, a: str, b: str) -> str:
        is_one = self._w.op(f'llvm.icmp "eq" {a}, {self._w.constant(1)} : i64')
        return self._w.op(f"llvm.select {is_one}, {b}, {a} : i1, i64")


def _prepare(program: Program) -> str:
    w = _Writer()
    symbols: dict[str, str] = {}
    slot = 0
    for shape in program.inputs:
        for dim in shape:
            if not isinstance(dim, int) and str(dim) not in symbols:
                symbols[str(dim)] = w.load(w.at("%dims", 8 * slot), "i64")
            slot += 1
    arithmetic = _Arithmetic(w, symbols)
    for name, dim in program.definitions:
        symbols[name] = fold(dim, arithmetic)
    pairs = [(fold(c.left, arithmetic), fold(c.right, arithmetic)) for c in program.checks]
    pairs += [
        (w.load(w.at("%dims", 8 * r.slot), "i64"), symbols[str(r.dim)]) for r in program.repeats
    ]
    for number, dim in enumerate(program.table):
        w.store(fold(dim, arithmetic), "i64", w.at("%table", 8 * number))
    status = w.op(
        f"llvm.select {arithmetic.overflowed()}, {w.constant(-1 - len(pairs))}, {w.constant(0)} : i1, i64"
    )
    for number, (left, right) in reversed(list(enumerate(pairs))):
        holds = w.op(f'llvm.icmp "eq" {left}, {right} : i64')
        status = w.op(f"llvm.select {holds}, {status}, {w.constant(-1 - number)} : i1, i64")
    w.line(f"llvm.return {status} : i64")
    return f"llvm.func @{program.prefix}_prepare(%dims: !llvm.ptr, %table: !llvm.ptr) -> i64 {{\n{w.text()}\n}}"


def _run(program: Program, name: str, steps: Sequence[Step]) -> str:
    """The function that does `steps`; many are several functions: LLVM takes the square of a length."""
    given = {"%ctx": "!llvm.ptr", **({"%table": "!llvm.ptr"} if name == "run" else {})}
    parameters = ", ".join(f"{value}: {kind}" for value, kind in given.items())
    symbol = f"{program.prefix}_{name}"
    slots = {dim: number for number, dim in reversed(list(enumerate(program.table)))}
    inputs = len(program.inputs)
    parts = [steps[i : i + STEPS_A_FUNCTION] for i in range(0, len(steps), STEPS_A_FUNCTION)]
    done = "%done = llvm.mlir.constant(0 : i32) : i32\nllvm.return %done : i32"
    if len(parts) <= 1:
        return f"llvm.func @{symbol}({parameters}) -> i32 {{\n{_steps(steps, slots, inputs)}\n{done}\n}}"
    functions = [
        f"llvm.func internal @{symbol}_{i}({parameters}) {{\n{_steps(part, slots, inputs)}\nllvm.return\n}}"
        for i, part in enumerate(parts)
    ]
    signature = f"({', '.join(given.values())}) -> ()"
    calls = [
        f"llvm.call @{symbol}_{i}({', '.join(given)}) : {signature}" for i in range(len(parts))
    ]
    body = "\n".join([*calls, done])
    return "\n".join([*functions, f"llvm.func @{symbol}({parameters}) -> i32 {{\n{body}\n}}"])


def _steps(steps: Sequence[Step], slots: Mapping[Dim, int], inputs: int) -> str:
    """The code of some steps, of a program with so many inputs and these places of sizes in its table."""
    w = _Writer()
    run = _Run(w, slots, inputs)
    most = max((len(s.places) + len(s.sizes) for s in steps), default=1)
    record = w.op(
        f"llvm.alloca {w.constant(most)} x i64 {{alignment = 16 : i64}} : (i64) -> !llvm.ptr"
    )
    for step in steps:
        run.step(step, record)
    return w.text()


class _Run:
    """Writes the steps of one function."""

    def __init__(self, writer: _Writer, slots: Mapping[Dim, int], inputs: int) -> None:
        self._w = writer
        self._slots = slots
        self._first_buffer = {"input": 0, "output": inputs}
        self._fields: dict[str, str] = {}
        self._sizes: dict[Dim, str] = {}

    def step(self, step: Step, record: str) -> None:
        w = self._w
        values = [("!llvm.ptr", self._address(p)) for p in step.places]
        values += [("i64", self._size(d)) for d in step.sizes]
        for position, (kind, value) in enumerate(values):
            w.store(value, kind, w.at(record, 8 * position))
        task = w.op(f"llvm.mlir.addressof @{step.symbol}_task : !llvm.ptr")
        extent, grain, scratch = (
            self._size(step.extent),
            w.constant(step.grain),
            w.constant(step.scratch),
        )
        w.line(
            f"llvm.call @xc_parallel_for(%ctx, {task}, {record}, {extent}, {grain}, {scratch}) : "
            "(!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64) -> ()"
        )

    def _size(self, dim: Dim) -> str:
        if isinstance(dim, int):
            return self._w.constant(dim)
        if dim not in self._sizes:
            self._sizes[dim] = self._w.load(self._w.at("%table", 8 * self._slots[dim]), "i64")
        return self._sizes[dim]

    def _field(self, name: str) -> str:
        if name not in self._fields:
            self._fields[name] = self._w.load(
                self._w.at("%ctx", _CONTEXT_OFFSETS[name]), "!llvm.ptr"
            )
        return self._fields[name]

    def _address(self, place: Place) -> str:
        if place.space in self._first_buffer:
            assert isinstance(place.offset, int)
            position = self._first_buffer[place.space] + place.offset
            return self._w.load(self._w.at(self._field("buffers"), 8 * position), "!llvm.ptr")
        offset = place.offset if isinstance(place.offset, int) else self._size(place.offset)
        return self._w.at(self._field(place.space), offset)
