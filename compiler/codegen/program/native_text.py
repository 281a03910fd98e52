"""A small writer of llvm-dialect functions, and sizes as i64 arithmetic: what entry functions are made with."""

import functools
from collections.abc import Callable, Mapping, Sequence

from xcompile.compiler.support.errors import CompileError

_MOST_IN_TEXT = (1 << 31) - 1
"""The largest offset that an address computation takes as a number of its own."""


class Writer:
    """Writes one llvm.func body.

    Constants and fields of the context stand at its beginning, the return of a failure at its end.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._constants: dict[int, str] = {}
        self._head: list[str] = []
        self._count = 0
        self._leaves = False

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
        if isinstance(byte_offset, int) and byte_offset > _MOST_IN_TEXT:
            byte_offset = self.constant(byte_offset)
        if isinstance(byte_offset, int):
            return self.op(
                f"llvm.getelementptr {base}[{byte_offset}] : (!llvm.ptr) -> !llvm.ptr, i8"
            )
        return self.op(
            f"llvm.getelementptr {base}[{byte_offset}] : (!llvm.ptr, i64) -> !llvm.ptr, i8"
        )

    def field(self, offset: int) -> str:
        """A pointer field of the context, loaded at the beginning of the function."""
        name = f"%f{offset}"
        self._head += [
            f"{name}_at = llvm.getelementptr %ctx[{offset}] : (!llvm.ptr) -> !llvm.ptr, i8",
            f"{name} = llvm.load {name}_at : !llvm.ptr -> !llvm.ptr",
        ]
        return name

    def label(self, hint: str) -> str:
        """A new name of a block."""
        self._count += 1
        return f"^{hint}{self._count}"

    # -- leaving --------------------------------------------------------------------------------

    def leave_if(self, condition: str, code: int) -> None:
        """Return `code` when the condition holds, else go on."""
        self._leave(condition, self._small(code))

    def leave_unless_zero(self, status: str) -> None:
        """Return the i32 `status` unless it is 0."""
        self._leave(self.op(f'llvm.icmp "ne" {status}, {self._small(0)} : i32'), status)

    def _leave(self, condition: str, code: str) -> None:
        self._leaves = True
        self._count += 1
        self.lines.append(f"llvm.cond_br {condition}, ^left({code} : i32), ^go{self._count}")
        self.lines.append(f"^go{self._count}:")

    def _small(self, value: int) -> str:
        name = f"%s{-value}"
        line = f"{name} = llvm.mlir.constant({value} : i32) : i32"
        if line not in self._head:
            self._head.append(line)
        return name

    def finish(self, returns: str) -> None:
        """Return success: 0, or nothing when the function returns nothing."""
        self.lines.append(f"llvm.return {self._small(0)} : i32" if returns else "llvm.return")
        if self._leaves:
            self.lines += ["^left(%status: i32):", "llvm.return %status : i32"]

    # -- memory ---------------------------------------------------------------------------------

    def load(self, address: str, kind: str) -> str:
        return self.op(f"llvm.load {address} : !llvm.ptr -> {kind}")

    def store(self, value: str, kind: str, address: str) -> None:
        self.line(f"llvm.store {value}, {address} : {kind}, !llvm.ptr")

    def text(self) -> str:
        return "\n".join([*self._head, *self.lines])


class Arithmetic:
    """A size as i64 arithmetic, see `dims.fold`."""

    def __init__(self, writer: Writer, symbols: Mapping[str, str]) -> None:
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

    @property
    def may_overflow(self) -> bool:
        """Whether anything was computed that may not fit 64 bits."""
        return bool(self._overflows)

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
