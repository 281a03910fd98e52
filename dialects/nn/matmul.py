"""Contractions: nn.matmul and nn.einsum."""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Operand, Operands, Result
from xcompile.compiler.support.dims import Dim
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn, rank_of
from xcompile.dialects.nn.numeric import rounded
from xcompile.dialects.nn.precision import widened


class MatrixProduct(NnOp):
    """Base of matrix products: `a @ b` on the last two axes; leading axes broadcast.

    An `a` of rank 1 is a row, a `b` of rank 1 a column, and that axis is missing from the result.
    `transpose_a` and `transpose_b` swap the last two axes of an operand of rank 2 or more first.
    """

    a: Operand
    b: Operand
    transpose_a: bool = False
    transpose_b: bool = False
    y: Result

    def verify(self) -> None:
        ranks = rank_of(self.a), rank_of(self.b)
        if min(ranks) < 1:
            raise self.error(
                "XC2003", f"a matrix product of operands of rank {ranks[0]} and {ranks[1]}"
            )
        if (self.transpose_a and ranks[0] < 2) or (self.transpose_b and ranks[1] < 2):
            raise self.error("XC2003", "only operands of rank 2 or more can be transposed")

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        a, b = list(sizes.shape(self.a)), list(sizes.shape(self.b))
        if self.transpose_a:
            a[-2:] = a[:-3:-1]
        if self.transpose_b:
            b[-2:] = b[:-3:-1]
        inner_b = b[-2] if len(b) > 1 else b[0]
        sizes.equal(a[-1], inner_b, "the summed sizes of a matrix product")
        rows = a[-2:-1]
        columns = b[-1:] if len(b) > 1 else []
        lead_a, lead_b = a[:-2], b[:-2]
        rank = max(len(lead_a), len(lead_b))
        ones: list[Dim] = [1] * rank
        pairs = zip(
            (ones + lead_a)[-rank:] if rank else [],
            (ones + lead_b)[-rank:] if rank else [],
            strict=True,
        )
        lead = [sizes.broadcast(x, y, "the leading axes of a matrix product") for x, y in pairs]
        return [(*lead, *rows, *columns)]

    def sums(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """The sums of products in the operands' type."""
        a = a.swapaxes(-1, -2) if self.transpose_a else a
        b = b.swapaxes(-1, -2) if self.transpose_b else b
        return np.matmul(a, b)


@nn.op("matmul")
class MatMul(MatrixProduct):
    """The matrix product in the operands' type. ONNX MatMul."""

    def verify(self) -> None:
        super().verify()
        if dtype_of(self.a) != dtype_of(self.b):
            raise self.error(
                "XC2002", f"a matrix product of {dtype_of(self.a)} and {dtype_of(self.b)}"
            )

    def reference(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return rounded(self.sums(widened(a), widened(b)), a.dtype)


@nn.op("einsum")
class Einsum(NnOp):
    """Sums of products over named axes. ONNX Einsum with the equation in explicit form, without
    ellipses and spaces: "bij,bjk->bik".

    A label twice in one term is that operand's diagonal. Sizes of equal labels must agree, 1
    broadcasts.
    """

    xs: Operands
    equation: str
    y: Result

    def verify(self) -> None:
        terms, output = self.terms()
        if len(terms) != len(self.xs):
            raise self.error(
                "XC2007",
                f"the equation '{self.equation}' has {len(terms)} terms for {len(self.xs)} operands",
            )
        for term, x in zip(terms, self.xs, strict=True):
            if not (term.isascii() and (term.isalpha() or not term)):
                raise self.error(
                    "XC2007", f"the equation '{self.equation}' is not in explicit form"
                )
            if len(term) != rank_of(x):
                raise self.error(
                    "XC2003",
                    f"the term '{term}' of '{self.equation}' names an operand of rank {rank_of(x)}",
                )
        if len(set(output)) != len(output) or not set(output) <= set("".join(terms)):
            raise self.error(
                "XC2007", f"the output of '{self.equation}' repeats a label or has a new one"
            )

    def terms(self) -> tuple[list[str], str]:
        """The labels of each operand and of the result."""
        inputs, _, output = self.equation.partition("->")
        return inputs.split(","), output

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        terms, output = self.terms()
        size_of: dict[str, Dim] = {}
        for term, x in zip(terms, self.xs, strict=True):
            for label, size in zip(term, sizes.shape(x), strict=True):
                known = size_of.get(label, 1)
                size_of[label] = sizes.broadcast(known, size, f"the axis '{label}' of einsum")
        return [tuple(size_of[label] for label in output)]

    def reference(self, xs: list[np.ndarray]) -> np.ndarray:
        return rounded(
            np.einsum(self.equation, *map(widened, xs), optimize=len(xs) > 2), xs[0].dtype
        )
