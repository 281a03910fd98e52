"""`xcompile profile`: what a model spends its time on, launch by launch."""

from pathlib import Path
from typing import Annotated

import typer

from xcompile.compiler.cli import options


def profile(
    model: Annotated[Path, typer.Argument(help="An ONNX model or a compiled library.")],
    *,
    inputs: options.Inputs = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="Write the last run for Perfetto or chrome://tracing."
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How many runs are measured.")] = 9,
    target: options.Target = "cpu",
    threads: options.Threads = None,
    passes: options.Passes = "",
    pipeline: options.Pipeline = "",
    load: options.Load = None,
    winograd: options.Winograd = None,
    jobs: options.Jobs = None,
    cache: options.Cache = None,
    calibration_table: options.CalibrationTable = None,
    precision: options.Precision = None,
    fallback: options.Fallback = None,
) -> None:
    """Print the time of each launch, with the model nodes that it computes and its share of the machine's peaks.

    Inputs that are not given are random, and sizes that the model leaves open are 1.
    """
    from xcompile.compiler.cli.inputs import random_inputs, read_inputs
    from xcompile.compiler.profile import measure_model, peak_here, profile_library

    compilation = options.Compilation(
        target=target, threads=threads, passes=passes, pipeline=pipeline, load=load or (), winograd=winograd,
        jobs=jobs, cache=cache, calibration_table=calibration_table, precision=precision or (),
        fallback=fallback,
    )  # fmt: skip
    if options.is_library(model):
        library = compilation.open(model)
        given = read_inputs(inputs or (), library.inputs)
        arrays = random_inputs(library.manifest.required, given)
        found = profile_library(model, arrays, threads=threads, repeats=repeats)
    else:
        compiled = compilation.compile(model)
        arrays = random_inputs(compiled.required, read_inputs(inputs or (), compiled.inputs))
        found = measure_model(compiled, arrays, repeats=repeats)
    print(found.table(peak_here(found.threads)))
    if trace is not None:
        found.save_trace(trace)
