"""What quantization costs on labelled sets of at least 1,000 inputs: float and int8 on the same inputs.

    python -m bench.accuracy_sets [SET ...] [--record FILE]

Sets are made by the generators in `bench/sets`, seeds included. Each model is calibrated on samples that no score looks
at. Where a set names an accuracy budget, the search looks at one part and what is printed is the score on the other.
A line of the record has the scores of the float model and of each int8 model, and which share of the operations of
products is of integers; a name is that of an observer, "smoothed" or "budget". The exit status is 1 when a bar is
missed.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xcompile
from bench.sets import digits28, lines, pages, sentences
from bench.sets.task import Task
from xcompile.compiler.precisions import integer_share
from xcompile.compiler.quantize.table import CalibrationTable


@dataclass(frozen=True)
class Case:
    """A set and what int8 must reach on it.

    Attributes:
        task: makes the set.
        observers: each makes an int8 model.
        most_lost: points of the first score that each of them may lose; None where the loss is only told.
        least: lower bounds of other scores.
        smooth: makes a further model with the last observer, smoothed by so much.
        budget: points that a further model, whose products stay in float as far as that needs, may lose.
        least_integer: the share of operations that this model must have in integers.
    """

    task: Callable[[], Task]
    observers: tuple[str, ...] = ("mse",)
    most_lost: float | None = None
    least: tuple[tuple[str, float], ...] = ()
    smooth: float | None = None
    budget: float | None = None
    least_integer: float = 0.0


CASES: Mapping[str, Case] = {
    "mnist-plain": Case(lambda: digits28.task("plain"), ("entropy", "mse"), most_lost=0.5),
    "mnist-separable": Case(
        lambda: digits28.task("separable"), ("entropy", "mse"), budget=1.0, least_integer=0.8
    ),
    "ocr-lines": Case(lines.task, most_lost=1.0),
    "sentence-pairs": Case(
        sentences.task, most_lost=1.0, least=(("mean cosine", 0.99),), smooth=0.5
    ),
    "orientation-pages": Case(pages.task, budget=1.0, least_integer=0.8),
}


@dataclass(frozen=True)
class Row:
    """The scores of one model on one set.

    Attributes:
        set: the set's name.
        model: "float", an observer, "smoothed", or "budget".
        inputs: how many inputs the scores are of.
        scores: by name.
        integer: the share of the operations of products that is of integers.
        seconds: to make the model (to search it, for a budget) and to score it.
        missed: what is not reached; empty where nothing is missed.
    """

    set: str
    model: str
    inputs: int
    scores: Mapping[str, float]
    integer: float
    seconds: float
    missed: tuple[str, ...] = ()

    def text(self) -> str:
        """One line."""
        scores = ", ".join(f"{name} {score:.4g}" for name, score in self.scores.items())
        missed = f"  MISSED: {'; '.join(self.missed)}" if self.missed else ""
        return (
            f"{self.set:18} {self.model:10} {self.inputs} inputs: {scores}; {self.integer:.1%} in integers;"
            f" {self.seconds:.0f} s{missed}"
        )


def measure(name: str, tell: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Score the float model and the int8 models of a set.

    Args:
        name: of a case.
        tell: is told each row.
    """
    case = CASES[name]
    task = case.task()
    rows: list[Row] = []

    def add(kind: str, make: Callable[[], xcompile.CompiledModel]) -> None:
        start = time.perf_counter()
        model = make()
        scores = task.testing(model)
        share = integer_share(model.precisions())
        seconds = time.perf_counter() - start
        made = Row(name, kind, task.inputs, scores, share, seconds)
        found = tuple(missed(case, rows[0] if rows else made, made))
        rows.append(Row(name, kind, task.inputs, scores, share, seconds, found))
        tell(rows[-1])

    add("float", lambda: xcompile.compile(task.model))
    calibrator = xcompile.Calibrator(task.model)
    calibrator.observe_all(task.calibration())
    tables = {observer: calibrator.table(observer) for observer in case.observers}
    for observer, table in tables.items():
        add(observer, lambda table=table: _int8(task, table))
    if case.smooth is not None:
        smoothed = xcompile.Calibrator(task.model, smooth=calibrator.smoothing(case.smooth))
        smoothed.observe_all(task.calibration())
        add("smoothed", lambda: _int8(task, smoothed.table(case.observers[-1])))
    if case.budget is not None:
        budget: dict[str, Any] = {"accuracy_budget": case.budget, "metric": task.choosing}
        add("budget", lambda: _int8(task, tables[case.observers[-1]], **budget))
    return rows


def _int8(task: Task, table: CalibrationTable, **arguments: Any) -> xcompile.CompiledModel:
    return xcompile.compile(task.model, "cpu-int8", calibration_table=table, **arguments)


def missed(case: Case, floating: Row, made: Row) -> list[str]:
    """What a model does not reach."""
    first, *_ = made.scores
    lost = floating.scores[first] - made.scores[first]
    allowed = case.budget if made.model == "budget" else case.most_lost
    found = [f"{name} below {least}" for name, least in case.least if made.scores[name] < least]
    if allowed is not None and lost > allowed + 1e-9:
        found.append(f"{lost:.2f} points lost")
    if made.model == "budget" and made.integer < case.least_integer:
        found.append(f"less than {case.least_integer:.0%} in integers")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(CASES))
    parser.add_argument("--record", type=Path, help="a file for the rows, a JSON object a line")
    given = parser.parse_args(arguments)
    unknown = sorted(set(given.sets) - set(CASES))
    if unknown:
        parser.error(f"there is no set {', '.join(unknown)}")
    rows: list[Row] = []
    for name in given.sets or CASES:
        rows += measure(name, lambda row: print(row.text(), flush=True))
    if given.record:
        given.record.write_text("".join(json.dumps(asdict(row)) + "\n" for row in rows))
    return 1 if any(row.missed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
