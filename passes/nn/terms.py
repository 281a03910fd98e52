"""Expressions of scalars and one value: how the fusing passes recognise a function however it is written."""

import math

from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.rewrite import OpT, Rewriter, has_one_use, maker, no_match, producer
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.binary import Add, Div, Mul, Pow, Sub
from xcompile.dialects.nn.unary import Neg
from xcompile.passes.common.constants import number_of

TOLERANCE = 1e-3
"""How far, relatively, constants may be off: exporters write √2 as 1.4142 or round it to half precision."""

Polynomial = dict[int, float]
"""Coefficients by power, none of them 0."""

_MOST_DEPTH = 12
_MOST_DEGREE = 4


def close(number: float | None, wanted: float) -> bool:
    """Whether a constant is the wanted number up to the tolerance."""
    return number is not None and math.isclose(number, wanted, rel_tol=TOLERANCE)


def same_polynomial(found: Polynomial | None, wanted: Polynomial) -> bool:
    """Whether two polynomials have the same coefficients up to the tolerance."""
    return (
        found is not None
        and found.keys() == wanted.keys()
        and all(close(found[power], wanted[power]) for power in wanted)
    )


def require_wide(op: Op) -> None:
    """Leave the pattern for 16-bit floats: the parts of the model's expression are rounded to 16 bits one by one."""
    if dtype_of(op.results[0]) not in ("f32", "f64"):
        no_match(f"the parts are rounded to {dtype_of(op.results[0])} one by one")


def factors(rewriter: Rewriter, op: Mul | Div) -> tuple[float, list[Value]]:
    """What a product is made of: the product of its constants, and its other factors.

    Products, and quotients by constants, that only this one uses are looked into.
    """
    number, rest = 1.0, list[Value]()
    pending: list[tuple[Value, int]] = [(op.results[0], 0)]
    while pending:
        value, depth = pending.pop(0)
        constant, inner = number_of(rewriter, value), maker(value)
        open_ = depth == 0 or (depth < _MOST_DEPTH and has_one_use(value))
        if constant is not None:
            number *= constant
        elif isinstance(inner, Mul) and open_:
            pending += [(v, depth + 1) for v in inner.operands]
        elif isinstance(inner, Div) and open_ and number_of(rewriter, inner.b):
            number /= number_of(rewriter, inner.b) or 1.0
            pending.append((inner.a, depth + 1))
        else:
            rest.append(value)
    return number, rest


def other_factor(rest: list[Value], kind: type[OpT], what: str) -> tuple[Value, OpT]:
    """Of two factors the one that is made by a `kind` for this product alone, and the other one."""
    if len(rest) != 2:
        no_match("it is not a product of two values")
    for x, value in (rest, rest[::-1]):
        found = producer(value, kind)
        if found is not None and has_one_use(value):
            return x, found
    return no_match(what)


def polynomial(rewriter: Rewriter, value: Value, x: Value, depth: int = 0) -> Polynomial | None:
    """The polynomial of `x` that `value` is; None when it is something else or of a degree over 4."""
    if value == x:
        return {1: 1.0}
    constant = number_of(rewriter, value)
    if constant is not None:
        return {0: constant} if constant else {}
    op = maker(value)
    if depth > _MOST_DEPTH or op is None:
        return None
    if isinstance(op, Neg):
        return _scaled(polynomial(rewriter, op.x, x, depth + 1), -1.0)
    if isinstance(op, Pow):
        return _power(rewriter, op, x, depth)
    if not isinstance(op, Add | Sub | Mul | Div):
        return None
    a = polynomial(rewriter, op.a, x, depth + 1)
    b = None if a is None else polynomial(rewriter, op.b, x, depth + 1)
    if a is None or b is None:
        return None
    if isinstance(op, Mul):
        return _times(a, b)
    if isinstance(op, Div):
        return _scaled(a, 1 / b[0]) if b.keys() == {0} else None
    return _plus(a, b if isinstance(op, Add) else _scaled(b, -1.0))


def _power(rewriter: Rewriter, op: Pow, x: Value, depth: int) -> Polynomial | None:
    base, exponent = polynomial(rewriter, op.a, x, depth + 1), number_of(rewriter, op.b)
    if base is None or exponent not in (1, 2, 3, 4):
        return None
    result: Polynomial | None = base
    for _ in range(int(exponent) - 1):
        result = None if result is None else _times(result, base)
    return result


def _scaled(a: Polynomial | None, factor: float) -> Polynomial | None:
    return None if a is None else {power: c * factor for power, c in a.items()}


def _plus(a: Polynomial, b: Polynomial | None) -> Polynomial | None:
    if b is None:
        return None
    total = {power: a.get(power, 0.0) + b.get(power, 0.0) for power in sorted({*a, *b})}
    return {power: c for power, c in total.items() if c}


def _times(a: Polynomial, b: Polynomial) -> Polynomial | None:
    result: Polynomial = {}
    for power_a, c_a in a.items():
        for power_b, c_b in b.items():
            result[power_a + power_b] = result.get(power_a + power_b, 0.0) + c_a * c_b
    return result if max(result, default=0) <= _MOST_DEGREE else None
