"""nn-decompose-hardmax: hardmax as the place of the maximum and a one-hot vector."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.passes import PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.base import numpy_dtype
from xcompile.dialects.nn.gather import OneHot
from xcompile.dialects.nn.reduce import ArgMax
from xcompile.dialects.nn.sizes import ShapeOf
from xcompile.dialects.nn.softmax import Hardmax
from xcompile.passes.common.constants import constant
from xcompile.passes.common.shapes import shapes
from xcompile.passes.nn.expression import Expression


class HardmaxOfParts(Pattern[Hardmax]):
    """1 at the first maximum.

        %0 = "nn.hardmax"(%x) {axis = 1}
    ->
        %0 = "nn.argmax"(%x)
        %1 = "nn.one_hot"(%0, %depth, %values)
    """

    def rewrite(self, op: Hardmax, rewriter: Rewriter) -> None:
        if rewriter.analysis(shapes).shape(op.x)[op.axis] == 0:
            no_match("the axis is empty")
        e = Expression(rewriter)
        place = e.make(ArgMax, x=op.x, axis=op.axis, keepdims=False)
        depth = e.make(ShapeOf, x=op.x, start=op.axis, end=op.axis + 1)
        values = constant(rewriter, np.array([0, 1]).astype(numpy_dtype(op.x)))
        made = rewriter.create(OneHot, indices=place, depth=depth, values=values, axis=op.axis)
        rewriter.replace(op, made)


@dataclass(frozen=True)
class DecomposeHardmax(PatternPass):
    """Write hardmax as argmax and one-hot."""

    NAME: ClassVar[str] = "nn-decompose-hardmax"
    PATTERNS: ClassVar = (HardmaxOfParts,)
