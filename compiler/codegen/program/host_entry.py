"""The entry functions of a model as loops-level text: `P_prepare`, `P_run`, `P_init`.

See docs/architecture.md, "The native boundary". Sizes go into a table, then each step is a few instructions: for a
launch its record and a call of `xc_parallel_for`. Nothing is interpreted when a model runs.
"""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.codegen.job import EmittedModule
from xcompile.compiler.codegen.program.native_text import Arithmetic, Writer
from xcompile.compiler.codegen.program.program import NO_DEVICE, Allocate, Program, Step
from xcompile.compiler.codegen.program.run_text import HOST_SYMBOLS, Frame, RunWriter, can_fail
from xcompile.compiler.support.dims import fold, symbols_of
from xcompile.runtime.device import HOST_STEPS

LAUNCH_OFFSET = 72
"""Of the field `launch` in `xc_context`."""

STEPS_A_FUNCTION = 256
"""Launches in one native function at most."""


def emit(payload: dict[str, Any]) -> EmittedModule:
    """The entry functions of a program, from `Program.to_json`; called in workers."""
    return EmittedModule(entry_text(Program.from_json(payload)))


def entry_text(program: Program) -> str:
    """The module of the entry functions of `program`."""
    symbols = dict.fromkeys(s.symbol for s in (*program.launches, *program.setup))
    declarations = [
        f"llvm.func @{symbol}_task(!llvm.ptr, i64, i64, !llvm.ptr)" for symbol in symbols
    ]
    if program.on_device:
        declarations = [
            _descriptor(k.symbol, i, k.parameters) for i, k in enumerate(program.device)
        ]
        declarations += [
            _descriptor(symbol, number, HOST_STEPS[number])
            for number, symbol in HOST_SYMBOLS.items()
        ]
    declarations.append(
        "llvm.func @xc_parallel_for(!llvm.ptr, !llvm.ptr, !llvm.ptr, i64, i64, i64)"
    )
    if _has_heap(program):
        declarations += [
            "llvm.func @xc_heap_begin(!llvm.ptr)",
            "llvm.func @xc_heap_allocate(!llvm.ptr, i64) -> !llvm.ptr",
            "llvm.func @xc_heap_free(!llvm.ptr, !llvm.ptr)",
        ]
    functions = [
        _prepare(program),
        _run(program, "run", program.steps),
        _run(program, "init", program.setup),
    ]
    return "\n".join([*declarations, *functions])


def _has_heap(program: Program) -> bool:
    """Whether a run takes memory of the host while it goes on."""
    return not program.on_device and any(isinstance(s, Allocate) for s in program.walk)


def _descriptor(symbol: str, number: int, slots: int) -> str:
    """What stands in the place of a kernel's task: which kernel of the device is meant, and how many slots its record
    has. `runtime/device.py` reads it.
    """
    words = f"dense<[{number}, {slots}]> : tensor<2xi64>"
    return (
        f"llvm.mlir.global internal constant @{symbol}_task({words}) "
        "{alignment = 8 : i64} : !llvm.array<2 x i64>"
    )


def _prepare(program: Program) -> str:
    w = Writer()
    symbols: dict[str, str] = {}
    slot = 0
    for shape in program.inputs:
        for dim in shape:
            if not isinstance(dim, int) and symbols_of(dim)[0] not in symbols:
                symbols[symbols_of(dim)[0]] = w.load(w.at("%dims", 8 * slot), "i64")
            slot += 1
    arithmetic = Arithmetic(w, symbols)
    for name, dim in program.definitions:
        symbols[name] = fold(dim, arithmetic)
    pairs = [(fold(c.left, arithmetic), fold(c.right, arithmetic)) for c in program.checks]
    pairs += [
        (w.load(w.at("%dims", 8 * r.slot), "i64"), symbols[symbols_of(r.dim)[0]])
        for r in program.repeats
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
    frame = Frame(program)
    parts = [steps[i : i + STEPS_A_FUNCTION] for i in range(0, len(steps), STEPS_A_FUNCTION)]
    if len(parts) <= 1:
        body = _steps(steps, frame, starts=name == "run", returns="i32")
        return f"llvm.func @{symbol}({parameters}) -> i32 {{\n{body}\n}}"
    kinds = ["i32" if program.on_device or any(map(can_fail, part)) else "" for part in parts]
    functions = [
        f"llvm.func internal @{symbol}_{i}({parameters}){' -> i32' if kind else ''} {{\n"
        f"{_steps(part, frame, starts=name == 'run' and i == 0, returns=kind)}\n}}"
        for i, (part, kind) in enumerate(zip(parts, kinds, strict=True))
    ]
    w = Writer()
    for i, kind in enumerate(kinds):
        call = f"llvm.call @{symbol}_{i}({', '.join(given)}) : ({', '.join(given.values())}) -> {kind or '()'}"
        if kind:
            w.leave_unless_zero(w.op(call))
        else:
            w.line(call)
    w.finish("i32")
    return "\n".join([*functions, f"llvm.func @{symbol}({parameters}) -> i32 {{\n{w.text()}\n}}"])


def _steps(steps: Sequence[Step], frame: Frame, *, starts: bool, returns: str) -> str:
    """The code of some steps; the first function of a run begins with its heap as it was made."""
    w = Writer()
    if frame.program.on_device:
        null = w.op("llvm.mlir.zero : !llvm.ptr")
        missing = w.op(f'llvm.icmp "eq" {w.field(LAUNCH_OFFSET)}, {null} : !llvm.ptr')
        w.leave_if(missing, frame.code(NO_DEVICE))
    if starts and _has_heap(frame.program):
        w.line("llvm.call @xc_heap_begin(%ctx) : (!llvm.ptr) -> ()")
    run = RunWriter(w, frame, steps)
    for step in steps:
        run.step(step)
    w.finish(returns)
    return w.text()
