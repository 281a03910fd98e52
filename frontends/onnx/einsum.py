"""Einsum equations as transposes, sums and matrix products."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.reduce import ReduceSum
from xcompile.dialects.nn.reshape import Reshape, Transpose
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.equations import Equation
from xcompile.frontends.onnx.ops_conv import static_sizes


@dataclass(frozen=True)
class _Term:
    """A value and the label of each of its axes."""

    value: Value
    labels: str

    def size(self, label: str) -> int | None:
        return static_sizes(self.value)[self.labels.index(label)]


class NotAProduct(Exception):
    """The equation needs the general op: diagonals, broadcast sums, groups of axes of unknown size."""


def decompose(node: NodeContext, equation: Equation, operands: Sequence[Value]) -> Value:
    """The result of an equation; operands are contracted two at a time from the left.

    Raises:
        NotAProduct: nothing has been decided; what has been made is without use.
    """
    if any(len(set(term)) < len(term) for term in equation.terms):
        raise NotAProduct
    terms = [_Term(v, t) for v, t in zip(operands, equation.terms, strict=True)]
    while len(terms) > 1:
        a, b, *rest = terms
        later = set(equation.output).union(*(t.labels for t in rest))
        terms = [_contract(node, a, b, later), *rest]
    return _ordered(node, _summed(node, terms[0], set(equation.output)), equation.output).value


def _summed(node: NodeContext, term: _Term, kept: set[str]) -> _Term:
    """Without the axes that nothing else names."""
    axes = tuple(i for i, label in enumerate(term.labels) if label not in kept)
    if not axes:
        return term
    made = node.make(ReduceSum, x=term.value, axes=axes, keepdims=False)
    return _Term(made.y, "".join(label for label in term.labels if label in kept))


def _ordered(node: NodeContext, term: _Term, labels: str) -> _Term:
    if term.labels == labels:
        return term
    perm = tuple(term.labels.index(label) for label in labels)
    return _Term(node.make(Transpose, x=term.value, perm=perm).y, labels)


def _contract(node: NodeContext, a: _Term, b: _Term, later: set[str]) -> _Term:
    """The product of two terms, summed over the labels that are not needed later."""
    a = _summed(node, a, later | set(b.labels))
    b = _summed(node, b, later | set(a.labels))
    shared = [label for label in a.labels if label in b.labels]
    batch = "".join(label for label in shared if label in later)
    inner = "".join(label for label in shared if label not in later)
    rows = "".join(label for label in a.labels if label not in shared)
    columns = "".join(label for label in b.labels if label not in shared)
    if any(a.size(label) != b.size(label) for label in inner):
        raise NotAProduct
    row_sizes, column_sizes = ([t.size(c) for c in g] for t, g in ((a, rows), (b, columns)))
    left, swap_a = _matrices(node, a, batch, rows, inner)
    right, swap_b = _matrices(node, b, batch, inner, columns)
    y = node.make(MatMul, a=left, b=right, transpose_a=swap_a, transpose_b=swap_b).y
    if len(rows) != 1 or len(columns) != 1:
        y = _reshaped(node, y, len(batch), [*row_sizes, *column_sizes])
    return _Term(y, batch + rows + columns)


def _matrices(
    node: NodeContext, term: _Term, batch: str, first: str, second: str
) -> tuple[Value, bool]:
    """The term as [batch…, first, second], each group one axis, and whether these two are swapped."""
    sizes = [[term.size(label) for label in group] for group in (first, second)]
    if len(first) == len(second) == 1 and term.labels == batch + second + first:
        return term.value, True
    value = _ordered(node, term, batch + first + second).value
    if len(first) != 1 or len(second) != 1:
        value = _reshaped(node, value, len(batch), [_product(group) for group in sizes])
    return value, False


def _product(sizes: Sequence[int | None]) -> int | None:
    """The size of a group of axes; None where it is one axis of unknown size."""
    if len(sizes) == 1:
        return sizes[0]
    if None in sizes:
        raise NotAProduct
    return int(np.prod([s for s in sizes if s is not None]))


def _reshaped(node: NodeContext, value: Value, lead: int, sizes: Sequence[int | None]) -> Value:
    """The first `lead` axes as they are, then axes of the given sizes, one of which may be unknown."""
    if sum(size is None for size in sizes) > 1 or 0 in sizes:
        raise NotAProduct
    shape = [0] * lead + [-1 if size is None else size for size in sizes]
    return node.make(Reshape, x=value, shape=node.constant(np.array(shape, np.int64))).y
