"""Functions of sizes that simplify as they are made: quotients, min, max, broadcast; substitution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.support.dims.expr import (
    Call,
    Dim,
    Expr,
    Monomial,
    call,
    lone_atom,
    polynomial,
    symbol,
    terms_of,
)
from xcompile.compiler.support.dims.walk import bounds, fold, known_nonnegative


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
    if a == b or b == 1:
        return a
    if a == 1:
        return b
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
    return arguments[0] if len(arguments) == 1 else call("broadcast", sorted(arguments, key=str))


def _is_cut(dim: Dim, others: Sequence[Dim]) -> bool:
    """Whether the size is `min(a, b, …)` with `a` among the others and the rest above 1: where it
    meets `a`, it is `a`.
    """
    atom = lone_atom(dim)
    if not isinstance(atom, Call) or atom.function != "min":
        return False
    rest = [d for d in atom.arguments if d not in others]
    return len(rest) < len(atom.arguments) and all(bounds(d)[0] > 1 for d in rest)


def apply(function: str, arguments: Sequence[Dim]) -> Dim:
    """Call a function by its name in `Call.function`."""
    if function == "floordiv":
        return floordiv(*arguments)
    if function == "broadcast":
        total = arguments[0]
        for argument in arguments[1:]:
            total = broadcast_dims(total, argument)
        return total
    return _extreme(function, arguments)


def substitute(dim: Dim, mapping: Mapping[str, Dim]) -> Dim:
    """The size with each symbol in `mapping` replaced; the others stay."""
    return fold(dim, _Substitute(mapping))


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
        return apply(function, arguments)


def _flat(function: str, dims: Sequence[Dim]) -> list[Dim]:
    """The arguments with nested calls of the same function opened."""
    found: list[Dim] = []
    for dim in dims:
        atom = lone_atom(dim)
        nested = isinstance(atom, Call) and atom.function == function
        found += atom.arguments if nested and isinstance(atom, Call) else [dim]
    return found


def _extreme(function: str, dims: Sequence[Dim]) -> Dim:
    sign = 1 if function == "min" else -1
    kept: list[Dim] = []
    for dim in sorted(_flat(function, dims), key=str):
        if any(known_nonnegative(sign * (dim - other)) for other in kept):
            continue
        kept = [other for other in kept if not known_nonnegative(sign * (other - dim))] + [dim]
    return kept[0] if len(kept) == 1 else call(function, sorted(kept, key=str))


def _divide_by_constant(a: Dim, c: int) -> Dim:
    """`a // c` for c > 0: whole multiples move out, common factors cancel, nested quotients merge."""
    whole = polynomial({monomial: factor // c for monomial, factor in terms_of(a)})
    rest = polynomial({monomial: factor % c for monomial, factor in terms_of(a)})
    if isinstance(rest, int):
        return whole
    common = math.gcd(c, *(factor for monomial, factor in rest.terms if monomial))
    if common > 1:
        reduced = polynomial({monomial: factor // common for monomial, factor in rest.terms})
        return whole + floordiv(reduced, c // common)
    low, high = bounds(rest)
    if low >= 0 and high < c:
        return whole
    merged = _merge_quotient(rest, c)
    return whole + (call("floordiv", (rest, c)) if merged is None else merged)


def _divide_by_expression(a: Dim, b: Expr) -> Dim:
    whole, rest = _polynomial_division(a, b)
    if rest == 0:
        return whole
    if len(b.terms) > 1:
        whole, rest = 0, a
    if rest == -1 and bounds(b)[0] >= 0:
        return whole - 1
    monomial, factor = _common_factor([*terms_of(rest), *b.terms])
    if monomial or factor > 1:
        over, under = (_cancel(d, monomial, factor) for d in (rest, b))
        return whole + floordiv(over, under)
    merged = _merge_quotient(rest, b) if isinstance(rest, Expr) else None
    return whole + (call("floordiv", (rest, b)) if merged is None else merged)


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
    rest = polynomial({m: f for m, f in a.terms if m != monomial})
    return floordiv(over + rest * under, under * b)


def _polynomial_division(a: Dim, b: Expr) -> tuple[Dim, Dim]:
    """Quotient and remainder with `a = quotient * b + remainder`."""
    (lead, by), quotient, remainder = b.terms[0], 0, 0
    while a != 0:
        monomial, factor = terms_of(a)[0]
        left = _without(monomial, lead)
        if left is None or factor % by:
            term = polynomial({monomial: factor})
            remainder, a = remainder + term, a - term
        else:
            term = polynomial({left: factor // by})
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
    return polynomial({_without(m, monomial) or (): f // factor for m, f in terms_of(dim)})
