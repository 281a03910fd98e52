"""nn-decompose-einsum: sums of products over named axes as matrix products."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.compiler.support.dims import Dim, product
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.matmul import Einsum, MatMul
from xcompile.dialects.nn.reduce import ReduceSum
from xcompile.dialects.nn.reshape import Reshape, Transpose
from xcompile.dialects.nn.sizes import ShapeOf
from xcompile.dialects.nn.slicing import Concat
from xcompile.passes.common.constants import constant
from xcompile.passes.common.shapes import shapes
from xcompile.passes.nn.expression import Expression


@dataclass(frozen=True)
class _Named:
    """A value and the labels of its axes."""

    value: Value
    labels: str


class EinsumOfMatMul(Pattern[Einsum]):
    """Labels of both operands and the result are a batch, those of both operands alone are summed over.

        %0 = "nn.einsum"(%a, %b) {equation = "bid,bjd->bij"}
    ->
        %0 = "nn.transpose"(%b) {perm = [0, 2, 1]}
        %1 = "nn.matmul"(%a, %0)

    What only one operand has and the result has not is summed first; several axes in one role are one axis meanwhile.
    """

    def rewrite(self, op: Einsum, rewriter: Rewriter) -> None:
        terms, output = op.terms()
        if len(terms) > 2:
            no_match(f"it has {len(terms)} operands")
        if dtype_of(op.xs[0]) not in ("f32", "f64"):
            no_match(f"elements are {dtype_of(op.xs[0])}")
        if any(len(set(term)) < len(term) for term in terms):
            no_match("a term is a diagonal")
        _check_sizes(rewriter, op, terms)
        parts = _Parts(rewriter, op)
        others = [set(output).union(*(t for t in terms if t is not term)) for term in terms]
        kept = ["".join(n for n in t if n in k) for t, k in zip(terms, others, strict=True)]
        roles = None if len(terms) == 1 else _Roles.of(kept[0], kept[1], output)
        if roles is not None:
            parts.check(roles)
        named = [parts.summed(x, *t) for x, *t in zip(op.xs, terms, kept, strict=True)]
        made = named[0] if roles is None else parts.multiplied(named[0], named[1], roles)
        rewriter.replace(op, parts.ordered(made, output).value)


@dataclass(frozen=True)
class _Roles:
    """Labels by what becomes of them."""

    batch: str
    left: str
    inner: str
    right: str

    @staticmethod
    def of(a: str, b: str, output: str) -> "_Roles":
        """The roles of the labels of two operands; what both have and the result has not is summed over."""
        return _Roles(
            "".join(n for n in output if n in a and n in b),
            "".join(n for n in a if n not in b),
            "".join(n for n in a if n in b and n not in output),
            "".join(n for n in b if n not in a),
        )

    def shapes(self) -> list[list[str]]:
        """The groups of labels that become axes, where they do: of either operand and of the result."""
        x = [*self.batch, self.left, self.inner]
        y = [*self.batch, self.inner, self.right]
        result = [*self.batch, *self.left, *self.right]
        one_each = len(self.left) == len(self.right) == 1
        found = [groups for groups in (x, y) if any(len(g) != 1 for g in groups)]
        return found if one_each else [*found, result]


def _check_sizes(rewriter: Rewriter, op: Einsum, terms: Sequence[str]) -> None:
    known = rewriter.analysis(shapes)
    size_of: dict[str, Dim] = {}
    for term, x in zip(terms, op.xs, strict=True):
        for label, size in zip(term, known.shape(x), strict=True):
            if size_of.setdefault(label, size) != size:
                no_match(f"the sizes of '{label}' are not known to be equal")


class _Parts:
    """The steps of a decomposition."""

    def __init__(self, rewriter: Rewriter, op: Einsum) -> None:
        self._rewriter = rewriter
        self._e = Expression(rewriter)
        self._of: dict[str, tuple[Value, int]] = {}
        self._sizes: dict[str, Dim] = {}
        for term, x in zip(op.terms()[0], op.xs, strict=True):
            for axis, size in enumerate(rewriter.analysis(shapes).shape(x)):
                self._of.setdefault(term[axis], (x, axis))
                self._sizes.setdefault(term[axis], size)

    def check(self, roles: _Roles) -> None:
        """Leave the pattern where several axes have to become one and their sizes are not known."""
        for groups in roles.shapes():
            unknown = [g for g in groups if not isinstance(self._size(g), int)]
            several = [g for g in unknown if len(g) > 1]
            if several and not self._may_infer(groups):
                no_match(f"the sizes of '{several[0]}' are not known and have to be one axis")

    def _size(self, group: str) -> Dim:
        return product(self._sizes[label] for label in group)

    def _may_infer(self, groups: Sequence[str]) -> bool:
        """Whether a reshape can leave one size open."""
        sizes = [self._size(g) for g in groups]
        return sum(not isinstance(s, int) for s in sizes) == 1 and 0 not in sizes

    def summed(self, x: Value, labels: str, kept: str) -> _Named:
        """Without the labels that nothing else has."""
        axes = tuple(i for i, label in enumerate(labels) if label not in kept)
        if axes:
            x = self._e.make(ReduceSum, x=x, axes=axes, keepdims=False)
        return _Named(x, kept)

    def ordered(self, x: _Named, labels: str) -> _Named:
        """With its axes in the order of `labels`."""
        if x.labels == labels:
            return x
        perm = tuple(x.labels.index(label) for label in labels)
        return _Named(self._e.make(Transpose, x=x.value, perm=perm), labels)

    def multiplied(self, a: _Named, b: _Named, roles: _Roles) -> _Named:
        """The matrix product over the inner labels."""
        batch, left, inner, right = roles.batch, roles.left, roles.inner, roles.right
        x = self._shaped(self.ordered(a, batch + left + inner), [*batch, left, inner])
        y = self._shaped(self.ordered(b, batch + inner + right), [*batch, inner, right])
        made = self._e.make(MatMul, a=x, b=y)
        if not len(left) == len(right) == 1:
            made = self._reshaped(made, [*batch, *left, *right])
        return _Named(made, batch + left + right)

    def _shaped(self, x: _Named, groups: Sequence[str]) -> Value:
        """With each group of labels as one axis; of size 1 when it is empty."""
        return x.value if all(len(g) == 1 for g in groups) else self._reshaped(x.value, groups)

    def _reshaped(self, x: Value, groups: Sequence[str]) -> Value:
        parts: list[Value] = []
        for group in groups:
            size = self._size(group)
            if isinstance(size, int) or self._may_infer(groups):
                known = size if isinstance(size, int) else -1
                parts.append(constant(self._rewriter, np.array([known], np.int64)))
            else:
                value, axis = self._of[group]
                parts.append(self._e.make(ShapeOf, x=value, start=axis, end=axis + 1))
        none = constant(self._rewriter, np.zeros(0, np.int64))
        shape = self._e.make(Concat, xs=parts or [none], axis=0)
        return self._e.make(Reshape, x=x, shape=shape, allow_zero=True)


@dataclass(frozen=True)
class DecomposeEinsum(PatternPass):
    """Write einsum of one or two operands as sums, transpositions and a matrix product."""

    NAME: ClassVar[str] = "nn-decompose-einsum"
    PATTERNS: ClassVar = (EinsumOfMatMul,)
