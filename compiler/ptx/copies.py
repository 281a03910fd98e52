"""`cp.async`: copies from global to shared memory that arrive when the thread that began them waits for them.

What a copy reads is read when it begins; its bytes are in shared memory only after `cp.async.wait_group` or
`cp.async.wait_all`, and other threads see them behind a barrier after that. Whoever reads or writes them in between is
told of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from xcompile.compiler.ptx.machine import Action, Copy, Machine
from xcompile.compiler.ptx.memory import Array, Trap, demand
from xcompile.compiler.ptx.parser import refuse
from xcompile.compiler.ptx.syntax import Immediate, Instruction, Register
from xcompile.compiler.ptx.transfers import count_sectors, count_turns
from xcompile.compiler.ptx.values import Operands

_SIZES: Mapping[str, tuple[int, ...]] = {"ca": (4, 8, 16), "cg": (16,)}
"""Bytes that a copy of each kind may have: through both caches, or the second alone."""


def asynchronous(operands: Operands, code: Instruction) -> Action:
    """What an instruction of `cp.async` does.

    Raises:
        CompileError: XC4013, the instruction is not known.
    """
    parts = code.parts[2:]
    if code.parts[:2] == ("cp", "async"):
        if len(parts) == 3 and parts[0] in _SIZES and parts[1:] == ("shared", "global"):
            return _begin(operands, code, _SIZES[parts[0]])
        if parts == ("commit_group",):
            return _commit
        if parts == ("wait_all",):
            return lambda machine: _land(machine, -1)
        if parts == ("wait_group",) and isinstance(code.operands[0], Immediate):
            kept = int(code.operands[0].value)
            return lambda machine: _land(machine, kept)
    refuse(code.line, f"the instruction '{code.text}' is not known")
    return None


def copied_bytes(code: Instruction) -> int | None:
    """Bytes that a copy writes; None for other instructions."""
    if code.parts[0] != "cp" or len(code.operands) < 3:
        return None
    size = code.operands[2]
    return int(size.value) if isinstance(size, Immediate) else None


def _begin(operands: Operands, code: Instruction, sizes: tuple[int, ...]) -> Action:
    size = copied_bytes(code)
    if size not in sizes:
        refuse(code.line, f"a copy of {size} bytes is not known")
    into, out_of, _, *given = code.operands
    amount = operands.reader(given[0], "u32", code.line) if given else None
    predicates = {name for name, kind in operands.function.registers.items() if kind == "pred"}
    for each in given:
        if isinstance(each, Register) and each.name in predicates:
            refuse(code.line, "a copy under a predicate of its own is not known")
    target = operands.address(into, code.line)
    source = operands.address(out_of, code.line)

    def action(machine: Machine) -> None:
        threads = machine.threads
        offset, address = (
            np.ascontiguousarray(np.broadcast_to(each(machine), threads.size))
            for each in (target, source)
        )
        offset = offset.astype(np.int64)
        amounts = np.broadcast_to(amount(machine) if amount else size, threads.size)
        data = _fetch(machine, address, size, amounts.astype(np.int64))
        count_turns(machine, threads, offset, size)
        machine.shared.begin_copy(offset, size, threads, machine.block[threads])
        machine.copies.append(Copy(threads, machine.copy_group[threads], offset, data))

    return action


def _fetch(machine: Machine, address: Array, size: int, amounts: Array) -> Array:
    """The bytes that each thread copies: the first `amounts` of its `size`, zeros behind them."""
    demand(address % np.uint64(size) == 0, f"misaligned copy of {size} bytes from global memory")
    demand(amounts <= size, f"a copy of {size} bytes reads more")
    data = np.zeros((address.size, size), np.uint8)
    for amount in np.unique(amounts[amounts > 0]).tolist():
        rows = np.flatnonzero(amounts == amount)
        threads = machine.threads[rows]
        count_sectors(machine, threads, address[rows], amount)
        piece = math.gcd(amount, size)
        for start in range(0, amount, piece):
            part, blocks = address[rows] + np.uint64(start), machine.block_number[threads]
            try:
                data[rows, start : start + piece] = machine.memory.read(part, piece, blocks)
            except Trap as trap:
                raise Trap(str(trap), int(rows[trap.lane])) from trap
    return data


def _commit(machine: Machine) -> None:
    machine.copy_group[machine.threads] += 1


def _land(machine: Machine, kept: int) -> None:
    """The active threads' copies arrive, but for their last `kept` groups; -1: also those that are in no group."""
    due = np.full(machine.count, -1)
    due[machine.threads] = machine.copy_group[machine.threads] - 1 - kept
    left: list[Copy] = []
    for copy in machine.copies:
        now = copy.group <= due[copy.threads]
        if now.any():
            come = copy.part(now)
            block = machine.block[come.threads]
            machine.shared.land_copy(come.offset, come.data, come.threads, block)
        if not now.all():
            left.append(copy.part(~now))
    machine.copies = left
