"""Sizes as values: integers, symbols, and expressions of them in canonical form.

A `Dim` is an `int` or an `Expr`. An `Expr` is a polynomial with integer coefficients over *atoms*:
symbols and calls of `floordiv`, `min`, `max` and `broadcast`. Terms and factors are sorted and
simplifications are applied as an expression is made, so sizes that are equal by the rules below are
equal values with equal text, and one that is constant is a plain `int`. Symbols are sizes: integers
that are at least 0, except those whose name begins with `SIGNED`. Divisors are positive where they
depend on symbols; a quotient whose divisor is zero has no value.

    n, m = symbol("n"), symbol("m")
    (2 * n + 4) // 2 == n + 2
    (n * m + 3 * n) // n == m + 3
    str(ceildiv(n, 8)) == "((n + 7)//8)"
    evaluate(ceildiv(n, 8), {"n": 17}) == 3
"""

from xcompile.compiler.support.dims.expr import (
    SIGNED,
    TEXT_LIMIT,
    Atom,
    Call,
    Dim,
    DimTooComplexError,
    Expr,
    Monomial,
    Symbol,
    product,
    symbol,
)
from xcompile.compiler.support.dims.functions import (
    broadcast_dims,
    ceildiv,
    floordiv,
    maximum,
    minimum,
    substitute,
)
from xcompile.compiler.support.dims.text import parse
from xcompile.compiler.support.dims.walk import (
    Algebra,
    bounds,
    estimate,
    evaluate,
    fold,
    has_signed,
    known_nonnegative,
    known_positive,
    symbols_of,
)

__all__ = [
    "SIGNED",
    "TEXT_LIMIT",
    "Algebra",
    "Atom",
    "Call",
    "Dim",
    "DimTooComplexError",
    "Expr",
    "Monomial",
    "Symbol",
    "bounds",
    "broadcast_dims",
    "ceildiv",
    "estimate",
    "evaluate",
    "floordiv",
    "fold",
    "has_signed",
    "known_nonnegative",
    "known_positive",
    "maximum",
    "minimum",
    "parse",
    "product",
    "substitute",
    "symbol",
    "symbols_of",
]
