"""Einsum equations: ONNX's text to the explicit form without ellipses."""

import string
from collections.abc import Sequence
from dataclasses import dataclass

from xcompile.compiler.support.errors import CompileError

_MAX_TEXT = 1000


@dataclass(frozen=True)
class Equation:
    """Labels of each operand and of the result, one letter an axis.

    Attributes:
        terms: the labels of each operand.
        output: the labels of the result.
    """

    terms: tuple[str, ...]
    output: str

    def __str__(self) -> str:
        return f"{','.join(self.terms)}->{self.output}"


def parse_equation(text: str, ranks: Sequence[int]) -> Equation:
    """The explicit form of an equation: output written out, ellipses replaced by letters of their own.

    Args:
        text: the equation, such as "...ij, ...jk" or "b i j -> b j i".
        ranks: the rank of each operand.

    Raises:
        CompileError: XC2003 for terms that do not fit the ranks, XC2007 for texts that are no equation.
    """
    if len(text) > _MAX_TEXT:
        raise CompileError("XC2007", f"the equation has {len(text)} characters")
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise CompileError(
            "XC2007", f"the equation '{text}' has {len(terms)} terms for {len(ranks)} operands"
        )
    for part in (*terms, right):
        letters = part.replace("...", "", 1)
        if letters and not (letters.isascii() and letters.isalpha()):
            raise CompileError("XC2007", f"the equation '{text}' cannot be understood")
    widths = [_width(term, rank, text) for term, rank in zip(terms, ranks, strict=True)]
    extra = max(widths, default=0)
    free = [c for c in string.ascii_letters if c not in text]
    if extra > len(free):
        raise CompileError("XC2007", f"the equation '{text}' has too many axes")
    dots = "".join(free[:extra])
    opened = tuple(t.replace("...", dots[extra - w :]) for t, w in zip(terms, widths, strict=True))
    if not arrow:
        every = "".join(terms).replace(".", "")
        right = ("..." if extra else "") + "".join(
            sorted(c for c in set(every) if every.count(c) == 1)
        )
    output = right.replace("...", dots)
    if len(set(output)) != len(output) or not set(output) <= set("".join(opened)):
        raise CompileError(
            "XC2007", f"the output of the equation '{text}' repeats a label or has a new one"
        )
    return Equation(opened, output)


def _width(term: str, rank: int, text: str) -> int:
    """The number of axes that a term's ellipsis stands for."""
    named = len(term.replace("...", ""))
    width = rank - named
    if width < 0 or (width > 0 and "..." not in term):
        raise CompileError(
            "XC2003", f"the term '{term}' of '{text}' names an operand of rank {rank}"
        )
    return width
