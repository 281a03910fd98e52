"""Reductions in patterns: their axes, and what is divided by a root of a mean."""

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.rewrite import Rewriter, has_one_use, maker, no_match, producer
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.binary import Add, Div, Mul, Pow
from xcompile.dialects.nn.reduce import Reduce
from xcompile.dialects.nn.unary import Reciprocal, Rsqrt, Sqrt
from xcompile.passes.common.constants import number_of
from xcompile.passes.common.shapes import shapes


def axes_of(rewriter: Rewriter, op: Reduce) -> tuple[int, ...]:
    """The reduced axes, ascending, of a reduction that keeps them; leaves the pattern for others."""
    if not op.keepdims:
        no_match("a reduction removes its axes")
    if op.dynamic_axes is None:
        return op.axes
    content = rewriter.analysis(shapes).content(op.dynamic_axes)
    if not content or not all(isinstance(a, int) for a in content):
        no_match("the axes of a reduction are not known")
    rank = rank_of(op.x)
    return tuple(sorted({a % rank for a in content if isinstance(a, int)}))


def check_trailing(axes: tuple[int, ...], rank: int) -> int:
    """The first of axes that are the last ones; leaves the pattern for others."""
    if not axes or axes != tuple(range(axes[0], rank)):
        no_match("the reduced axes are not the last ones")
    return axes[0]


def over_root(rewriter: Rewriter, op: Div | Mul) -> tuple[Value, Value]:
    """`(x, v)` of `x / √v`, however it is written; the root must have no other users."""
    if isinstance(op, Div):
        return op.a, _root_of(rewriter, op.b)
    for x, factor in ((op.a, op.b), (op.b, op.a)):
        found = maker(factor)
        if found is None or not has_one_use(factor):
            continue
        if isinstance(found, Rsqrt):
            return x, found.x
        if isinstance(found, Reciprocal):
            return x, _root_of(rewriter, found.x)
        if isinstance(found, Pow) and number_of(rewriter, found.b) == -0.5:
            return x, found.a
        if isinstance(found, Div) and number_of(rewriter, found.a) == 1:
            return x, _root_of(rewriter, found.b)
    return no_match("no factor is one over a root")


def _root_of(rewriter: Rewriter, value: Value) -> Value:
    found = maker(value)
    if not has_one_use(value):
        no_match("the root has other users")
    if isinstance(found, Sqrt):
        return found.x
    if isinstance(found, Pow) and number_of(rewriter, found.b) == 0.5:
        return found.a
    return no_match("the divisor is no root")


def plus_epsilon(rewriter: Rewriter, value: Value) -> tuple[Value, float]:
    """`(v, epsilon)` of `v + epsilon`, of which only this pattern knows."""
    total = producer(value, Add)
    if total is None or not has_one_use(value):
        no_match("what is under the root is no sum of its own")
    for v, c in ((total.a, total.b), (total.b, total.a)):
        epsilon = number_of(rewriter, c)
        if epsilon is not None and 0 <= epsilon < 1:
            return v, epsilon
    return no_match("no epsilon is added")


def square_of(rewriter: Rewriter, value: Value) -> Value:
    """`x` of `x·x` or `x²`."""
    found = maker(value)
    if isinstance(found, Mul) and found.a == found.b:
        return found.a
    if isinstance(found, Pow) and number_of(rewriter, found.b) == 2:
        return found.a
    return no_match("what is averaged is no square")
