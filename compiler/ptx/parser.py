"""From PTX text to `Module`. What is not understood is an error that names its line, never skipped.

Only debugging directives are read over: `.loc`, `.file`, `.section` and `.pragma`, which say nothing about values.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from typing import NoReturn

from xcompile.compiler.ptx.syntax import (
    WIDTHS,
    Address,
    Function,
    Immediate,
    Instruction,
    Module,
    Operand,
    Register,
    Symbol,
    Variable,
    Vector,
)
from xcompile.compiler.support.errors import CompileError

_TOKEN = re.compile(
    r"(?P<space>(?:\s|//[^\n]*|/\*.*?\*/)+)"
    r"|(?P<bits>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b)"
    r"|(?P<real>\d+\.\d*(?:[eE][+-]?\d+)?)"
    r"|(?P<number>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)"
    r"|(?P<word>[A-Za-z_$%][\w$]*(?:(?:\.|::)[\w$]+)*)"
    r"|(?P<directive>\.[A-Za-z_]\w*)"
    r'|(?P<string>"[^"]*")'
    r"|(?P<mark>[()\[\]{},;:@!+<>=|-])",
    re.DOTALL,
)
_SPACES = frozenset({"global", "const", "shared", "local", "param"})
_MAX_REGISTERS = 1_000_000


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    line: int


def parse(text: str) -> Module:
    """Parse a module.

    Args:
        text: PTX, as LLVM's NVPTX back end or a person writes it.

    Raises:
        CompileError: XC4013, with the line, for text that is not PTX or that this parser does not know.
    """
    return _Parser(_tokens(text)).module()


def refuse(line: int, what: str) -> NoReturn:
    """Raise the error for PTX that is wrong or not known, with its line."""
    raise CompileError("XC4013", f"PTX line {line}: {what}")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position, line = 0, 1
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            refuse(line, f"unexpected character {text[position]!r}")
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(_Token(kind, match.group(), line))
        line += match.group().count("\n")
        position = match.end()
    return tokens


@dataclass
class _Body:
    """What is collected while a function is read; names of nested scopes get a suffix."""

    scopes: list[dict[str, str]] = field(default_factory=lambda: [{}])
    registers: dict[str, str] = field(default_factory=dict[str, str])
    variables: list[Variable] = field(default_factory=list[Variable])
    code: list[Instruction] = field(default_factory=list[Instruction])
    labels: dict[str, int] = field(default_factory=dict[str, int])
    count: int = 0

    def declare(self, name: str, line: int) -> str:
        if name in self.scopes[-1]:
            refuse(line, f"{name} is declared twice")
        self.count += 1
        unique = name if len(self.scopes) == 1 else f"{name}#{self.count}"
        self.scopes[-1][name] = unique
        return unique

    def unique(self, name: str) -> str | None:
        return next((s[name] for s in reversed(self.scopes) if name in s), None)


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.body = _Body()

    # Tokens

    @property
    def line(self) -> int:
        return self.tokens[min(self.at, len(self.tokens) - 1)].line if self.tokens else 1

    def peek(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def next(self) -> _Token:
        if self.at >= len(self.tokens):
            refuse(self.line, "the text ends inside a declaration or instruction")
        self.at += 1
        return self.tokens[self.at - 1]

    def accept(self, text: str) -> bool:
        if self.peek() != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            refuse(self.line, f"expected '{text}', found '{self.peek()}'")

    def name(self) -> str:
        token = self.next()
        if token.kind != "word":
            refuse(token.line, f"expected a name, found '{token.text}'")
        return token.text

    def integer(self) -> int:
        sign = -1 if self.accept("-") else 1
        token = self.next()
        if token.kind != "number":
            refuse(token.line, f"expected an integer, found '{token.text}'")
        digits = token.text.rstrip("U")
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        try:
            return sign * int(digits, 8 if octal else 0)
        except ValueError:
            refuse(token.line, f"{token.text} is no number")

    def skip_line(self) -> None:
        line = self.line
        while self.at < len(self.tokens) and self.tokens[self.at].line == line:
            self.at += 1

    def skip_debugging(self) -> bool:
        """Read over a directive that says nothing about values."""
        word = self.peek()
        if word in (".loc", ".file"):
            self.skip_line()
        elif word == ".pragma":
            while self.next().text != ";":
                pass
        elif word == ".section":
            while self.next().text != "{":
                pass
            while self.next().text != "}":
                pass
        else:
            return False
        return True

    # Declarations

    def module(self) -> Module:
        version, target = "", ""
        variables: list[Variable] = []
        functions: dict[str, Function] = {}
        while self.at < len(self.tokens):
            if self.skip_debugging():
                continue
            word = self.peek()
            if word == ".version":
                self.next()
                version = self.next().text
            elif word == ".target":
                self.next()
                target = self.name()
                while self.accept(","):
                    self.name()
            elif word == ".address_size":
                self.next()
                if self.integer() != 64:
                    refuse(self.line, "only .address_size 64 is supported")
            else:
                self.definition(variables, functions)
        if not target:
            refuse(self.line, "the module has no .target")
        return Module(version, target, tuple(variables), functions)

    def definition(self, variables: list[Variable], functions: dict[str, Function]) -> None:
        external = False
        while self.peek() in (".visible", ".extern", ".weak", ".common"):
            external |= self.next().text == ".extern"
        word = self.peek()
        if word in (".entry", ".func"):
            function = self.function()
            if function is not None:
                functions[function.name] = function
        elif word[1:] in _SPACES:
            variables += self.variables(external)
            self.expect(";")
        else:
            refuse(self.line, f"unknown directive '{word}'")

    def variables(self, external: bool = False) -> list[Variable]:
        """`.space [.align n] .type name[n] [= init], …`, up to the semicolon."""
        space = self.next().text[1:]
        align, kind, lanes = 0, "", 1
        while self.tokens[self.at].kind == "directive":
            word = self.next().text[1:]
            if word == "align":
                align = self.integer()
            elif word in ("v2", "v4"):
                lanes = int(word[1])
            elif word in WIDTHS:
                kind = word
            elif word == "ptr":
                self.pointer_facts()
            elif word not in ("attribute", "managed"):
                refuse(self.line, f"unknown attribute '.{word}' of a variable")
        if not kind:
            refuse(self.line, "a variable has no type")
        result: list[Variable] = []
        while True:
            result.append(self.variable(space, align, kind, lanes, external))
            if not self.accept(",") or self.tokens[self.at].kind == "directive":
                return result

    def pointer_facts(self) -> None:
        if self.peek()[1:] in _SPACES:
            self.next()
        if self.accept(".align"):
            self.integer()

    def variable(self, space: str, align: int, kind: str, lanes: int, external: bool) -> Variable:
        line, name = self.line, self.name()
        width, count = WIDTHS[kind] * lanes, 1
        while self.accept("["):
            count *= 0 if self.peek() == "]" else self.integer()
            self.expect("]")
        data = None
        if self.accept("="):
            data = self.initializer(kind).ljust(width * count, b"\0")
            count = max(count, len(data) // width)
        elif external and count and space != "shared":
            refuse(line, f"{name} is defined in another module")
        elif space in ("global", "const"):
            data = b"\0" * (width * count)
        return Variable(name, space, align or width, width * count, data, line)

    def initializer(self, kind: str) -> bytes:
        if self.accept("{"):
            data = b""
            while not self.accept("}"):
                data += self.initializer(kind)
                self.accept(",")
            return data
        line, value, width = self.line, self.operand(), WIDTHS[kind]
        if not isinstance(value, Immediate):
            refuse(line, "an initializer that is no number is not supported")
        number = value.value
        if value.float_bits == 32 and kind == "f64":
            number = struct.unpack("<f", struct.pack("<I", number))[0]
        if isinstance(number, float):
            return struct.pack("<f" if width == 4 else "<d", number)
        return (number & ((1 << 8 * width) - 1)).to_bytes(width, "little")

    def function(self) -> Function | None:
        is_entry = self.next().text == ".entry"
        results = self.parameters() if self.peek() == "(" else ()
        name = self.name()
        parameters = self.parameters() if self.peek() == "(" else ()
        block, exact = None, False
        while self.tokens[self.at].kind == "directive":
            if self.skip_debugging():
                continue
            word = self.next().text
            if word in (".maxntid", ".reqntid"):
                sizes = [self.integer()]
                while self.accept(","):
                    sizes.append(self.integer())
                x, y, z = (*sizes, 1, 1)[:3]
                block, exact = (x, y, z), word == ".reqntid"
            elif word in (".minnctapersm", ".maxnreg", ".maxclusterrank"):
                self.integer()
            elif word != ".noreturn":
                refuse(self.line, f"unknown directive '{word}' of a function")
        if self.accept(";"):
            return None
        self.body = body = _Body()
        for parameter in (*results, *parameters):
            body.declare(parameter.name, parameter.line)
        self.expect("{")
        self.block()
        return Function(
            name,
            is_entry,
            parameters,
            results,
            body.registers,
            tuple(body.variables),
            tuple(body.code),
            body.labels,
            block,
            exact,
        )

    def parameters(self) -> tuple[Variable, ...]:
        self.expect("(")
        found: list[Variable] = []
        while not self.accept(")"):
            if self.peek() != ".param":
                refuse(self.line, f"unknown parameter space '{self.peek()}'")
            found += self.variables()
        return tuple(found)

    # Bodies

    def block(self) -> None:
        """Statements up to the closing brace, which is consumed."""
        body = self.body
        while not self.accept("}"):
            if self.skip_debugging():
                continue
            token = self.tokens[self.at] if self.at < len(self.tokens) else self.next()
            following = self.tokens[self.at + 1].text if self.at + 1 < len(self.tokens) else ""
            if self.accept("{"):
                body.scopes.append({})
                self.block()
                body.scopes.pop()
            elif token.text == ".reg":
                self.next()
                self.register_declaration()
            elif token.kind == "directive":
                if token.text[1:] not in _SPACES:
                    refuse(token.line, f"unknown directive '{token.text}'")
                for variable in self.variables():
                    unique = body.declare(variable.name, variable.line)
                    body.variables.append(replace(variable, name=unique))
                self.expect(";")
            elif token.kind == "word" and following == ":":
                self.at += 2
                body.labels[self.label(token)] = len(body.code)
            else:
                self.instruction()

    def label(self, token: _Token) -> str:
        known = self.body.unique(token.text)
        if known in self.body.labels:
            refuse(token.line, f"the label {token.text} is defined twice")
        return token.text

    def register_declaration(self) -> None:
        kind = self.next().text[1:]
        if kind != "pred" and kind not in WIDTHS:
            refuse(self.line, f"unknown register type '.{kind}'")
        while True:
            line, name = self.line, self.name()
            names = [name]
            if self.accept("<"):
                count = self.integer()
                self.expect(">")
                if count > _MAX_REGISTERS:
                    refuse(line, f"{count} registers are too many")
                names = [f"{name}{i}" for i in range(count)]
            for each in names:
                self.body.registers[self.body.declare(each, line)] = kind
            if not self.accept(","):
                break
        self.expect(";")

    def instruction(self) -> None:
        start, line, guard = self.at, self.line, None
        if self.accept("@"):
            negated = self.accept("!")
            guard = self.named(self.name(), line)
            if not isinstance(guard, Register):
                refuse(line, "a guard is no register")
            guard = Register(guard.name, negated)
        opcode = self.name()
        operands: list[Operand] = []
        while not self.accept(";"):
            operands.append(self.operand())
            if self.peek() != ";":
                self.expect(",")
        text = _written(self.tokens[start : self.at])
        self.body.code.append(
            Instruction(tuple(opcode.split(".")), tuple(operands), guard, line, text)
        )

    def operand(self) -> Operand:
        token = self.next()
        if token.text == "[":
            return self.address()
        if token.text in "{(":
            items: list[Operand] = []
            while not self.accept("}" if token.text == "{" else ")"):
                items.append(self.operand())
                self.accept(",")
            return Vector(tuple(items))
        if token.text == "!":
            inner = self.named(self.name(), token.line)
            if not isinstance(inner, Register):
                refuse(token.line, "only a predicate can be negated")
            return Register(inner.name, True)
        if token.kind == "word":
            first = self.named(token.text, token.line)
            if self.accept("|"):
                return Vector((first, self.named(self.name(), token.line)))
            if isinstance(first, Symbol) and self.peek() in ("+", "-"):
                return Symbol(first.name, self.offset())
            return first
        self.at -= 1
        return self.number()

    def number(self) -> Immediate:
        if self.peek() == "-" and self.tokens[self.at + 1].kind == "real":
            self.next()
            return Immediate(-float(self.next().text))
        token = self.tokens[self.at]
        if token.kind == "real":
            return Immediate(float(self.next().text))
        if token.kind == "bits":
            self.next()
            return Immediate(int(token.text[2:], 16), 32 if token.text[1] in "fF" else 64)
        return Immediate(self.integer())

    def offset(self) -> int:
        if self.peek() == "-":
            return self.integer()
        return self.integer() if self.accept("+") else 0

    def address(self) -> Address:
        line = self.line
        base = self.operand() if self.tokens[self.at].kind == "word" else Immediate(self.integer())
        offset = self.offset()
        self.expect("]")
        if isinstance(base, Symbol):
            return Address(Symbol(base.name), base.offset + offset)
        if not isinstance(base, Register | Immediate):
            refuse(line, "unknown form of address")
        return Address(base, offset)

    def named(self, name: str, line: int) -> Register | Symbol:
        unique = self.body.unique(name)
        if unique in self.body.registers:
            return Register(unique)
        if unique is None and (name.startswith("%") or name in ("_", "WARP_SZ")):
            return Register(name)
        return Symbol(unique or name)


def _written(tokens: list[_Token]) -> str:
    text = " ".join(token.text for token in tokens)
    for mark, short in (
        ("[ ", "["),
        (" ]", "]"),
        ("{ ", "{"),
        (" }", "}"),
        (" ,", ","),
        (" ;", ";"),
    ):
        text = text.replace(mark, short)
    return text.replace("@ ", "@").replace("! ", "!").replace(" + ", "+").replace(" | ", "|")
