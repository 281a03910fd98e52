"""`xcompile MODEL`: compile a model into a shared library."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xcompile.compiler.cli import options
from xcompile.compiler.cli.console import bytes_text, table
from xcompile.compiler.cli.quantization import (
    calibrated,
    precision_table,
    statement_table,
    within_budget,
)
from xcompile.compiler.support.page import write_page

if TYPE_CHECKING:
    from xcompile.compiler.model import CompiledModel


def compile_command(
    model: Annotated[Path, typer.Argument(help="An ONNX model.")],
    *,
    target: options.Target = "cpu",
    arch: options.Arch = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The library to write; MODEL's name with .so, here."),
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="The threads that the model is expected to run on.")
    ] = None,
    passes: options.Passes = "",
    pipeline: options.Pipeline = "",
    load: options.Load = None,
    explain: Annotated[
        list[str] | None,
        typer.Option(metavar="PASS", help="Print why a pass did not fire; '*' for all."),
    ] = None,
    winograd: options.Winograd = None,
    verify_numerics: options.VerifyNumerics = False,
    prefix: Annotated[str, typer.Option(help="Of the names that C programs call.")] = "model",
    jobs: options.Jobs = None,
    cache: options.Cache = None,
    fallback: options.Fallback = None,
    overridable: options.Overridable = None,
    calibrate: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Samples for an int8 model: FILE.npz, a folder of .npy files or images, FILE.py:FUNCTION.",
        ),
    ] = None,
    calibration_table: options.CalibrationTable = None,
    observer: Annotated[
        str, typer.Option(help="min-max, percentile, percentile:99.9, entropy or mse.")
    ] = "mse",
    preprocess: Annotated[
        str,
        typer.Option(
            metavar="SPEC",
            help="Of images: resize=256,crop=224x224,scale=1/255,mean=0.5:0.5:0.5,std=1:1:1,layout=nchw,color=rgb",
        ),
    ] = "",
    equalize: Annotated[
        bool,
        typer.Option(
            "--equalize",
            help="With --calibrate: make ranges of channels between convolutions alike first.",
        ),
    ] = False,
    smooth: Annotated[
        float | None,
        typer.Option(
            metavar="ALPHA",
            help="With --calibrate: move that part (0 to 1) of the spread of channels into the weights of products.",
        ),
    ] = None,
    rounding: Annotated[
        str,
        typer.Option(
            metavar="HOW",
            help="With --calibrate: nearest, or adaround: round weights as the inputs of each product need it.",
        ),
    ] = "nearest",
    precision: options.Precision = None,
    keep_float: options.KeepFloat = None,
    accuracy_budget: Annotated[
        float | None,
        typer.Option(
            metavar="POINTS",
            help="What an int8 model may lose of --metric; what costs more is in 16 bits, or in float.",
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            metavar="FILE.py:FUNCTION",
            help="Scores a model that it is given and calls on held-out data; more is better. Printed.",
        ),
    ] = "",
    budget_report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write what came of the budget as a page."),
    ] = None,
    precisions: Annotated[
        bool,
        typer.Option(
            "--precisions", help="Print what each node of the model computes in, and why."
        ),
    ] = False,
    precision_report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.html", help="Write the same as a page."),
    ] = None,
    report: Annotated[
        bool,
        typer.Option("--report", help="Print every kernel, and the predicted gain of a precision."),
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Print inputs, outputs, pipeline and sizes.")
    ] = False,
) -> None:
    """Compile a model into a shared library."""
    from xcompile.compiler.api import require_budget

    compilation = options.Compilation(
        target, threads, passes, pipeline, load or (), explain or (), winograd, jobs, cache, prefix,
        verify_numerics, fallback, overridable or (), calibration_table, keep_float or (),
        precision or (), arch or (),
    )  # fmt: skip
    require_budget(target, accuracy_budget)
    start = time.perf_counter()
    if calibrate is not None:
        compilation = calibrated(
            compilation,
            model,
            calibrate,
            observer=observer,
            preprocess=preprocess,
            equalize=equalize,
            smooth=smooth,
            rounding=rounding,
        )
    if accuracy_budget is not None or metric:
        compilation = within_budget(compilation, model, accuracy_budget, metric, budget_report)
    made = compilation.compile(model)
    path = output or Path(model.with_suffix(".so").name)
    made.save(path)
    seconds = time.perf_counter() - start
    for line in made.artifact.explanations:
        print(line)
    if verbose:
        print(_details(made))
    if report:
        print(_report(made))
    if report and compilation.chooses_precision() and not load:
        from xcompile.compiler.prediction import predict

        print(predict(model, **compilation.arguments()))
    if precisions:
        print(statement_table(made))
    if precision_report is not None:
        from xcompile.compiler.precisions import precision_page

        write_page(precision_report, precision_page(made.artifact))
    if compilation.chooses_precision():
        print(precision_table(made))
    size = bytes_text(path.stat().st_size)
    print(f"{path}: {size}, {len(made.artifact.kernels)} kernels, {seconds:.1f} s")


def _details(made: "CompiledModel") -> str:
    manifest, program = made.artifact.manifest, made.artifact.program
    lines = [f"input   {spec.name}: {spec}" for spec in manifest.inputs]
    lines += [f"output  {spec.name}: {spec}" for spec in manifest.outputs]
    lines += [
        f"target  {manifest.target}: {' '.join(manifest.features)}",
        f"passes  {manifest.provenance['pipeline']}",
        f"weights {bytes_text(manifest.weights_bytes)}, {bytes_text(manifest.prepared_bytes)} prepared at load",
        f"memory  {program.arena} bytes, {program.scratch} a thread, {len(program.launches)} launches",
    ]
    return "\n".join(lines)


def _report(made: "CompiledModel") -> str:
    """A line for each launch; `bench --report` measures them."""
    artifact = made.artifact
    rows = [
        (step.node, artifact.kernels[step.symbol].family, artifact.kernels[step.symbol].schedule)
        for step in artifact.program.launches
    ]
    return table(("model nodes", "family", "schedule"), rows)
