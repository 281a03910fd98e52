"""What the command line does for quantization: calibrating, and the table of precisions."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from xcompile.compiler.cli.console import progress_bar, table
from xcompile.compiler.cli.options import Compilation
from xcompile.compiler.support.errors import CompileError

if TYPE_CHECKING:
    from xcompile.compiler.model import CompiledModel

_MUCH = 0.5
"""A tensor that has more of its numbers where float16 loses bits is told."""


def calibrated(
    compilation: Compilation,
    model: Path,
    source: str,
    *,
    observer: str,
    preprocess: str,
    equalize: bool,
    smooth: float | None,
    rounding: str,
) -> Compilation:
    """The compilation with the calibration table of these samples, which is written where one is named.

    Work that Ctrl-C interrupts is kept beside that file, and taken up the next time.

    Raises:
        CompileError: the model cannot be compiled, or the samples cannot be used.
    """
    from xcompile.compiler.api import looks_for_overflow, make_request, require_int8
    from xcompile.compiler.calibration.run import calibrate_model

    path: Path | None = compilation.calibration_table
    compilation = replace(compilation, calibration_table=None)
    arguments = compilation.arguments()
    request = make_request(**arguments)[0]
    if looks_for_overflow(request):
        return _without_overflow(compilation, model, source)
    require_int8(request.precisions)
    with progress_bar() as progress:
        made = calibrate_model(
            model,
            source,
            observer=observer,
            keep_float=compilation.keep_float,
            preprocessing=preprocess,
            state=None if path is None else path.with_name(f"{path.name}.partial"),
            threads=compilation.threads,
            options=arguments["options"],
            progress=progress,
            overridable=compilation.overridable,
            equalize=equalize,
            smooth=smooth,
            rounding=rounding,
        )
    if path is not None:
        made.save(path)
    return replace(compilation, calibration_table=made)


def _without_overflow(compilation: Compilation, model: Path, source: str) -> Compilation:
    """The compilation with what float16 does not hold on these samples in float32; prints what that is."""
    from xcompile.compiler.calibration.overflow import extremes_of, rules_against_overflow

    with progress_bar() as progress:
        found = extremes_of(model, source, overridable=compilation.overridable, progress=progress)
    for each in found:
        if each.overflows or each.small > _MUCH:
            print(each.text())
    rules = [f"{glob}={name}" for glob, name in rules_against_overflow(found)]
    return replace(compilation, precision=(*compilation.precision, *rules))


def precision_table(made: "CompiledModel") -> str:
    """A line for each product, and those that sum them up."""
    from xcompile.compiler.precisions import summary

    rows = made.precisions()
    lines = [(row.nodes, row.arithmetic, f"{row.operations:,}", row.why) for row in rows]
    return f"{table(('product', 'computes in', 'operations', 'why'), lines)}\n{summary(rows)}"


def statement_table(made: "CompiledModel") -> str:
    """A line for each node of the model."""
    from xcompile.compiler.precisions import STATEMENTS, statement_cells

    return table(STATEMENTS, [statement_cells(statement) for statement in made.statements()])


def within_budget(
    compilation: Compilation, model: Path, budget: float | None, metric: str, page: Path | None
) -> Compilation:
    """The compilation with what must not be of integers for an accuracy; prints what was found.

    Args:
        compilation: with a calibration table.
        model: the model.
        budget: what the metric may lose; with None the metric is printed and nothing is changed.
        metric: "FILE.py:FUNCTION".
        page: where to write the report as HTML.

    Raises:
        CompileError: XC6010 the budget cannot be met, XC6005 an option is missing or wrong.
    """
    from xcompile.compiler.api import budget_report, make_request
    from xcompile.compiler.calibration.data import function_of
    from xcompile.compiler.quantize.table import write_whole
    from xcompile.compiler.target.registry import MIXED

    file, colon, name = metric.rpartition(":")
    if not colon:
        raise CompileError("XC6005", "--accuracy-budget=POINTS goes with --metric=FILE.py:FUNCTION")
    budget = math.inf if budget is None else budget
    request, most = make_request(**compilation.arguments())
    with progress_bar() as progress:
        report = budget_report(model, request, budget, function_of(file, name), most, progress)
    print(report.text())
    if page is not None:
        write_whole(page, report.page().encode(errors="backslashreplace"))
    if not report.met:
        raise CompileError(
            "XC6010", report.statement(), help="compile for float, or allow a larger loss"
        )
    rules = [f"{glob}={name}" for glob, name in report.rules]
    target = compilation.target
    if target.endswith(f"-{MIXED}"):
        target = f"{target.removesuffix(MIXED)}int8"
    return replace(compilation, target=target, precision=(*compilation.precision, *rules))
