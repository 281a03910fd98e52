"""Sizes as values: integers, symbols, and expressions of them in canonical form.

A `Dim` is an `int` or an `Expr`. An `Expr` is a polynomial with integer coefficients over *atoms*:
symbols and calls of `floordiv`, `min`, `max` and `broadcast`. Terms and factors are sorted and
simplifications are applied as an expression is made, so sizes that are equal by the rules below are
equal values with equal text, and one that is constant is a plain `int`. Symbols are sizes: integers
that are at least 0. Divisors are positive where they depend on symbols; a quotient whose divisor is
zero has no value.

    n, m = symbol("n"), symbol("m")
    (2 * n + 4) // 2 == n + 2
    (n * m + 3 * n) // n == m + 3
    str(ceildiv(n, 8)) == "((n + 7)//8)"
    evaluate(ceildiv(n, 8), {"n": 17}) == 3
"""

from __future__ import annotations

import ast
import functools
import json
import keyword
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

TEXT_LIMIT = 1000
"""An expression whose text would be longer is refused with `DimTooComplexError`."""

_TERM_LIMIT = 256


class DimTooComplexError(ValueError):
    """The expression would outgrow `TEXT_LIMIT`."""


@dataclass(frozen=True)
class Symbol:
    """A size that is known when the model runs."""

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
    """

    __slots__ = ("_text", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
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
        for monomial, factor in _terms(other):
            total[monomial] = total.get(monomial, 0) + factor
        return _make(total)

    def __neg__(self) -> Dim:
        return _make({monomial: -factor for monomial, factor in self.terms})

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __rsub__(self, other: Dim) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        others = _terms(other)
        if len(self.terms) * len(others) > _TERM_LIMIT:
            raise DimTooComplexError("a size would need a polynomial of too many terms")
        total: dict[Monomial, int] = {}
        for left, factor in self.terms:
            for right, by in others:
                monomial = tuple(sorted(left + right, key=str))
                total[monomial] = total.get(monomial, 0) + factor * by
        return _make(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - floordiv(self, other) * other

    def __rmod__(self, other: Dim) -> Dim:
        return other - floordiv(other, self) * self


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


def ceildiv(a: Dim, b: Dim) -> Dim:
    """`a / b` rounded up; `b` is positive."""
    return floordiv(a + b - 1, b)


def floordiv(a: Dim, b: Dim) -> Dim:
    """`a / b` rounded down.

    Raises:
        ZeroDivisionError: `b` is the constant 0.
    """
    if isinstance(b, int):
        if isinstance(a, int):
            return a // b
        if b == 0:
            raise ZeroDivisionError("a size is divided by zero")
        return _divide_by_constant(-a, -b) if b < 0 else _divide_by_constant(a, b)
    return _divide_by_expression(a, b)


def minimum(*dims: Dim) -> Dim:
    """The least of one or more sizes."""
    return _extreme("min", dims)


def maximum(*dims: Dim) -> Dim:
    """The greatest of one or more sizes."""
    return _extreme("max", dims)


def broadcast_dims(a: Dim, b: Dim) -> Dim:
    """The size of an axis on which sizes `a` and `b` meet by the rule of numpy: equal, or one of them is 1.

    Two sizes that may still turn out either way give `broadcast(a, b)`, whose evaluation fails when neither
    holds. (`max` would be wrong for 0 and 1, which give 0.)

    Raises:
        ValueError: the sizes are constants that do not fit.
    """
    arguments: list[Dim] = []
    for dim in _flat("broadcast", (a, b)):
        if dim != 1 and dim not in arguments:
            arguments.append(dim)
    arguments = [d for d in arguments if not _is_cut(d, arguments)]
    constants = [d for d in arguments if isinstance(d, int)]
    if len(constants) > 1:
        raise ValueError(f"sizes {constants[0]} and {constants[1]} do not broadcast")
    fixed = constants or [d for d in arguments if bounds(d)[0] > 1]
    if fixed or not arguments:
        return fixed[0] if fixed else 1  # the others are 1 or equal to it
    return arguments[0] if len(arguments) == 1 else _call("broadcast", sorted(arguments, key=str))


def _is_cut(dim: Dim, others: Sequence[Dim]) -> bool:
    """Whether the size is `min(a, b, …)` with `a` among the others and the rest above 1: where it
    meets `a`, it is `a`.
    """
    atom = _lone_atom(dim)
    if not isinstance(atom, Call) or atom.function != "min":
        return False
    rest = [d for d in atom.arguments if d not in others]
    return len(rest) < len(atom.arguments) and all(bounds(d)[0] > 1 for d in rest)


def known_nonnegative(dim: Dim) -> bool:
    """Whether the size is seen to be at least 0 whatever the symbols are."""
    try:
        return _nonnegative(dim, _CASE_DEPTH)
    except DimTooComplexError:
        return False


def known_positive(dim: Dim) -> bool:
    """Whether the size is seen to be at least 1 whatever the symbols are."""
    return known_nonnegative(dim - 1)


_CASE_DEPTH = 3


def _nonnegative(dim: Dim, depth: int) -> bool:
    """Intervals first; then min, max and quotients are replaced by what bounds them in the whole sum."""
    if isinstance(dim, int) or bounds(dim)[0] >= 0:
        return isinstance(dim, Expr) or dim >= 0
    for monomial, factor in dim.terms if depth else ():
        if len(monomial) != 1 or not isinstance(monomial[0], Call):
            continue
        function, arguments = monomial[0].function, monomial[0].arguments
        rest = dim - _make({monomial: factor})
        if function in ("min", "max"):
            cases = (_nonnegative(rest + factor * a, depth - 1) for a in arguments)
            if any(cases) if (function == "max") == (factor > 0) else all(cases):
                return True
        elif function == "floordiv" and isinstance(arguments[1], int):
            over, under = arguments[0], arguments[1]
            least = over if factor < 0 else over - (under - 1)
            if _nonnegative(rest * under + factor * least, depth - 1):
                return True
    return False


# -- walking ----------------------------------------------------------------------------------------

T = TypeVar("T")


class Algebra(Protocol[T]):
    """What `fold` makes of the parts of a size."""

    def constant(self, value: int) -> T: ...

    def symbol(self, name: str) -> T: ...

    def add(self, a: T, b: T) -> T: ...

    def multiply(self, a: T, b: T) -> T: ...

    def call(self, function: str, arguments: Sequence[T]) -> T:
        """`function` is floordiv (two arguments), min, max or broadcast (two or more)."""
        ...


def fold(dim: Dim, algebra: Algebra[T]) -> T:
    """Compute a value of any kind (a number, code, text) from a size, bottom up."""
    if isinstance(dim, int):
        return algebra.constant(dim)
    terms = [_fold_term(monomial, factor, algebra) for monomial, factor in dim.terms]
    return functools.reduce(algebra.add, terms)


def _fold_term(monomial: Monomial, factor: int, algebra: Algebra[T]) -> T:
    parts = [algebra.constant(factor)] if factor != 1 or not monomial else []
    for atom in monomial:
        if isinstance(atom, Symbol):
            parts.append(algebra.symbol(atom.name))
        else:
            arguments = [fold(argument, algebra) for argument in atom.arguments]
            parts.append(algebra.call(atom.function, arguments))
    return functools.reduce(algebra.multiply, parts)


def evaluate(dim: Dim, env: Mapping[str, int]) -> int:
    """The integer that a size is when its symbols have the values of `env`.

    Raises:
        KeyError: a symbol has no value.
        ZeroDivisionError: a divisor is zero.
        ValueError: sizes that had to broadcast do not.
    """
    return fold(dim, _Evaluate(env))


def substitute(dim: Dim, mapping: Mapping[str, Dim]) -> Dim:
    """The size with each symbol in `mapping` replaced; the others stay."""
    return fold(dim, _Substitute(mapping))


def symbols_of(dim: Dim) -> tuple[str, ...]:
    """The names of the symbols in the size, each once, in the order of its text."""
    found: dict[str, None] = {}

    def visit(part: Dim) -> None:
        for monomial, _ in _terms(part):
            for atom in monomial:
                if isinstance(atom, Symbol):
                    found[atom.name] = None
                else:
                    for argument in atom.arguments:
                        visit(argument)

    visit(dim)
    return tuple(found)


def bounds(dim: Dim) -> tuple[float, float]:
    """Integers (or infinities) that the size lies between, for any values of its symbols."""
    return (dim, dim) if isinstance(dim, int) else fold(dim, _Bounds())


@dataclass(frozen=True)
class _Evaluate:
    env: Mapping[str, int]

    def constant(self, value: int) -> int:
        return value

    def symbol(self, name: str) -> int:
        return self.env[name]

    def add(self, a: int, b: int) -> int:
        return a + b

    def multiply(self, a: int, b: int) -> int:
        return a * b

    def call(self, function: str, arguments: Sequence[int]) -> int:
        if function == "floordiv":
            return arguments[0] // arguments[1]
        if function == "broadcast":
            sizes = sorted({a for a in arguments if a != 1})
            if len(sizes) > 1:
                raise ValueError(f"sizes {sizes[0]} and {sizes[1]} do not broadcast")
            return sizes[0] if sizes else 1
        return min(arguments) if function == "min" else max(arguments)


@dataclass(frozen=True)
class _Substitute:
    mapping: Mapping[str, Dim]

    def constant(self, value: int) -> Dim:
        return value

    def symbol(self, name: str) -> Dim:
        found = self.mapping.get(name)
        return symbol(name) if found is None else found

    def add(self, a: Dim, b: Dim) -> Dim:
        return a + b

    def multiply(self, a: Dim, b: Dim) -> Dim:
        return a * b

    def call(self, function: str, arguments: Sequence[Dim]) -> Dim:
        return _apply(function, arguments)


Interval = tuple[float, float]


class _Bounds:
    def constant(self, value: int) -> Interval:
        return (value, value)

    def symbol(self, name: str) -> Interval:
        return (0, math.inf)

    def add(self, a: Interval, b: Interval) -> Interval:
        return (a[0] + b[0], a[1] + b[1])

    def multiply(self, a: Interval, b: Interval) -> Interval:
        ends = [0 if x == 0 or y == 0 else x * y for x in a for y in b]
        return (min(ends), max(ends))

    def call(self, function: str, arguments: Sequence[Interval]) -> Interval:
        lows, highs = [a[0] for a in arguments], [a[1] for a in arguments]
        if function == "min":
            return (min(lows), min(highs))
        if function == "max":
            return (max(lows), max(highs))
        if function == "broadcast":
            return (min(lows), max(highs))
        least = max(lows[1], 1)  # a divisor of value 0 gives no value at all
        if lows[1] < 0:
            return (-math.inf, math.inf)
        ends = [_floor(x, y) for x in (lows[0], highs[0]) for y in (least, max(highs[1], 1))]
        return (min(ends), max(ends))


def _floor(a: float, b: float) -> float:
    if math.isinf(a):
        return a
    if math.isinf(b):
        return 0 if a >= 0 else -1
    return a // b


# -- canonical form ---------------------------------------------------------------------------------


def _order(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    """Graded lexicographic: a monomial order, so that polynomial division comes to an end."""
    return (-len(monomial), tuple(map(str, monomial)))


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, int):
        return (((), dim),) if dim else ()
    return dim.terms


def _make(terms: Mapping[Monomial, int]) -> Dim:
    kept = [(monomial, factor) for monomial, factor in terms.items() if factor]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Expr(tuple(sorted(kept, key=lambda term: _order(term[0]))))


def _call(function: str, arguments: Sequence[Dim]) -> Expr:
    return Expr((((Call(function, tuple(arguments)),), 1),))


def _apply(function: str, arguments: Sequence[Dim]) -> Dim:
    if function == "floordiv":
        return floordiv(*arguments)
    if function == "broadcast":
        total = arguments[0]
        for argument in arguments[1:]:
            total = broadcast_dims(total, argument)
        return total
    return _extreme(function, arguments)


def _flat(function: str, dims: Sequence[Dim]) -> list[Dim]:
    """The arguments with nested calls of the same function opened."""
    found: list[Dim] = []
    for dim in dims:
        atom = _lone_atom(dim)
        nested = isinstance(atom, Call) and atom.function == function
        found += atom.arguments if nested and isinstance(atom, Call) else [dim]
    return found


def _lone_atom(dim: Dim) -> Atom | None:
    terms = _terms(dim)
    alone = len(terms) == 1 and terms[0][1] == 1 and len(terms[0][0]) == 1
    return terms[0][0][0] if alone else None


def _extreme(function: str, dims: Sequence[Dim]) -> Dim:
    sign = 1 if function == "min" else -1
    kept: list[Dim] = []
    for dim in sorted(_flat(function, dims), key=str):
        if any(known_nonnegative(sign * (dim - other)) for other in kept):
            continue
        kept = [other for other in kept if not known_nonnegative(sign * (other - dim))] + [dim]
    return kept[0] if len(kept) == 1 else _call(function, sorted(kept, key=str))


def _divide_by_constant(a: Dim, c: int) -> Dim:
    """`a // c` for c > 0: whole multiples move out, common factors cancel, nested quotients merge."""
    whole = _make({monomial: factor // c for monomial, factor in _terms(a)})
    rest = _make({monomial: factor % c for monomial, factor in _terms(a)})
    if isinstance(rest, int):
        return whole
    common = math.gcd(c, *(factor for monomial, factor in rest.terms if monomial))
    if common > 1:
        reduced = _make({monomial: factor // common for monomial, factor in rest.terms})
        return whole + floordiv(reduced, c // common)
    low, high = bounds(rest)
    if low >= 0 and high < c:
        return whole
    merged = _merge_quotient(rest, c)
    return whole + (_call("floordiv", (rest, c)) if merged is None else merged)


def _divide_by_expression(a: Dim, b: Expr) -> Dim:
    whole, rest = _polynomial_division(a, b)
    if rest == 0:
        return whole
    if len(b.terms) > 1:
        whole, rest = 0, a
    if rest == -1 and bounds(b)[0] >= 0:
        return whole - 1
    monomial, factor = _common_factor([*_terms(rest), *b.terms])
    if monomial or factor > 1:
        over, under = (_cancel(d, monomial, factor) for d in (rest, b))
        return whole + floordiv(over, under)
    merged = _merge_quotient(rest, b) if isinstance(rest, Expr) else None
    return whole + (_call("floordiv", (rest, b)) if merged is None else merged)


def _merge_quotient(a: Expr, b: Dim) -> Dim | None:
    """`(x//d + r) // b` as `(x + r*d) // (d*b)` when there is one such quotient and the divisors are positive."""
    found = [
        (monomial, monomial[0].arguments)
        for monomial, factor in a.terms
        if len(monomial) == 1 and factor == 1
        if isinstance(monomial[0], Call) and monomial[0].function == "floordiv"
    ]
    if len(found) != 1 or not known_nonnegative(b):
        return None
    monomial, (over, under) = found[0]
    if not known_nonnegative(under):
        return None
    rest = _make({m: f for m, f in a.terms if m != monomial})
    return floordiv(over + rest * under, under * b)


def _polynomial_division(a: Dim, b: Expr) -> tuple[Dim, Dim]:
    """Quotient and remainder with `a = quotient * b + remainder`."""
    (lead, by), quotient, remainder = b.terms[0], 0, 0
    while a != 0:
        monomial, factor = _terms(a)[0]
        left = _without(monomial, lead)
        if left is None or factor % by:
            term = _make({monomial: factor})
            remainder, a = remainder + term, a - term
        else:
            term = _make({left: factor // by})
            quotient, a = quotient + term, a - term * b
    return quotient, remainder


def _without(monomial: Monomial, factor: Monomial) -> Monomial | None:
    """The monomial divided by another, or None when it is no multiple of it."""
    left = list(monomial)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _common_factor(terms: Sequence[tuple[Monomial, int]]) -> tuple[Monomial, int]:
    shared = list(terms[0][0])
    for monomial, _ in terms[1:]:
        left = list(monomial)
        shared = [atom for atom in shared if atom in left and not left.remove(atom)]
    return tuple(shared), math.gcd(*(factor for _, factor in terms))


def _cancel(dim: Dim, monomial: Monomial, factor: int) -> Dim:
    return _make({_without(m, monomial) or (): f // factor for m, f in _terms(dim)})


# -- text -------------------------------------------------------------------------------------------


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
    "broadcast": lambda *dims: _apply("broadcast", dims),
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


def _term_text(monomial: Monomial, factor: int) -> str:
    names = "*".join(map(str, monomial))
    if not monomial:
        return str(factor)
    return names if factor == 1 else f"{factor}*{names}"


def _parenthesised(dim: Dim) -> str:
    simple = _lone_atom(dim) is not None or (isinstance(dim, int) and dim >= 0)
    return str(dim) if simple else f"({dim})"
