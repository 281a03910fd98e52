"""Typed values of operands: how instructions read and write the bits in registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from xcompile.compiler.ptx.machine import WARP, Machine
from xcompile.compiler.ptx.memory import UNSIGNED, Array
from xcompile.compiler.ptx.parser import refuse
from xcompile.compiler.ptx.syntax import (
    WIDTHS,
    Address,
    Function,
    Immediate,
    Operand,
    Register,
    Symbol,
)
from xcompile.runtime.arrays import numpy_dtype

Reader: TypeAlias = Callable[[Machine], Array]
Writer: TypeAlias = Callable[[Machine, Array], None]

TYPES: Mapping[str, type[Any]] = {
    "pred": np.bool_,
    **{f"{kind}{8 * width}": unsigned for kind in "bu" for width, unsigned in UNSIGNED.items()},
    "s8": np.int8,
    "s16": np.int16,
    "s32": np.int32,
    "s64": np.int64,
    "f16": np.float16,
    "bf16": numpy_dtype("bfloat16").type,
    "f32": np.float32,
    "f64": np.float64,
}
"""The numpy type of each type of PTX that values are computed in."""

_SPECIAL: Mapping[str, Callable[[Machine], Any]] = {
    "%tid.x": lambda m: m.of(m.linear),
    "%ctaid.x": lambda m: m.of(m.block_number),
    "%ntid.x": lambda m: m.block_threads,
    "%nctaid.x": lambda m: m.grid[0],
    "%laneid": lambda m: m.of(m.lane),
    "%warpid": lambda m: m.of(m.linear // WARP),
}


@dataclass(frozen=True)
class Operands:
    """How the operands of one function are read and written.

    Attributes:
        function: whose registers they are.
        places: the number of each register.
        symbols: the address of each variable.
        local: the names of variables that every thread has for itself.
    """

    function: Function
    places: Mapping[str, int]
    symbols: Mapping[str, int]
    local: frozenset[str] = frozenset()

    def reader(self, operand: Operand, kind: str, line: int) -> Reader:
        """Reads an operand as a type: an element for each active thread, or one for all."""
        dtype = _type(kind, line)
        if isinstance(operand, Immediate):
            value = _immediate(operand, dtype)
            return lambda machine: value
        if isinstance(operand, Symbol) and operand.name in self.symbols:
            address = np.array(self.symbols[operand.name] + operand.offset).astype(dtype)
            return lambda machine: address
        if isinstance(operand, Symbol) and operand.name in self.local:
            name, offset = operand.name, np.uint64(operand.offset & ((1 << 64) - 1))
            return lambda machine: machine.local.address(name, machine.threads) + offset
        if not isinstance(operand, Register):
            refuse(line, "an operand has an unknown form")
        if operand.name in _SPECIAL:
            special = _SPECIAL[operand.name]
            return lambda machine: np.asarray(special(machine)).astype(dtype)
        if operand.name not in self.places:
            refuse(line, f"there is no register {operand.name}")
        place, negated = self.places[operand.name], operand.negated

        def read(machine: Machine) -> Array:
            value = typed(machine.read(place), dtype)
            return ~value if negated else value

        return read

    def address(self, operand: Operand, line: int) -> Reader:
        """Reads the address of an access of memory."""
        if not isinstance(operand, Address):
            refuse(line, "an operand is no address")
        base = self.reader(operand.base, "u64", line)
        offset = np.array(operand.offset & ((1 << 64) - 1), np.uint64)
        return lambda machine: base(machine) + offset

    def writer(self, operand: Operand, kind: str, line: int) -> Writer:
        """Writes values of a type to a register; narrower signed ones are extended with their sign."""
        dtype = _type(kind, line)
        if not isinstance(operand, Register) or operand.name not in self.places:
            if operand == Register("_"):
                return lambda machine, value: None
            refuse(line, "a result is no register")
        place, declared = self.places[operand.name], self.function.registers[operand.name]
        if declared == "pred" or kind == "pred":
            return lambda machine, value: machine.write(place, np.asarray(value, np.bool_))
        width = WIDTHS[declared]
        if width < np.dtype(dtype).itemsize:
            refuse(line, f"{operand.name} is too narrow for {kind}")
        unsigned = UNSIGNED[width]
        wide: type[Any] = np.dtype(f"i{width}").type if kind.startswith("s") else unsigned

        def write(machine: Machine, value: Array) -> None:
            value = np.asarray(value, dtype)
            bits = value if kind.startswith("s") else value.view(UNSIGNED[value.dtype.itemsize])
            machine.write(place, bits.astype(wide).view(unsigned))

        return write


def typed(bits: Array, dtype: type[Any]) -> Array:
    """The low bits of a register as a type."""
    if dtype is np.bool_ or bits.dtype == np.bool_:
        return bits.astype(np.bool_)
    return bits.astype(UNSIGNED[np.dtype(dtype).itemsize], copy=False).view(dtype)


def _type(kind: str, line: int) -> type[Any]:
    if kind not in TYPES:
        refuse(line, f"values of the type {kind} are not known")
    return TYPES[kind]


def _immediate(operand: Immediate, dtype: type[Any]) -> Array:
    if operand.float_bits:
        bits = np.array(operand.value, UNSIGNED[operand.float_bits // 8])
        floats = bits.view(TYPES[f"f{operand.float_bits}"])
        return floats.astype(dtype) if np.issubdtype(dtype, np.floating) else bits.astype(dtype)
    if isinstance(operand.value, int) and np.issubdtype(dtype, np.integer):
        width = np.dtype(dtype).itemsize
        return np.array(operand.value & ((1 << 8 * width) - 1), UNSIGNED[width]).view(dtype)
    return np.array(operand.value).astype(dtype)
