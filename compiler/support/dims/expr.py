"""Expressions of sizes: polynomials over symbols and calls, sorted, with text."""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

TEXT_LIMIT = 4000
"""An expression whose text would be longer is refused with `DimTooComplexError`."""


SIGNED = "~"
"""What the names of symbols begin with that may be negative: numbers that are read from a tensor."""

_TERM_LIMIT = 1024
_DEPTH_LIMIT = 40


class DimTooComplexError(ValueError):
    """The expression would outgrow `TEXT_LIMIT`, or calls would be nested too deeply."""


@dataclass(frozen=True)
class Symbol:
    """A size that is known when the model runs; it may be negative when its name begins with `SIGNED`."""

    name: str

    def __str__(self) -> str:
        plain = (
            self.name.isascii() and self.name.isidentifier() and not keyword.iskeyword(self.name)
        )
        return self.name if plain else json.dumps(self.name, ensure_ascii=False)


@dataclass(frozen=True)
class Call:
    """A function that no polynomial can say: floordiv (two arguments), min, max, broadcast (two or more)."""

    function: str
    arguments: tuple[Dim, ...]

    def __str__(self) -> str:
        if self.function == "floordiv":
            return "({}//{})".format(*map(_parenthesised, self.arguments))
        return f"{self.function}({', '.join(map(str, self.arguments))})"


Atom = Symbol | Call


Monomial = tuple[Atom, ...]
"""A product of atoms, sorted by text; an atom stands once for each power."""


class Expr:
    """A size that is not constant; immutable, hashable, equal exactly when its text is equal.

    Attributes:
        terms: the polynomial, leading term first: pairs of a monomial and its coefficient.
        depth: how deeply calls are nested.
    """

    __slots__ = ("_text", "depth", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self.depth = max((_depth(atom) for monomial, _ in terms for atom in monomial), default=0)
        if self.depth > _DEPTH_LIMIT:
            raise DimTooComplexError(f"a size would need {self.depth} functions of one another")
        signs = ["-" if factor < 0 else "+" for _, factor in terms]
        texts = [
            f"{sign} {_term_text(m, abs(f))}" for sign, (m, f) in zip(signs, terms, strict=True)
        ]
        text = " ".join(texts)
        self._text = "-" + text[2:] if signs[0] == "-" else text[2:]
        if len(self._text) > TEXT_LIMIT:
            raise DimTooComplexError(
                f"a size would need an expression of {len(self._text)} characters"
            )

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Dim({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __add__(self, other: Dim) -> Dim:
        total = dict(self.terms)
        for monomial, factor in terms_of(other):
            total[monomial] = total.get(monomial, 0) + factor
        return polynomial(total)

    def __neg__(self) -> Dim:
        return polynomial({monomial: -factor for monomial, factor in self.terms})

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        others = terms_of(other)
        if len(self.terms) * len(others) > _TERM_LIMIT:
            raise DimTooComplexError("a size would need a polynomial of too many terms")
        total: dict[Monomial, int] = {}
        for left, factor in self.terms:
            for right, by in others:
                monomial = tuple(sorted(left + right, key=str))
                total[monomial] = total.get(monomial, 0) + factor * by
        return polynomial(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _quotient(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return _quotient(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - _quotient(self, other) * other

    def __rmod__(self, other: Dim) -> Dim:
        return other - _quotient(other, self) * self


Dim = int | Expr


def symbol(name: str) -> Expr:
    """The size called `name`; any text that is not empty is a name."""
    if not name:
        raise ValueError("a symbol needs a name")
    return Expr((((Symbol(name),), 1),))


def product(dims: Iterable[Dim]) -> Dim:
    """The product; 1 of none."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def _order(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    """Graded lexicographic: a monomial order, so that polynomial division comes to an end."""
    return (-len(monomial), tuple(map(str, monomial)))


def terms_of(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    """The polynomial of a size: pairs of a monomial and its coefficient, none for 0."""
    if isinstance(dim, int):
        return (((), dim),) if dim else ()
    return dim.terms


def polynomial(terms: Mapping[Monomial, int]) -> Dim:
    """The size that is the sum of these terms, those of coefficient 0 left out."""
    kept = [(monomial, factor) for monomial, factor in terms.items() if factor]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Expr(tuple(sorted(kept, key=lambda term: _order(term[0]))))


def call(function: str, arguments: Sequence[Dim]) -> Expr:
    """A call as a size, with no simplification."""
    return Expr((((Call(function, tuple(arguments)),), 1),))


def lone_atom(dim: Dim) -> Atom | None:
    """The atom that is the whole size, or None."""
    terms = terms_of(dim)
    alone = len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1
    return terms[0][0][0] if alone else None


def _depth(atom: Atom) -> int:
    if isinstance(atom, Symbol):
        return 0
    return 1 + max(0 if isinstance(d, int) else d.depth for d in atom.arguments)


def _term_text(monomial: Monomial, factor: int) -> str:
    names = "*".join(map(str, monomial))
    if not monomial:
        return str(factor)
    return names if factor == 1 else f"{factor}*{names}"


def _parenthesised(dim: Dim) -> str:
    simple = lone_atom(dim) is not None or (isinstance(dim, int) and dim >= 0)
    return str(dim) if simple else f"({dim})"


def _quotient(a: Dim, b: Dim) -> Dim:
    from xcompile.compiler.support.dims.functions import floordiv  # builds on this module

    return floordiv(a, b)
