"""The accuracy budget: as few products in float as it takes, the honest statement when nothing helps."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from xcompile.compiler.calibration.budget import BudgetReport, meet_budget
from xcompile.compiler.calibration.sensitivity import ProductCost
from xcompile.compiler.precisions import NodePrecision
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.abi import TensorSpec

PRODUCTS = ("a", "b[0]", "c", "d")
TABLE = CalibrationTable("m", "0", "mse", 1, keep_float=("first",))


class Model:
    """Gives the sum of the errors of its integer products."""

    inputs = (TensorSpec("x", "float32", ("N",)),)
    outputs = ()

    def __init__(self, errors: Mapping[str, float], kept: set[str]) -> None:
        self.error = sum(e for name, e in errors.items() if name not in kept)
        self.rows = [NodePrecision(n, "float32" if n in kept else "int8", 10, "") for n in PRODUCTS]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x + self.error

    def precisions(self) -> list[NodePrecision]:
        return self.rows


def search(
    errors: Mapping[str, float], budget: float, metric: Any = None, work: Mapping[str, int] = {}
) -> BudgetReport:
    def build(table: CalibrationTable | None) -> Any:
        kept = set(PRODUCTS) if table is None else {g.replace("[[]", "[") for g in table.keep_float}
        return Model(errors, kept)

    def costs(
        samples: Sequence[Mapping[str, np.ndarray]], told: Callable[[int, int], None]
    ) -> list[ProductCost]:
        assert [sample["x"].shape for sample in samples] == [(32,)]
        told(4, 4)
        return [ProductCost(n, errors.get(n, 0.0) ** 2, work.get(n, 10)) for n in PRODUCTS]

    def score(model: Any) -> float:
        return 100.0 - float(model(np.ones(50)).mean() - 1)

    return meet_budget(build, costs, TABLE, metric or score, budget)


def test_nothing_is_kept_when_all_integers_are_good_enough() -> None:
    report = search({"a": 0.1, "c": 0.2}, 0.5)
    assert report.met
    assert (report.floating, report.integer) == (100.0, pytest.approx(99.7))
    assert report.products == ()
    assert report.table == TABLE
    assert report.integer_share == 1.0


def test_the_most_sensitive_products_stay_in_float_and_no_more() -> None:
    report = search({"a": 0.3, "b[0]": 5.0, "c": 2.0, "d": 0.1}, 0.5)
    assert report.met
    assert [each.product for each in report.products] == ["b[0]", "c", "a", "d"]
    assert [each.kept for each in report.products] == [True, True, False, False]
    assert [round(each.noise_db) for each in report.products] == [14, 6, -10, -20]
    assert report.reached == pytest.approx(99.6)
    assert report.integer_share == 0.5
    assert report.table.keep_float == ("first", "b[[]0]", "c")
    assert "2 products in float" in report.statement()
    assert report.text().splitlines()[2].split() == ["b[0]", "14.0", "dB", "25.0%", "in", "float"]


def test_products_with_little_work_for_their_noise_stay_first() -> None:
    report = search({"a": 0.4, "c": 1.0}, 0.5, work={"c": 10, "a": 1})
    assert [each.product for each in report.products][:2] == ["a", "c"]
    report = search({"a": 0.4, "c": 1.0}, 0.5, work={"c": 10, "a": 2})
    assert [each.product for each in report.products][:2] == ["c", "a"]
    assert [each.kept for each in report.products] == [True, False, False, False]


def test_a_budget_that_only_the_float_model_meets_is_not_met() -> None:
    report = search(dict.fromkeys(PRODUCTS, 1.0), 0.5)
    assert not report.met
    assert report.statement() == ("no choice of int8 products stays within 0.5: float 100, int8 96")


@pytest.mark.parametrize("score", [None, "good", float("nan")])
def test_a_metric_gives_a_number(score: object) -> None:
    with pytest.raises(CompileError, match=r"XC6005 the metric gives .* no finite number"):
        search({}, 0.5, lambda model: score)


def data_of(report: BudgetReport) -> Any:
    """What the page of a report shows."""
    found = re.search(r'<script id="report"[^>]*>(.*?)</script>', report.page())
    assert found is not None
    return json.loads(found[1])


def test_the_page_shows_what_stays_in_float_and_why() -> None:
    report = search({"a": 5.0, "b[0]": 0.01}, 0.5)
    shown = data_of(replace(report, table=replace(report.table, model="<script>")))
    assert shown["title"] == "Accuracy budget of <script>"
    assert shown["paragraphs"][0] == report.statement()
    assert shown["paragraphs"][1:3] == [
        "Ranges: observer mse, 1 samples.",
        "In float from the start: first.",
    ]
    assert shown["header"] == ["product", "noise alone", "work", "stays"]
    assert shown["rows"][0] == ["a", "14.0 dB", "25.0%", "in float"]
    assert shown["classes"][:2] == ["doubtful", ""]


def test_the_page_of_a_budget_that_is_not_met_says_so() -> None:
    shown = data_of(search(dict.fromkeys(PRODUCTS, 1.0), 0.5))
    assert shown["paragraphs"][0].startswith("no choice of int8 products stays within 0.5")
    assert shown["paragraphs"][3].startswith("No model was made.")


def test_an_infinite_budget_only_tells_the_scores() -> None:
    report = search({"a": 5.0}, np.inf)
    assert report.met
    assert report.text() == "the metric: float 100, int8 95"
