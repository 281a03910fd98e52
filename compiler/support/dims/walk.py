"""Computing from a size: any value bottom up, its integer, its symbols, its bounds."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from xcompile.compiler.support.dims.expr import (
    SIGNED,
    Call,
    Dim,
    DimTooComplexError,
    Expr,
    Monomial,
    Symbol,
    polynomial,
    terms_of,
)

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


def estimate(dim: Dim, env: Mapping[str, int]) -> int:
    """As `evaluate`, for values that no check has seen: what does not fit gives some size instead of an error.

    Raises:
        KeyError: a symbol has no value.
    """
    return fold(dim, _Estimate(env))


def symbols_of(dim: Dim) -> tuple[str, ...]:
    """The names of the symbols in the size, each once, in the order of its text."""
    found: dict[str, None] = {}

    def visit(part: Dim) -> None:
        for monomial, _ in terms_of(part):
            for atom in monomial:
                if isinstance(atom, Symbol):
                    found[atom.name] = None
                else:
                    for argument in atom.arguments:
                        visit(argument)

    visit(dim)
    return tuple(found)


def has_signed(dim: Dim) -> bool:
    """Whether a symbol of the size may be negative."""
    return any(name.startswith(SIGNED) for name in symbols_of(dim))


def bounds(dim: Dim) -> tuple[float, float]:
    """Integers (or infinities) that the size lies between, for any values of its symbols."""
    return (dim, dim) if isinstance(dim, int) else fold(dim, _Bounds())


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
        rest = dim - polynomial({monomial: factor})
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


class _Estimate(_Evaluate):
    def call(self, function: str, arguments: Sequence[int]) -> int:
        if function == "broadcast":
            return max(arguments)
        if function == "floordiv" and arguments[1] == 0:
            return arguments[0]
        return super().call(function, arguments)


Interval = tuple[float, float]


class _Bounds:
    def constant(self, value: int) -> Interval:
        return (value, value)

    def symbol(self, name: str) -> Interval:
        return (-math.inf if name.startswith(SIGNED) else 0, math.inf)

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
