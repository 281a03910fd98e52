"""Keeps an accuracy: which products a quantized model must leave in floating point for it, or that nothing helps.

What quantizing each product alone does to the outputs is measured on the first held-out samples. Products whose noise
is great for the work they do stay in floating point, as few of them as the budget needs. What decides is the user's
metric, on data that calibration has not seen, and models as they will be used.
"""

import glob
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xcompile.compiler.calibration.sensitivity import Inputs, ProductCost
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.precisions import integer_share
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.request import Progress
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.page import page
from xcompile.runtime.abi import TensorSpec

Metric = Callable[[Any], float]
"""Scores a model, which is called as a `CompiledModel` is; more is better."""

Costs = Callable[[Sequence[Inputs], Callable[[int, int], None]], Sequence[ProductCost]]
"""What quantizing each product alone costs on samples, in the model's order; tells how many products are done."""

Build = Callable[[CalibrationTable | None], CompiledModel]
"""Compiles the model with a calibration table, or in floating point with None."""

_SAMPLES = 32
"""Of the held-out samples, so many tell the noise of products."""

HEADER = ("product", "noise alone", "work", "stays")
"""The columns of the table of products."""


@dataclass(frozen=True)
class Sensitivity:
    """What quantizing one product alone costs.

    Attributes:
        product: the name of the tensor that it gives.
        noise_db: 10·log10 of the power of the outputs' error over that of the outputs; -inf where there is none.
        share: of the operations of all products that may be quantized, from 0 to 1.
        kept: whether it stays in floating point.
    """

    product: str
    noise_db: float
    share: float
    kept: bool = False


@dataclass(frozen=True)
class BudgetReport:
    """What came of a budget.

    Attributes:
        budget: what the metric may lose; infinite where it was only to be told.
        floating: the metric of the float model.
        integer: that of the model with all products quantized.
        reached: that of the model that `table` makes.
        met: whether it is within the budget, with at least one product quantized.
        integer_share: which part of the operations of products `table` makes integer, from 0 to 1.
        products: that of the most noise for its work first; empty when nothing had to be kept.
        table: the calibration table with what stays in floating point.
    """

    budget: float
    floating: float
    integer: float
    reached: float
    met: bool
    integer_share: float
    products: tuple[Sensitivity, ...]
    table: CalibrationTable

    def text(self) -> str:
        """What was found, in a line and a table."""
        rows = [HEADER, *map(_cells, self.products)] if self.products else []
        width = max((len(row[0]) for row in rows), default=0)
        lines = [
            f"{name:{width}}  {noise:>11}  {work:>6}  {stays}" for name, noise, work, stays in rows
        ]
        return "\n".join([self.statement(), *lines])

    def page(self) -> str:
        """The same as an HTML page that needs nothing else; names from the model never become markup."""
        return page(
            f"Accuracy budget of {self.table.model}",
            [self.statement(), *self._remarks()],
            HEADER,
            [_cells(each) for each in self.products],
            classes=["doubtful" if each.kept else "" for each in self.products],
        )

    def _remarks(self) -> list[str]:
        """What a reader of the page asks next."""
        table = self.table
        chosen = sum(each.kept for each in self.products)
        given = table.keep_float[: len(table.keep_float) - chosen]
        said = [f"Ranges: observer {table.observer}, {table.samples} samples."]
        if given:
            said.append(f"In float from the start: {', '.join(given)}.")
        if self.budget == math.inf:
            said.append("No budget was given; nothing was kept in float for it.")
        elif not self.met:
            said.append(
                "No model was made. Products were left in float from the top of this table down; only with all of "
                "them in float the metric stays within the budget, if at all."
            )
        elif not self.products:
            said.append("No product had to be kept in float.")
        else:
            said.append(
                "Noise alone: of the outputs' error by that of the outputs when only this product is of integers. "
                "Work: its share of the operations of all products. What makes the most noise for its work stands "
                "first, and products stay in float from the top down, as few as the budget allows."
            )
        return said

    def statement(self) -> str:
        """One sentence: whether the budget holds, and by what."""
        scores = f"float {self.floating:.6g}, int8 {self.integer:.6g}"
        if self.budget == math.inf:
            return f"the metric: {scores}"
        if not self.met:
            return f"no choice of int8 products stays within {self.budget:g}: {scores}"
        kept = sum(each.kept for each in self.products)
        products = "1 product" if kept == 1 else f"{kept} products"
        return (
            f"within {self.budget:g}: {scores}, with {products} in float {self.reached:.6g}; "
            f"{self.integer_share:.1%} of the operations are of integers"
        )


def _cells(each: Sensitivity) -> tuple[str, str, str, str]:
    """A product as text, in the order of `HEADER`."""
    stays = "in float" if each.kept else "int8"
    return each.product, f"{each.noise_db:.1f} dB", f"{each.share:.1%}", stays


def meet_budget(
    build: Build,
    costs: Costs,
    table: CalibrationTable,
    metric: Metric,
    budget: float,
    progress: Progress | None = None,
) -> BudgetReport:
    """Find as few products as possible that must stay in floating point.

    Args:
        build: compiles the model.
        costs: tells what quantizing each product alone costs.
        table: of the model.
        metric: scores models on held-out data, calling each in the same way.
        budget: what the score of the float model may lose, in the metric's unit; infinite to be told the scores.
        progress: told of each product that is measured and of each model that is tried.

    Raises:
        CompileError: XC6005, the metric gives no number.
    """
    return _Search(build, costs, table, metric, budget, progress).run()


class _Recorder:
    """A model that remembers the first samples it runs on."""

    def __init__(self, model: CompiledModel) -> None:
        self._model = model
        self._count = 0
        self.samples: list[Inputs] = []

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and sizes of each input."""
        return self._model.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and sizes of each output."""
        return self._model.outputs

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        self._remember({**self._by_name(arrays), **named})
        return self._model(*arrays, **named)

    def run(self, inputs: Any, *arguments: Any, **options: Any) -> Mapping[str, np.ndarray]:
        """The outputs by name."""
        self._remember(inputs if isinstance(inputs, Mapping) else self._by_name(inputs))
        return self._model.run(inputs, *arguments, **options)

    def _by_name(self, arrays: Sequence[Any]) -> dict[str, Any]:
        return {spec.name: array for spec, array in zip(self.inputs, arrays, strict=False)}

    def _remember(self, inputs: Mapping[str, Any]) -> None:
        left = _SAMPLES - self._count
        if left <= 0:
            return
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        firsts = {spec.dims[0] if spec.dims else "" for spec in self.inputs}
        if len(firsts) == 1 and not any(first.isdigit() or not first for first in firsts):
            arrays = {name: array[:left] for name, array in arrays.items()}
            self._count += max((len(array) for array in arrays.values()), default=0)
        else:
            self._count += 1
        self.samples.append({name: array.copy() for name, array in arrays.items()})


class _Search:
    def __init__(
        self,
        build: Build,
        costs: Costs,
        table: CalibrationTable,
        metric: Metric,
        budget: float,
        progress: Progress | None,
    ) -> None:
        self._build, self._costs, self._table = build, costs, table
        self._metric, self._budget, self._progress = metric, budget, progress
        self._order: list[str] = []
        self._tried = 0
        self._shares: dict[frozenset[str], tuple[float, float]] = {}

    def run(self) -> BudgetReport:
        recorder = _Recorder(self._build(None))
        floating = self._score(recorder)
        integer, share = self._kept(frozenset())
        if floating - integer <= self._budget:
            return self._report(floating, integer, frozenset(), integer, share, ())
        ranked = self._ranked(recorder.samples)
        names = [each.product for each in ranked]
        fewest, most = 1, len(names)
        while fewest < most:
            middle = (fewest + most) // 2
            score, _ = self._kept(frozenset(names[:middle]))
            if floating - score <= self._budget:
                most = middle
            else:
                fewest = middle + 1
        kept = frozenset(names[:fewest])
        reached, share = self._kept(kept)
        rows = tuple(replace(each, kept=each.product in kept) for each in ranked)
        return self._report(floating, integer, kept, reached, share, rows)

    def _ranked(self, samples: Sequence[Inputs]) -> list[Sensitivity]:
        """The products, that of the most noise for its work first."""

        def told(done: int, total: int) -> None:
            if self._progress is not None:
                self._progress("sensitivity", done, total)

        costs = self._costs(samples, told)
        self._order = [cost.name for cost in costs]
        whole = max(sum(cost.operations for cost in costs), 1)
        by_work = sorted(costs, key=lambda c: c.noise / max(c.operations, 1), reverse=True)
        return [Sensitivity(c.name, _decibels(c.noise), c.operations / whole) for c in by_work]

    def _report(
        self,
        floating: float,
        integer: float,
        kept: frozenset[str],
        reached: float,
        share: float,
        rows: tuple[Sensitivity, ...],
    ) -> BudgetReport:
        met = floating - reached <= self._budget and len(kept) < max(len(self._order), 1)
        return BudgetReport(
            self._budget, floating, integer, reached, met, share, rows, self._with(kept)
        )

    def _with(self, kept: frozenset[str]) -> CalibrationTable:
        """The table with further products in floating point, in the model's order."""
        globs = tuple(glob.escape(name) for name in self._order if name in kept)
        return replace(self._table, keep_float=(*self._table.keep_float, *globs))

    def _kept(self, kept: frozenset[str]) -> tuple[float, float]:
        """The score with these products in floating point, and the share of operations that are integer."""
        if kept not in self._shares:
            model = self._build(self._with(kept))
            self._shares[kept] = self._score(model), integer_share(model.precisions())
        return self._shares[kept]

    def _score(self, model: Any) -> float:
        score = self._metric(model)
        try:
            number = float(score)
        except (TypeError, ValueError):
            number = np.nan
        if not np.isfinite(number):
            raise CompileError("XC6005", f"the metric gives {score!r}, which is no finite number")
        self._tried += 1
        if self._progress is not None:
            total = max(self._tried, 2 + len(self._order).bit_length())
            self._progress("budget", self._tried, total)
        return number


def _decibels(ratio: float) -> float:
    return float(10 * np.log10(ratio)) if ratio > 0 else -math.inf
