"""Runs a pipeline: each pass with the instruments around it."""

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import PassContext, run_pass
from xcompile.compiler.ir.pipeline import Pipeline


def run_pipeline(module: Module, pipeline: Pipeline, context: PassContext) -> None:
    """Run the passes in order; `context.instruments` see each of them.

    Raises:
        CompileError: of a pass or an instrument, with the pass's name; XC3004 when a pass raises anything else.
    """
    for each in pipeline:
        run_pass(each, module, context)
