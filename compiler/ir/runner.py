"""Runs a pipeline: each pass with what surrounds it."""

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import Pipeline
from xcompile.compiler.support.errors import CompileError


def run_pipeline(module: Module, pipeline: Pipeline, context: PassContext) -> None:
    """Run the passes in order.

    Raises:
        CompileError: of the pass, or XC3004 when a pass raises anything else.
    """
    for each in pipeline:
        try:
            each.run(module, context)
        except CompileError as error:
            error.pass_name = error.pass_name or each.NAME
            raise
        except Exception as error:
            raise CompileError(
                "XC3004", f"{type(error).__name__}: {error}", pass_name=each.NAME
            ) from error
