"""What a parsed PTX module consists of: frozen data, in the words of the PTX ISA."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

WIDTHS = {
    **{f"{kind}{bits}": bits // 8 for kind in "bus" for bits in (8, 16, 32, 64)},
    "f16": 2,
    "bf16": 2,
    "f16x2": 4,
    "bf16x2": 4,
    "tf32": 4,
    "f32": 4,
    "f64": 8,
    "b128": 16,
}
"""Bytes of each fundamental type."""


@dataclass(frozen=True)
class Register:
    """A declared register by its unique name, or a special one such as `%tid.x`."""

    name: str
    negated: bool = False


@dataclass(frozen=True)
class Immediate:
    """A constant: the bits as written for `0f` and `0d` forms, otherwise a Python number."""

    value: int | float
    float_bits: int = 0  # 32 or 64 where the value is bits of a float


@dataclass(frozen=True)
class Symbol:
    """The address of a variable or parameter, a label or a function."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Address:
    """`[base + offset]`."""

    base: Register | Symbol | Immediate
    offset: int = 0


@dataclass(frozen=True)
class Vector:
    """`{a, b, …}`, the arguments `(a, b)` of a call, or the pair `p|q` of two results."""

    items: tuple[Operand, ...]


Operand: TypeAlias = Register | Immediate | Symbol | Address | Vector


@dataclass(frozen=True)
class Instruction:
    """One instruction: `@guard parts operands;`.

    Attributes:
        parts: the opcode split at its dots, such as `("add", "rn", "f32")`.
        operands: in written order.
        guard: the predicate register, if there is one; `guard.negated` for `@!p`.
        line: the line of the text, from 1.
        text: the instruction as written, with single spaces.
    """

    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    line: int
    text: str


@dataclass(frozen=True)
class Variable:
    """A variable or parameter.

    Attributes:
        space: "global", "const", "shared", "local" or "param".
        align: bytes, as declared, or the size of the element.
        size: bytes; 0 for an `extern` array without a size.
        data: initial bytes, or None where there is no initializer.
        line: where it is declared.
    """

    name: str
    space: str
    align: int
    size: int
    data: bytes | None
    line: int


@dataclass(frozen=True)
class Function:
    """An `.entry` or a `.func` with its body.

    Attributes:
        parameters: in order; their `.space` is "param".
        results: parameters that a `.func` returns.
        registers: type by unique name.
        variables: what the body declares.
        code: the instructions.
        labels: index into `code` by unique name.
        block: threads of `.reqntid` or `.maxntid` (three numbers), if stated, and whether exactly so many.
    """

    name: str
    is_entry: bool
    parameters: tuple[Variable, ...]
    results: tuple[Variable, ...]
    registers: dict[str, str]
    variables: tuple[Variable, ...]
    code: tuple[Instruction, ...]
    labels: dict[str, int]
    block: tuple[int, int, int] | None = None
    exact: bool = False


@dataclass(frozen=True)
class Module:
    """A PTX module: its target, its variables and its functions by name."""

    version: str
    target: str
    variables: tuple[Variable, ...]
    functions: dict[str, Function]
