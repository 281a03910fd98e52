"""Keeps an accuracy: which products a quantized model must leave in floating point for it, or that nothing helps.

Every product is quantized alone, with all others in floating point, to see what it costs. Those that cost most stay in
floating point, as few of them as the budget needs. What is measured is the user's metric, on data that calibration has
not seen.
"""

import glob
import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xcompile.compiler.model import CompiledModel
from xcompile.compiler.precisions import integer_share
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.request import Progress
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.abi import TensorSpec

Metric = Callable[[Any], float]
"""Scores a model, which is called as a `CompiledModel` is; more is better."""

Build = Callable[[CalibrationTable | None], CompiledModel]
"""Compiles the model with a calibration table, or in floating point with None."""

_MOST_BYTES = 256 << 20
"""Outputs of the float model that are kept to compare with."""

_STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
    "th,td{padding:.2em .6em;text-align:left;border-bottom:1px solid #ddd;overflow-wrap:anywhere}"
)


@dataclass(frozen=True)
class Sensitivity:
    """What quantizing one product alone costs.

    Attributes:
        product: the name of the tensor that it gives.
        lost: of the metric.
        noise_db: 10·log10 of the power of the outputs' error over that of the outputs, which ranks the products.
        kept: whether it stays in floating point.
    """

    product: str
    lost: float
    noise_db: float
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
        products: the most sensitive one first; empty when nothing had to be kept.
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
        lines = [self.statement()]
        if self.products:
            width = max(len(each.product) for each in self.products)
            lines.append(f"{'product':{width}}  {'lost alone':>10}  {'noise':>9}  stays")
            for each in self.products:
                stays = "in float" if each.kept else "int8"
                lines.append(
                    f"{each.product:{width}}  {each.lost:10.4g}  {each.noise_db:6.1f} dB  {stays}"
                )
        return "\n".join(lines)

    def page(self) -> str:
        """The same as an HTML page that needs nothing else; names from the model never become markup."""
        header = "".join(f"<th>{word}</th>" for word in ("product", "lost alone", "noise", "stays"))
        rows = "\n".join(
            f"<tr><td>{html.escape(each.product)}</td><td>{each.lost:.4g}</td>"
            f"<td>{each.noise_db:.1f} dB</td><td>{'in float' if each.kept else 'int8'}</td></tr>"
            for each in self.products
        )
        title = html.escape(f"Accuracy budget of {self.table.model}")
        return (
            f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
            f"<style>{_STYLE}</style></head>\n<body><h1>{title}</h1>\n"
            f"<p>{html.escape(self.statement())}</p>\n"
            f"<table><thead><tr>{header}</tr></thead>\n<tbody>{rows}</tbody></table></body></html>\n"
        )

    def statement(self) -> str:
        """One sentence: whether the budget holds, and by what."""
        scores = f"float {self.floating:.6g}, int8 {self.integer:.6g}"
        if self.budget == math.inf:
            return f"the metric: {scores}"
        if not self.met:
            return f"no choice of int8 products stays within {self.budget:g}: {scores}"
        kept = sum(each.kept for each in self.products)
        return (
            f"within {self.budget:g}: {scores}, with {kept} products in float {self.reached:.6g}; "
            f"{self.integer_share:.1%} of the operations are of integers"
        )


def meet_budget(
    build: Build,
    products: Sequence[str],
    table: CalibrationTable,
    metric: Metric,
    budget: float,
    progress: Progress | None = None,
) -> BudgetReport:
    """Find as few products as possible that must stay in floating point.

    Args:
        build: compiles the model.
        products: the tensors that quantized products give, in order.
        table: of the model.
        metric: scores models on held-out data, calling each in the same way.
        budget: what the score of the float model may lose, in the metric's unit; infinite to be told the scores.
        progress: told of each model that is tried.

    Raises:
        CompileError: XC6005, the metric gives no number.
    """
    return _Search(build, products, table, metric, budget, progress).run()


class _Observed:
    """A model that remembers its outputs, or how far they are from another model's."""

    def __init__(self, model: CompiledModel, expected: Sequence[np.ndarray] | None) -> None:
        self._model = model
        self._expected = expected
        self._calls = 0
        self._bytes = 0
        self.seen: list[np.ndarray] = []
        self.signal = self.noise = 0.0

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and sizes of each input."""
        return self._model.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and sizes of each output."""
        return self._model.outputs

    def __call__(self, *arrays: Any, **named: Any) -> Any:
        results = self._model(*arrays, **named)
        for array in results if isinstance(results, tuple) else (results,):
            self._see(array)
        return results

    def run(self, inputs: Any) -> Mapping[str, np.ndarray]:
        """The outputs by name."""
        results = self._model.run(inputs)
        for array in results.values():
            self._see(array)
        return results

    def _see(self, array: np.ndarray) -> None:
        place, self._calls = self._calls, self._calls + 1
        if self._expected is None:
            self._bytes += array.nbytes
            if self._bytes <= _MOST_BYTES:
                self.seen.append(array)
        elif place < len(self._expected) and self._expected[place].shape == array.shape:
            wanted = self._expected[place].astype(np.float64)
            self.signal += float((wanted**2).sum())
            self.noise += float(((array - wanted) ** 2).sum())

    def noise_db(self) -> float:
        """The power of the error over that of the outputs, in decibels; -inf where there is none."""
        if not self.noise > 0:
            return -np.inf
        return float(10 * np.log10(self.noise / self.signal)) if self.signal > 0 else np.inf


class _Search:
    def __init__(
        self,
        build: Build,
        products: Sequence[str],
        table: CalibrationTable,
        metric: Metric,
        budget: float,
        progress: Progress | None,
    ) -> None:
        self._build, self._products, self._table = build, products, table
        self._metric, self._budget, self._progress = metric, budget, progress
        self._expected: Sequence[np.ndarray] | None = None
        self._tried = 0
        self._shares: dict[frozenset[str], tuple[float, float]] = {}

    def run(self) -> BudgetReport:
        floating, observed = self._score(self._build(None))
        self._expected = observed.seen
        integer, share = self._kept(frozenset())
        if floating - integer <= self._budget:
            return self._report(floating, integer, frozenset(), integer, share, ())
        ranked = sorted(
            (self._alone(product, floating) for product in self._products),
            key=lambda each: (each.noise_db, each.lost),
            reverse=True,
        )
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

    def _report(
        self,
        floating: float,
        integer: float,
        kept: frozenset[str],
        reached: float,
        share: float,
        rows: tuple[Sensitivity, ...],
    ) -> BudgetReport:
        met = floating - reached <= self._budget and len(kept) < max(len(self._products), 1)
        return BudgetReport(
            self._budget, floating, integer, reached, met, share, rows, self._with(kept)
        )

    def _with(self, kept: frozenset[str]) -> CalibrationTable:
        """The table with further products in floating point, in the model's order."""
        globs = tuple(glob.escape(name) for name in self._products if name in kept)
        return replace(self._table, keep_float=(*self._table.keep_float, *globs))

    def _alone(self, product: str, floating: float) -> Sensitivity:
        others = frozenset(self._products) - {product}
        model = self._build(self._with(others))
        score, seen = self._score(model)
        return Sensitivity(product, floating - score, seen.noise_db())

    def _kept(self, kept: frozenset[str]) -> tuple[float, float]:
        """The score with these products in floating point, and the share of operations that are integer."""
        if kept not in self._shares:
            model = self._build(self._with(kept))
            score, _ = self._score(model)
            self._shares[kept] = score, integer_share(model.precisions())
        return self._shares[kept]

    def _score(self, model: CompiledModel) -> tuple[float, _Observed]:
        seen = _Observed(model, self._expected)
        score = self._metric(seen)
        try:
            number = float(score)
        except (TypeError, ValueError):
            number = np.nan
        if not np.isfinite(number):
            raise CompileError("XC6005", f"the metric gives {score!r}, which is no finite number")
        self._tried += 1
        if self._progress is not None:
            total = max(self._tried, len(self._products) + 2)
            self._progress("budget", self._tried, total)
        return number, seen
