"""A launch of a kernel, interpreted."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from xcompile.compiler.ptx.copies import copied_bytes
from xcompile.compiler.ptx.instructions import Decoder
from xcompile.compiler.ptx.local import LocalMemory
from xcompile.compiler.ptx.machine import Counters, Machine, Step
from xcompile.compiler.ptx.memory import GlobalMemory, Region, Trap
from xcompile.compiler.ptx.syntax import WIDTHS, Function, Instruction, Module
from xcompile.compiler.ptx.values import Operands
from xcompile.runtime.errors import RuntimeModelError

_THREADS_AT_ONCE: Final = 1 << 15
_MOST_INSTRUCTIONS: Final = 20_000_000


@dataclass(frozen=True)
class Report:
    """What a launch did.

    Attributes:
        kernel: its name.
        code: the text of each instruction.
        counters: what each instruction did.
    """

    kernel: str
    code: tuple[str, ...]
    counters: tuple[Counters, ...]

    @property
    def used_sectors(self) -> float:
        """Of the bytes of the sectors of global memory that warps touched, the part that they asked for."""
        moved = 32 * sum(each.sectors for each in self.counters)
        return sum(each.used_bytes for each in self.counters) / moved if moved else 1.0

    @property
    def bank_conflicts(self) -> int:
        """Accesses of shared memory beyond the least that the same bytes need."""
        return sum(each.transactions - each.least_transactions for each in self.counters)


def launch(
    module: Module,
    entry: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    arguments: Sequence[int],
    memory: Sequence[Region],
    *,
    shared_bytes: int = 0,
    races: bool = True,
) -> Report:
    """Run a kernel to its end.

    Args:
        module: with the kernel.
        entry: its name.
        grid: blocks; of one dimension.
        block: threads of a block; of one dimension.
        arguments: the bits of each parameter, 8 bytes each.
        memory: address and bytes of all that the kernel may touch.
        shared_bytes: of dynamic shared memory of a block.
        races: whether blocks that write what others read or write are found.

    Raises:
        CompileError: XC4013, the module has instructions that are not known.
        RuntimeModelError: XC5009, the kernel does what a GPU does not allow, or what has no one meaning.
    """
    function = module.functions[entry]
    if len(arguments) != len(function.parameters) or grid[1:] != (1, 1) or block[1:] != (1, 1):
        raise RuntimeModelError("XC5009", f"kernel '{entry}' is launched with other parameters")
    variables = [v for v in module.variables if v.space in ("global", "const")]
    stored = [np.frombuffer(v.data or bytes(v.size), np.uint8).copy() for v in variables]
    symbols = {v.name: array.ctypes.data for v, array in zip(variables, stored, strict=True)}
    shared, size = _shared_layout(module, function, shared_bytes)
    places = {name: place for place, name in enumerate(function.registers)}
    parameters = {
        p.name: struct.pack("<Q", value & (1 << 64) - 1)
        for p, value in zip(function.parameters, arguments, strict=True)
    }
    at_once = max(1, _THREADS_AT_ONCE // math.prod(block))
    own = [v for v in function.variables if v.space == "local"]
    local = LocalMemory(own, min(at_once, grid[0]) * math.prod(block))
    names = frozenset(v.name for v in own)
    decoder = Decoder(Operands(function, places, {**symbols, **shared}, names), parameters)
    steps = [_step(decoder, places, code) for code in function.code]
    counters = [Counters() for _ in steps]
    granule = min((_width(code) for code in function.code), default=1)
    regions = [*memory, *((a.ctypes.data, a) for a in stored), local.region]
    whole = GlobalMemory(regions, granule, races, local.region[0])
    for first in range(0, grid[0], at_once):
        count = min(at_once, grid[0] - first)
        local.clear()
        machine = Machine(
            steps, list(places), first, count, grid, block, whole, size, local, granule, counters, _MOST_INSTRUCTIONS,
        )  # fmt: skip
        _run(machine, function, first)
    return Report(entry, tuple(code.text for code in function.code), tuple(counters))


def _run(machine: Machine, function: Function, first: int) -> None:
    try:
        with np.errstate(all="ignore"):
            machine.run()
    except Trap as trap:
        thread = int(machine.threads[trap.lane])
        block = first + thread // machine.block_threads
        code = function.code[machine.pc]
        raise RuntimeModelError(
            "XC5009",
            f"kernel '{function.name}', PTX line {code.line}, '{code.text}', block {block}, thread "
            f"{thread % machine.block_threads}: {trap}",
        ) from None


def _step(decoder: Decoder, places: dict[str, int], code: Instruction) -> Step:
    guard = places[code.guard.name] if code.guard is not None else -1
    negated = code.guard is not None and code.guard.negated
    return Step(decoder.action(code), guard, negated)


def _shared_layout(module: Module, function: Function, dynamic: int) -> tuple[dict[str, int], int]:
    """Where the variables in shared memory lie, the dynamic one last, and how many bytes there are."""
    places: dict[str, int] = {}
    at = 0
    found = [v for v in (*module.variables, *function.variables) if v.space == "shared"]
    for variable in sorted(found, key=lambda v: v.size == 0):
        at = -(-at // max(variable.align, 1)) * max(variable.align, 1)
        places[variable.name] = at
        at += variable.size
    return places, at + dynamic


def _width(code: Instruction) -> int:
    """Bytes of the elements of an access of memory; 8 for other instructions."""
    copied = copied_bytes(code)
    if copied is not None:
        return copied
    if code.parts[0] not in ("ld", "st", "atom", "red") or code.parts[-1] not in WIDTHS:
        return 8
    return WIDTHS[code.parts[-1]]
