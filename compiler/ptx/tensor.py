"""Matrix instructions: `ldmatrix` and `mma.sync`, in which the threads of a warp hold parts of small matrices.

A register of 32 bits holds as many neighbouring elements of a row of A, or of a column of B, as fit. Thread 4g + t has
those of row or column g; its elements are the t-th of each group of four registers. Rows of A beyond the eighth, and
further elements along k, are in further registers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcompile.compiler.ptx.machine import WARP, Action, Machine
from xcompile.compiler.ptx.memory import Array, Trap, demand
from xcompile.compiler.ptx.parser import refuse
from xcompile.compiler.ptx.syntax import Instruction, Operand, Vector
from xcompile.compiler.ptx.transfers import count_turns
from xcompile.compiler.ptx.values import Operands, Reader

_SIDE = 8
"""Rows of a matrix that `ldmatrix` reads, and threads that hold an eighth of a fragment each."""
_ROW_BYTES = 16
_TF32_SPARE = 0x1FFF
"""Bits of a float32 that tf32 does not have."""

_STORED: Mapping[str, type[Any]] = {
    "f16": np.float16, "bf16": np.uint16, "tf32": np.float32, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
"""How the elements of A and B lie in registers."""

_PRODUCTS: Mapping[str, tuple[frozenset[str], str]] = {
    "m16n8k16": (frozenset({"f16", "bf16"}), "f32"),
    "m16n8k8": (frozenset({"f16", "bf16", "tf32"}), "f32"),
    "m16n8k32": (frozenset({"s8", "u8"}), "s32"),
    "m8n8k16": (frozenset({"s8", "u8"}), "s32"),
}
"""For each shape the types of A and B, and that of the sums."""


@dataclass(frozen=True)
class Fragment:
    """Which elements of a matrix each thread of a warp holds.

    Attributes:
        rows: of the element, by lane, register and place within the register.
        columns: likewise.
    """

    rows: Array
    columns: Array

    @property
    def registers(self) -> int:
        """How many each thread has."""
        return self.rows.shape[1]

    def gathered(self, elements: Array) -> Array:
        """The float64 matrices `(warps, rows, columns)` whose elements the threads hold."""
        shape = (len(elements) // WARP, int(self.rows.max()) + 1, int(self.columns.max()) + 1)
        whole = np.empty(shape)
        whole[:, self.rows, self.columns] = elements.reshape(-1, *self.rows.shape)
        return whole

    def scattered(self, whole: Array) -> Array:
        """What each thread holds of the matrices: `(threads, registers)`, of one element a register."""
        return whole[:, self.rows, self.columns].reshape(-1, self.registers)


def _left(m: int, k: int, held: int) -> Fragment:
    """A, of `held` elements a register."""
    lane, register, place = np.ogrid[:WARP, : m * k // WARP // held, :held]
    halves = m // _SIDE
    rows = lane // 4 + _SIDE * (register % halves) + 0 * place
    return Fragment(rows, held * (lane % 4 + 4 * (register // halves)) + place)


def _right(k: int, held: int) -> Fragment:
    """B, whose rows are along k."""
    transposed = _left(_SIDE, k, held)
    return Fragment(transposed.columns, transposed.rows)


def _sums(m: int) -> Fragment:
    """C and D."""
    lane, register, place = np.ogrid[:WARP, : m * _SIDE // WARP, :1]
    rows = lane // 4 + _SIDE * (register // 2) + place
    return Fragment(rows, 2 * (lane % 4) + register % 2 + place)


def multiply(operands: Operands, code: Instruction) -> Action:
    """`mma.sync`: D = A·B + C. Floats are summed in float64 and rounded once; integers wrap around.

    Raises:
        CompileError: XC4013, the instruction is not known.
    """
    shape, kinds, total = _product(code)
    m, k = (int(number) for number in re.findall(r"\d+", shape)[::2])
    held = 4 // np.dtype(_STORED[kinds[0]]).itemsize
    left, right, sums = _left(m, k, held), _right(k, held), _sums(m)
    inputs = [
        _registers(operands, code, 1, left.registers, "b32"),
        _registers(operands, code, 2, right.registers, "b32"),
        _registers(operands, code, 3, sums.registers, total),
    ]
    targets = _items(code, 0, sums.registers)
    writers = [operands.writer(item, total, code.line) for item in targets]

    def action(machine: Machine) -> None:
        machine.whole_warps("mma")
        a, b, c = (_read(machine, readers) for readers in inputs)
        product = left.gathered(_elements(a, kinds[0])) @ right.gathered(_elements(b, kinds[1]))
        result = sums.scattered(product + sums.gathered(c[..., None]))
        rounded = result.astype(np.float32 if total == "f32" else np.int64)
        for i, write in enumerate(writers):
            column = np.ascontiguousarray(rounded[:, i])
            write(machine, column if total == "f32" else column.astype(np.int32))

    return action


def _product(code: Instruction) -> tuple[str, tuple[str, str], str]:
    """The shape of a product, the types of A and B, and that of the sums."""
    if code.parts[:3] == ("mma", "sync", "aligned") and code.parts[4:6] == ("row", "col"):
        shape, types = code.parts[3], code.parts[6:]
        known, total = _PRODUCTS.get(shape, (frozenset[str](), ""))
        if len(types) == 4 and types[0] == types[3] == total and known.issuperset(types[1:3]):
            a, b = types[1:3]
            if a == b or total == "s32":
                return shape, (a, b), total
    refuse(code.line, f"the instruction '{code.text}' is not known")
    return "", ("", ""), ""


def _elements(words: Array, kind: str) -> Array:
    """The `(threads, registers, held)` elements in registers `(threads, registers)` of 32 bits."""
    if kind == "tf32":
        whole = (words & np.uint32(_TF32_SPARE) == 0).all(1)
        demand(whole, "an operand of mma is no tf32: its last 13 bits are not zero")
    stored = words[..., None].view(_STORED[kind])
    return (stored.astype(np.uint32) << 16).view(np.float32) if kind == "bf16" else stored


def load_matrix(operands: Operands, code: Instruction) -> Action:
    """`ldmatrix`: matrices of 8x8 elements of 16 bits; eight threads each say where the rows of one are.

    Raises:
        CompileError: XC4013, the instruction is not known.
    """
    parts = code.parts
    flipped = "trans" in parts
    plain = tuple(part for part in parts if part != "trans")
    known = [("ldmatrix", "sync", "aligned", "m8n8", f"x{n}", "shared", "b16") for n in (1, 2, 4)]
    if plain not in known:
        refuse(code.line, f"the instruction '{code.text}' is not known")
    count = int(plain[4][1:])
    writers = [operands.writer(item, "b32", code.line) for item in _items(code, 0, count)]
    address = operands.address(code.operands[1], code.line)

    def action(machine: Machine) -> None:
        machine.whole_warps("ldmatrix")
        threads = machine.threads
        chosen = np.flatnonzero(machine.lane[threads] < count * _SIDE)
        named = threads[chosen]
        offset = np.broadcast_to(address(machine), threads.size)[chosen].astype(np.int64)
        count_turns(machine, named, offset, _ROW_BYTES)
        try:
            data = machine.shared.read(offset, _ROW_BYTES, named, machine.block[named])
        except Trap as trap:
            raise Trap(str(trap), int(chosen[trap.lane])) from trap
        matrices = np.ascontiguousarray(data).view(np.uint16).reshape(-1, count, _SIDE, _SIDE)
        if flipped:
            matrices = np.ascontiguousarray(matrices.swapaxes(2, 3))
        words = matrices.view(np.uint32).reshape(-1, count, WARP)
        for i, write in enumerate(writers):
            write(machine, np.ascontiguousarray(words[:, i]).ravel())

    return action


def _items(code: Instruction, position: int, count: int) -> tuple[Operand, ...]:
    operand = code.operands[position] if position < len(code.operands) else Vector(())
    items = operand.items if isinstance(operand, Vector) else (operand,)
    if len(items) != count:
        refuse(code.line, f"operand {position} of '{code.text}' does not have {count} registers")
    return items


def _registers(
    operands: Operands, code: Instruction, position: int, count: int, kind: str
) -> list[Reader]:
    items = _items(code, position, count)
    return [operands.reader(item, kind, code.line) for item in items]


def _read(machine: Machine, readers: list[Reader]) -> Array:
    """The values of some registers, `(threads, registers)`."""
    size = machine.threads.size
    return np.stack([np.broadcast_to(read(machine), size) for read in readers], axis=1)
