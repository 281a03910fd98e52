"""The functions that users call; `xcompile` re-exports them."""

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING

from xcompile.compiler.driver import Progress, Request, compile_module
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.options import THREADS, Options
from xcompile.compiler.support.plugins import load_plugin
from xcompile.compiler.target.registry import parse_target
from xcompile.compiler.target.target import Target
from xcompile.frontends.onnx.importer import import_onnx

if TYPE_CHECKING:
    import onnx


def compile(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    target: str | Target = "cpu",
    *,
    threads: int | None = None,
    passes: str = "",
    pipeline: str = "",
    load: tuple[str, ...] = (),
    explain: tuple[str, ...] = (),
    options: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> CompiledModel:
    """Compile a model.

    Args:
        model: an ONNX model: a path, the bytes of a file, or a parsed `ModelProto`.
        target: `DEVICE[-ISA][-PRECISION]`: "cpu" is this machine; `xcompile.targets()` lists them.
        threads: the most threads a kernel runs on; as many as the process may use by default.
        passes: edits of the pipeline: "+after(nn-fold-batch-norm):my-pass;-nn-fuse-gelu".
        pipeline: a whole pipeline instead of the target's.
        load: Python files with passes, ops or emitters of your own.
        explain: passes that record why they did not fire; "*" for all.
        options: further options by name, see docs/options.md.
        progress: called with what is being done, how much of it is done, and of how much.

    Returns:
        The model, ready to run (on this machine) and to save.

    Raises:
        CompileError: what is wrong, where in the model, and what to do.
    """
    resolved, precision = (target, "fp32") if isinstance(target, Target) else parse_target(target)
    if precision != "fp32":
        raise CompileError(
            "XC6003", f"the precision {precision} is not available on {resolved.name}"
        )
    for path in load:
        load_plugin(path)
    given = Options(options)
    request = Request(
        target=resolved,
        pipeline=pipeline,
        passes=passes,
        explain=frozenset(explain),
        load=load,
        options=given,
    )
    artifact = compile_module(import_onnx(model), request, progress)
    return CompiledModel(artifact, threads=threads or given[THREADS])
