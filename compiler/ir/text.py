"""Modules as text: reading what people and tools wrote."""

import re

from torch_mlir import ir

from xcompile.compiler.ir.module import Module
from xcompile.compiler.support.errors import CompileError

MOST_NESTING = 256
"""Brackets that may be open at once: MLIR's parser recurses, and ends the process when the stack does."""

_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*"|->|[(\[{<]|[)\]}>]')
"""Brackets, after what only looks like some: names of nodes are strings."""

_PLACE = re.compile(r'loc\("-":(\d+):(\d+)')
"""A place in the text; the bindings do not give its numbers."""


def parse_module(text: str) -> Module:
    """The module of a text, verified by MLIR, in the current context.

    Raises:
        CompileError: XC2012 with line and column.
    """
    depth = 0
    for found in _BRACKET.finditer(text):
        if found[0] in "([{<":
            depth += 1
            if depth > MOST_NESTING:
                raise CompileError("XC2012", f"brackets are nested more than {MOST_NESTING} deep")
        elif found[0] in ")]}>":
            depth = max(depth - 1, 0)
    try:
        return Module(ir.Module.parse(text))
    except ir.MLIRError as error:
        first = next(iter(error.error_diagnostics), None)
        if first is None:
            raise CompileError("XC2012", str(error)) from None
        where = _PLACE.match(str(first.location))
        place = f"line {where[1]}, column {where[2]}: " if where else ""
        raise CompileError("XC2012", place + first.message) from None
