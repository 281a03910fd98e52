"""Finds the pass that breaks a model."""

from collections.abc import Callable

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.pipeline import Pipeline
from xcompile.compiler.ir.runner import run_pipeline


def first_bad_pass(
    make: Callable[[], Module],
    pipeline: Pipeline,
    context: PassContext,
    good: Callable[[Module], bool],
) -> Pass | None:
    """The first pass after which the module is no longer good; None when it stays good.

    Binary search, so a breakage must not be repaired by a later pass. A fixpoint counts as one pass.

    Args:
        make: a fresh module.
        pipeline: what is run on it.
        context: for the passes; their statistics are added to it.
        good: judges the module after some passes.
    """

    def good_after(count: int) -> bool:
        module = make()
        run_pipeline(module, Pipeline(pipeline.passes[:count]), context)
        return good(module)

    low, high = 0, len(pipeline.passes)
    if good_after(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good_after(middle) else (low, middle)
    return pipeline.passes[high - 1]
