"""Reading sizes from text."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from xcompile.compiler.support.dims.expr import TEXT_LIMIT, Dim, symbol
from xcompile.compiler.support.dims.functions import apply, ceildiv, maximum, minimum


@lru_cache(maxsize=4096)
def parse(text: str) -> Dim:
    """The size that `str` wrote; also any sum, product, `//`, `%`, `min`, `max`, `ceildiv`, `broadcast` of sizes.

    A name that is no identifier is written in double quotes.

    Raises:
        ValueError: the text is no size.
    """
    try:
        if len(text) > 2 * TEXT_LIMIT:
            raise ValueError("too long")
        return _parse(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError, MemoryError) as error:
        raise ValueError(f"'{text[:80]}' is not a size: {error}") from error


_OPERATORS: dict[type, Callable[[Any, Any], Dim]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: operator.mod,
}


_FUNCTIONS: dict[str, Callable[..., Dim]] = {
    "min": minimum,
    "max": maximum,
    "ceildiv": ceildiv,
    "broadcast": lambda *dims: apply("broadcast", dims),
}


def _parse(node: ast.expr) -> Dim:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Constant(value=str(name)) | ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_parse(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_parse(left), _parse(right))
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_], keywords=[]) if name in _FUNCTIONS:
            if name == "ceildiv" and len(node.args) != 2:
                raise ValueError("ceildiv takes two sizes")
            return _FUNCTIONS[name](*map(_parse, node.args))
        case _:
            raise ValueError("it has a part that sizes do not have")
