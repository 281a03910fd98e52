"""Writing expressions in patterns: `e.div(e.sub(x, mean), deviation)`."""

from typing import Any

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.rewrite import Rewriter
from xcompile.dialects.nn.base import NnOp
from xcompile.dialects.nn.composer import Composer
from xcompile.passes.common.constants import constant


class Expression(Composer):
    """Creates ops before the root op of a rewrite."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter

    def make(self, cls: type[NnOp], **fields: Any) -> Value:
        """The one result of a new op."""
        return self._rewriter.create(cls, **fields).results[0]

    def constant(self, array: np.ndarray) -> Value:
        """A new constant before the root op."""
        return constant(self._rewriter, array)
