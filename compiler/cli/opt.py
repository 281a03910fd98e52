"""`xcompile opt`: the text of a model after passes."""

import sys
from pathlib import Path
from typing import Annotated, Any

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
    print_changes: Annotated[
        bool,
        typer.Option("--print-changes", help="Print the text after each pass that changed it."),
    ] = False,
) -> None:
    """Print the text of a model after passes.

    Without --passes it is as the front end made it.
    """
    from xcompile.compiler.ir.instruments import PrintIR, Verify
    from xcompile.compiler.opt import optimize, optimize_module
    from xcompile.compiler.support.plugins import load_plugin
    from xcompile.compiler.target.registry import parse_target

    for path in load or ():
        load_plugin(path)
    settings: dict[str, Any] = {
        "explain": frozenset(explain or ()),
        "locations": locations,
        "instruments": [Verify(each=True), *([PrintIR("after-change")] if print_changes else [])],
    }
    machine = parse_target(target)[0]
    if source == "-" or source.endswith(".mlir"):
        print(optimize(_read(source), passes, machine, **settings), end="")
        return
    from xcompile.frontends.onnx.importer import import_onnx

    print(optimize_module(import_onnx(source), passes, machine, **settings))


def _read(source: str) -> str:
    """The text of a file, or of stdin."""
    try:
        return sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise CompileError("XC1001", f"{source} cannot be read: {reason}") from error
