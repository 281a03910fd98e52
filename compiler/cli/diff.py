"""`xcompile diff`: compare a compiled model with an oracle or another precision, tensor by tensor."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xcompile.compiler.cli import options
from xcompile.compiler.cli.console import print_table, progress_bar
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.page import write_page
from xcompile.compiler.target.registry import PRECISIONS

if TYPE_CHECKING:
    from xcompile.compiler.diff.report import Report

_SHOWN = 20


def diff(
    model: Annotated[Path, typer.Argument(help="An ONNX model.")],
    other: Annotated[
        Path | None,
        typer.Argument(
            help="A quantized model whose tensors have the same names, to compare with."
        ),
    ] = None,
    *,
    inputs: options.Inputs = None,
    against: Annotated[
        str,
        typer.Option(
            metavar="reference|onnxruntime|PRECISION",
            help="The numpy meaning of the ops; another engine, which also checks how the model is read; or the model "
            "in another precision, as int8: what does it cost, and where?",
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
    keep_float: options.KeepFloat = None,
    precision: options.Precision = None,
    fallback: options.Fallback = None,
) -> None:
    """Compare a compiled model with an oracle, or with itself in another precision, tensor by tensor.

    Names the op, pass or kernel that is wrong; the exit code is 1 when something is. With a precision or another model
    it tells what each tensor loses, alone and with what comes before it, what costs most first. Inputs that are not
    given are random, and sizes that the model leaves open are 3.
    """
    from xcompile.compiler.cli.inputs import read_inputs
    from xcompile.compiler.diff.api import diff as compare

    if any(map(options.is_library, filter(None, (model, other)))):
        raise CompileError("XC6006", "diff needs the ONNX model, not a library")
    compilation = options.Compilation(
        target=target, threads=threads, passes=passes, pipeline=pipeline, load=load or (), winograd=winograd,
        jobs=jobs, cache=cache, calibration_table=calibration_table, precision=precision or (),
        keep_float=keep_float or (),
    )  # fmt: skip
    if other is not None or against in PRECISIONS:
        if other is None:
            name = target.removesuffix(f"-{against}").removesuffix(f"-{PRECISIONS[0]}")
            compilation = replace(compilation, target=f"{name}-{against}")
        _print_losses(model, other, inputs or (), compilation, html, everything=everything)
        return
    with progress_bar() as progress:
        report = compare(
            model,
            lambda specs: read_inputs(inputs or (), specs),
            against=against,
            progress=progress,
            fallback=fallback,
            **compilation.arguments(),
        )
    _print(report, everything)
    if html is not None:
        write_page(html, report.to_html())
    if not report.good:
        raise typer.Exit(1)


def _print_losses(
    model: Path,
    other: Path | None,
    inputs: Sequence[str],
    compilation: options.Compilation,
    html: Path | None,
    *,
    everything: bool,
) -> None:
    from xcompile.compiler.cli.inputs import read_inputs
    from xcompile.compiler.diff.api import diff_precision
    from xcompile.compiler.diff.precision_report import HEADER, cells

    with progress_bar() as progress:
        report = diff_precision(
            model,
            lambda specs: read_inputs(inputs, specs),
            other=other,
            progress=progress,
            **compilation.arguments(),
        )
    _print_rows(HEADER, [cells(row) for row in report.sorted_rows()], everything=everything)
    print(report.summary())
    if html is not None:
        write_page(html, report.to_html())


def _print_rows(header: Sequence[str], rows: Sequence[Sequence[str]], *, everything: bool) -> None:
    shown = rows if everything else rows[:_SHOWN]
    print_table(header, shown)
    if len(shown) < len(rows):
        print(f"… and {len(rows) - len(shown)} more; --all prints them")


def _print(report: "Report", everything: bool) -> None:
    from xcompile.compiler.diff.report import HEADER, cells

    _print_rows(HEADER, [cells(row) for row in report.sorted_rows()], everything=everything)
    print(report.summary())
    for culprit in report.culprits:
        print(f"wrong: {culprit}")
