"""`xcompile diff`: compare a compiled model with an oracle, tensor by tensor, and name what is wrong."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xcompile.compiler.cli import options
from xcompile.compiler.cli.console import print_table, progress_bar
from xcompile.compiler.support.errors import CompileError

if TYPE_CHECKING:
    from xcompile.compiler.diff.report import Report

_SHOWN = 20


def diff(
    model: Annotated[Path, typer.Argument(help="An ONNX model.")],
    *,
    inputs: options.Inputs = None,
    against: Annotated[
        str,
        typer.Option(
            metavar="reference|onnxruntime",
            help="The numpy meaning of the ops, or another engine, which also checks how the model is read.",
        ),
    ] = "reference",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write everything to one page.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help=f"Print every tensor, not only the first {_SHOWN}.")
    ] = False,
    target: options.Target = "cpu",
    threads: options.Threads = None,
    passes: options.Passes = "",
    pipeline: options.Pipeline = "",
    load: options.Load = None,
    winograd: options.Winograd = None,
    jobs: options.Jobs = None,
    cache: options.Cache = None,
    calibration_table: options.CalibrationTable = None,
) -> None:
    """Compare a compiled model with an oracle, tensor by tensor.

    Names the op, pass or kernel that is wrong. Inputs that are not given are random, and sizes that the model leaves
    open are 3. The exit code is 1 when something is wrong.
    """
    from xcompile.compiler.cli.inputs import read_inputs
    from xcompile.compiler.diff.api import diff as compare

    if options.is_library(model):
        raise CompileError("XC6006", "diff needs the ONNX model, not a library")
    compilation = options.Compilation(
        target=target, threads=threads, passes=passes, pipeline=pipeline, load=load or (), winograd=winograd,
        jobs=jobs, cache=cache, calibration_table=calibration_table,
    )  # fmt: skip
    with progress_bar() as progress:
        report = compare(
            model,
            lambda specs: read_inputs(inputs or (), specs),
            against=against,
            progress=progress,
            **compilation.arguments(),
        )
    _print(report, everything)
    if html is not None:
        _write(html, report.to_html())
    if not report.good:
        raise typer.Exit(1)


def _print(report: "Report", everything: bool) -> None:
    from xcompile.compiler.diff.report import HEADER, cells

    rows = report.sorted_rows()
    shown = rows if everything else rows[:_SHOWN]
    print_table(HEADER, [cells(row) for row in shown])
    if len(shown) < len(rows):
        print(f"… and {len(rows) - len(shown)} more; --all prints them")
    print(report.summary())
    for culprit in report.culprits:
        print(f"wrong: {culprit}")


def _write(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise CompileError("XC7001", f"{path} cannot be written: {error.strerror}") from error
