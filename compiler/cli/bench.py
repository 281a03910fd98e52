"""`xcompile bench`: measure a model, beside another engine where that is asked for."""

import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcompile.compiler.cli import options
from xcompile.compiler.cli.console import table
from xcompile.compiler.support.errors import CompileError

if TYPE_CHECKING:
    from xcompile.compiler.cli.inputs import Arrays

_BATCH_SECONDS = 2e-3
"""Calls shorter than this are measured together."""
_FEWEST_ROUNDS = 5

Call = Callable[[], Any]


def bench(
    model: Annotated[Path, typer.Argument(help="An ONNX model or a compiled library.")],
    *,
    inputs: options.Inputs = None,
    target: options.Target = "cpu",
    threads: options.Threads = None,
    against: Annotated[
        str | None, typer.Option(metavar="onnxruntime", help="Another engine to measure beside.")
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(help="The ONNX model for the other engine, when MODEL is a library."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0, help="How long to measure.")] = 3.0,
    report: Annotated[
        bool, typer.Option("--report", help="Print the time of each kernel.")
    ] = False,
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
    """Measure the latency of a model.

    Engines take turns. Inputs that are not given are random, and sizes that the model leaves open are 1.
    """
    from xcompile.compiler.cli.inputs import random_inputs, read_inputs
    from xcompile.compiler.model import CompiledModel
    from xcompile.compiler.profile import measure_model, peak_here

    compilation = options.Compilation(
        target=target, threads=threads, passes=passes, pipeline=pipeline, load=load or (), winograd=winograd,
        jobs=jobs, cache=cache, calibration_table=calibration_table, precision=precision or (),
        fallback=fallback,
    )  # fmt: skip
    opened = compilation.open(model) if options.is_library(model) else compilation.compile(model)
    if report and not isinstance(opened, CompiledModel):
        raise CompileError("XC6006", "--report needs the ONNX model, not a library")
    arrays = random_inputs(opened.required, read_inputs(inputs or (), opened.inputs))
    calls: dict[str, Call] = {"xcompile": lambda: opened.run(arrays)}
    if against is not None:
        calls[against] = _other_engine(against, reference or model, arrays, opened.threads)
    print(_latencies(measure(calls, seconds), opened.threads))
    if report and isinstance(opened, CompiledModel):
        print()
        print(measure_model(opened, arrays).table(peak_here(opened.threads)))


def measure(calls: Mapping[str, Call], seconds: float) -> dict[str, list[float]]:
    """Call everything in turns, and return the seconds of a call in each round.

    Args:
        calls: what to measure, by name.
        seconds: how long to go on; there are at least 5 rounds.
    """
    batches: dict[str, int] = {}
    for name, call in calls.items():
        call()
        batches[name] = max(1, int(_BATCH_SECONDS / _time(call, 1)))
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < _FEWEST_ROUNDS or time.perf_counter() < end:
        for name, call in calls.items():
            times[name].append(_time(call, batches[name]))
        rounds += 1
    return times


def _time(call: Call, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def _latencies(times: Mapping[str, list[float]], threads: int) -> str:
    ours = statistics.median(next(iter(times.values())))
    rows: list[tuple[str, ...]] = []
    for name, rounds in times.items():
        median = statistics.median(rounds)
        numbers = (median, min(rounds), max(rounds))
        rows.append((name, *(f"{s * 1e3:.4f}" for s in numbers), f"{median / ours:.2f}"))
    header = (f"ms, {threads} threads", "median", "min", "max", "÷ xcompile")
    return table(header, rows) + f"\n{len(next(iter(times.values())))} rounds"


def _other_engine(name: str, model: Path, arrays: "Arrays", threads: int) -> Call:
    """A call of another engine on the same arrays.

    Raises:
        CompileError: XC6006 there is no such engine, it is not installed, or it does not take the model.
    """
    if name != "onnxruntime":
        raise CompileError("XC6006", f"no engine '{name}'", help="--against onnxruntime")
    if options.is_library(model):
        raise CompileError(
            "XC6006", f"{name} cannot run a library", help="name the model: --reference MODEL.onnx"
        )
    from xcompile.compiler.engine import open_session, refusal

    session = open_session(str(model), threads=threads)
    try:
        session.run(None, arrays)
    except Exception as error:
        raise refusal(error) from error
    return lambda: session.run(None, arrays)
