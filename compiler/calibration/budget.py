"""Keeps an accuracy: which products a quantized model must compute in more bits for it, or that nothing helps.

What quantizing each product alone does to the outputs is measured on the first held-out samples. Products whose noise
is great for the work they do leave the integers, as few of them as the budget needs; of these, as few as it needs are
in float32, and the others in floats of 16 bits. What decides is the user's metric, on data that calibration has not
seen, and models as they will be used.
"""

import glob
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from xcompile.compiler.calibration.budget_report import BudgetReport, Sensitivity
from xcompile.compiler.calibration.sensitivity import Inputs, ProductCost
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.precisions import INTEGER, integer_share
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.request import Progress
from xcompile.compiler.schedule.products import product_form
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.precision_map import FLOAT
from xcompile.compiler.target.target import Target
from xcompile.runtime.abi import TensorSpec

Metric = Callable[[Any], float]
"""Scores a model, which is called as a `CompiledModel` is; more is better."""

Rules = tuple[tuple[str, str], ...]
"""Of a `PrecisionMap`: globs and precisions."""

Build = Callable[[Rules | None], CompiledModel]
"""Compiles the quantized model with rules behind those that it has, or in floating point with None."""

_SAMPLES = 32
"""Of the held-out samples, so many tell the noise of products."""


class Costs(Protocol):
    """Tells what computing each product alone in fewer bits costs; `SwitchedModel` does."""

    def costs(
        self,
        samples: Sequence[Inputs],
        told: Callable[[int, int], None],
        products: Sequence[str] | None = None,
        *,
        narrow: bool = False,
    ) -> Sequence[ProductCost]:
        """The costs of products (of all, in the model's order), in 8-bit integers or in 16 bits.

        Args:
            samples: inputs of the model by name.
            told: called with how many products are done, and of how many.
            products: names.
            narrow: in 16 bits.
        """
        ...


def narrow_precision(target: Target) -> str:
    """The precision of 16 bits for what integers are too coarse for: "bf16" where it is fast, else "fp16".

    bfloat16 has products of its own, twice as fast as float32's, on some targets. On the others both are float32
    arithmetic on 16 bits in memory, and float16 has the finer steps.
    """
    return "bf16" if product_form("bf16", "bf16", target).instruction != "fma" else "fp16"


def meet_budget(
    build: Build,
    switched: Callable[[], Costs],
    table: CalibrationTable,
    metric: Metric,
    budget: float,
    progress: Progress | None = None,
    *,
    narrow: str = "fp16",
) -> BudgetReport:
    """Find as few products as possible that must not be of integers, and of these as few that must be of float32.

    Args:
        build: compiles the model.
        switched: makes what tells the costs of products; called at most once.
        table: of the model.
        metric: scores models on held-out data, calling each in the same way.
        budget: what the score of the float model may lose, in the metric's unit; infinite to be told the scores.
        progress: told of each product that is measured and of each model that is tried.
        narrow: the precision of 16 bits: "bf16" or "fp16".

    Raises:
        CompileError: XC6005, the metric gives no number.
    """
    return _Search(build, switched, table, metric, budget, progress, narrow).run()


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
        switched: Callable[[], Costs],
        table: CalibrationTable,
        metric: Metric,
        budget: float,
        progress: Progress | None,
        narrow: str,
    ) -> None:
        self._build, self._switched, self._table = build, switched, table
        self._metric, self._budget, self._progress = metric, budget, progress
        self._narrow = narrow
        self._order: list[str] = []
        self._tried = 0
        self._floating = 0.0
        self._known: dict[Rules, tuple[float, float]] = {}

    def run(self) -> BudgetReport:
        recorder = _Recorder(self._build(None))
        self._floating = self._score(recorder)
        if self._holds({}):
            return self._report({}, [])
        costs = self._switched()
        found = costs.costs(recorder.samples, self._told)
        self._order = [cost.name for cost in found]
        ranked = _by_noise(found)
        names = [cost.name for cost in ranked]
        count = self._fewest(1, len(names), lambda n: dict.fromkeys(names[:n], FLOAT))
        if count == len(names):
            return self._report(dict.fromkeys(names, FLOAT), ranked)
        tried = _by_noise(
            costs.costs(recorder.samples, self._told, sorted(names[:count], key=self._order.index), narrow=True)
        )  # fmt: skip
        lost = sum(cost.noise == math.inf for cost in tried)

        def chosen(floats: int) -> dict[str, str]:
            return {c.name: FLOAT if i < floats else self._narrow for i, c in enumerate(tried)}

        floats = self._fewest(lost, count, chosen)
        return self._report(chosen(floats), ranked, {cost.name: cost.noise for cost in tried})

    def _fewest(self, least: int, most: int, chosen: Callable[[int], Mapping[str, str]]) -> int:
        """The least number whose choice holds the budget; `most` where no smaller one does."""
        while least < most:
            middle = (least + most) // 2
            if self._holds(chosen(middle)):
                most = middle
            else:
                least = middle + 1
        return most

    def _told(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress("sensitivity", done, total)

    def _report(
        self,
        chosen: Mapping[str, str],
        ranked: Sequence[ProductCost],
        narrow: Mapping[str, float] | None = None,
    ) -> BudgetReport:
        whole = max(sum(cost.operations for cost in ranked), 1)
        tried = {name: _decibels(noise) for name, noise in (narrow or {}).items()}
        rows = [
            Sensitivity(
                cost.name,
                _decibels(cost.noise),
                cost.operations / whole,
                chosen.get(cost.name, INTEGER),
                tried.get(cost.name),
            )
            for cost in ranked
        ]
        integer, _ = self._scores({})
        reached, share = self._scores(chosen)
        met = self._floating - reached <= self._budget and len(chosen) < max(len(self._order), 1)
        return BudgetReport(
            self._budget, self._narrow, self._floating, integer, reached, met, share, tuple(rows),
            self._rules(chosen), self._table,
        )  # fmt: skip

    def _rules(self, chosen: Mapping[str, str]) -> Rules:
        """The choice as rules, in the model's order."""
        return tuple((glob.escape(n), chosen[n]) for n in self._order if n in chosen)

    def _holds(self, chosen: Mapping[str, str]) -> bool:
        return self._floating - self._scores(chosen)[0] <= self._budget

    def _scores(self, chosen: Mapping[str, str]) -> tuple[float, float]:
        """The score of a choice, and the share of operations that are integer."""
        rules = self._rules(chosen)
        if rules not in self._known:
            model = self._build(rules)
            self._known[rules] = self._score(model), integer_share(model.precisions())
        return self._known[rules]

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
            total = max(self._tried, 2 + 2 * len(self._order).bit_length())
            self._progress("budget", self._tried, total)
        return number


def _by_noise(costs: Sequence[ProductCost]) -> list[ProductCost]:
    """That of the most noise for its work first; of equals, as all that ruin outputs are, that of the least work."""
    return sorted(
        costs, key=lambda c: (c.noise / max(c.operations, 1), -c.operations), reverse=True
    )


def _decibels(ratio: float) -> float:
    return float(10 * np.log10(ratio)) if ratio > 0 else -math.inf
