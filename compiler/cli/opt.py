"""`xcompile opt`: the text of a model after passes."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from xcompile.compiler.cli import options
from xcompile.compiler.support.errors import CompileError


def opt(
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="An ONNX model or MLIR text; - is stdin.")
    ],
    *,
    passes: Annotated[str, typer.Option(help="A pipeline: @cpu, or PASS,PASS{OPTION=VALUE}")] = "",
    target: options.Target = "cpu",
    load: options.Load = None,
    explain: Annotated[
        list[str] | None,
        typer.Option(metavar="PASS", help="Print why a pass did not fire; '*' for all."),
    ] = None,
    locations: Annotated[
        bool, typer.Option("--locations", help="Print the model node of each op.")
    ] = False,
    verify_numerics: options.VerifyNumerics = False,
    print_changes: Annotated[
        bool,
        typer.Option("--print-changes", help="Print the text after each pass that changed it."),
    ] = False,
) -> None:
    """Print the text of a model after passes.

    Without --passes it is as the front end made it.
    """
    from xcompile.compiler.opt import OptRequest
    from xcompile.compiler.support.options import ISOLATE, VERIFY_NUMERICS, WORKER_TIMEOUT, Options
    from xcompile.compiler.support.plugins import load_plugin, plugin_module_name
    from xcompile.compiler.target.registry import parse_target

    given, files = Options(), load or []
    for path in files:
        plugin_module_name(path)  # which tells a file that cannot be read
    request = OptRequest(
        text=_read(source) if source == "-" or source.endswith(".mlir") else None,
        model=source,
        pipeline=passes,
        target=parse_target(target)[0],
        explain=tuple(explain or ()),
        locations=locations,
        print_changes=print_changes,
        verify_numerics=verify_numerics or given[VERIFY_NUMERICS],
    )
    if files and given[ISOLATE]:
        paths = [str(path.resolve()) for path in files]
        print(request.run_isolated(paths, given[WORKER_TIMEOUT]), end="")
        return
    for path in files:
        load_plugin(path)
    print(request.run(), end="")


def _read(source: str) -> str:
    """The text of a file, or of stdin."""
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise CompileError("XC1001", f"{source} cannot be read: {reason}") from error
