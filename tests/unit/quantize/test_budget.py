"""The accuracy budget: as few products out of the integers as it takes, the honest statement when nothing helps."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from xcompile.compiler.calibration.budget import Rules, meet_budget, narrow_precision
from xcompile.compiler.calibration.budget_report import BudgetReport
from xcompile.compiler.calibration.sensitivity import ProductCost
from xcompile.compiler.precisions import NodePrecision
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.registry import targets
from xcompile.runtime.abi import TensorSpec

PRODUCTS = ("a", "b[0]", "c", "d")
TABLE = CalibrationTable("m", "0", "mse", 1, keep_float=("first",))


class Model:
    """Gives the sum of the errors of its products, each in its precision."""

    inputs = (TensorSpec("x", "float32", ("N",)),)
    outputs = ()

    def __init__(
        self, errors: Mapping[str, float], narrow: Mapping[str, float], chosen: Mapping[str, str]
    ) -> None:
        by_name = {"int8": errors, "fp16": narrow, "fp32": {}}
        self.error = sum(by_name[chosen[name]].get(name, 0.0) for name in PRODUCTS)
        self.rows = [NodePrecision(name, chosen[name], 10, "") for name in PRODUCTS]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x + self.error

    def precisions(self) -> list[NodePrecision]:
        return self.rows


@dataclass
class Switched:
    """Says what the errors of products cost."""

    errors: Mapping[str, float]
    narrow: Mapping[str, float]
    work: Mapping[str, int]

    def costs(
        self,
        samples: Sequence[Mapping[str, np.ndarray]],
        told: Callable[[int, int], None],
        products: Sequence[str] | None = None,
        *,
        narrow: bool = False,
    ) -> list[ProductCost]:
        assert [sample["x"].shape for sample in samples] == [(32,)]
        told(4, 4)
        errors = self.narrow if narrow else self.errors
        return [
            ProductCost(n, errors.get(n, 0.0) ** 2, self.work.get(n, 10))
            for n in products or PRODUCTS
        ]


def search(
    errors: Mapping[str, float],
    budget: float,
    metric: Any = None,
    work: Mapping[str, int] = {},
    narrow: Mapping[str, float] = {},
) -> BudgetReport:
    """The report of a model whose products have these errors in int8, and those in 16 bits."""

    def build(rules: Rules | None) -> Any:
        default = "fp32" if rules is None else "int8"
        named = {glob.replace("[[]", "["): name for glob, name in rules or ()}
        return Model(errors, narrow, {name: named.get(name, default) for name in PRODUCTS})

    def score(model: Any) -> float:
        return 100.0 - float(model(np.ones(50)).mean() - 1)

    switched = Switched(errors, narrow, work)
    return meet_budget(build, lambda: switched, TABLE, metric or score, budget)


def chosen(report: BudgetReport) -> list[tuple[str, str]]:
    return [(each.product, each.precision) for each in report.products]


def test_nothing_is_kept_when_all_integers_are_good_enough() -> None:
    report = search({"a": 0.1, "c": 0.2}, 0.5)
    assert report.met
    assert (report.floating, report.integer) == (100.0, pytest.approx(99.7))
    assert report.products == ()
    assert report.table == TABLE
    assert report.rules == ()
    assert report.integer_share == 1.0
    assert "with 0 products in float 99.7" in report.statement()


def test_the_most_sensitive_products_leave_the_integers_and_no_more() -> None:
    report = search({"a": 0.3, "b[0]": 5.0, "c": 2.0, "d": 0.1}, 0.5)
    assert report.met
    assert chosen(report) == [("b[0]", "fp16"), ("c", "fp16"), ("a", "int8"), ("d", "int8")]
    assert [round(each.noise_db) for each in report.products] == [14, 6, -10, -20]
    assert [each.narrow_db for each in report.products] == [-np.inf, -np.inf, None, None]
    assert report.reached == pytest.approx(99.6)
    assert report.integer_share == 0.5
    assert report.rules == (("b[[]0]", "fp16"), ("c", "fp16"))
    assert "with 2 products in fp16 99.6; 50.0% of" in report.statement()
    line = ["b[0]", "14.0", "dB", "-inf", "dB", "25.0%", "fp16"]
    assert report.text().splitlines()[2].split() == line
    assert report.text().endswith(
        "\nwithout a search: --precision='b[[]0]=fp16' --precision=c=fp16"
    )


def test_what_16_bits_lose_too_much_of_is_of_float32() -> None:
    report = search({"a": 9.0, "c": 2.0, "d": 0.1}, 0.5, narrow={"a": 3.0, "c": 0.25})
    assert chosen(report) == [("a", "fp32"), ("c", "fp16"), ("d", "int8"), ("b[0]", "int8")]
    assert report.reached == pytest.approx(99.65)
    assert report.rules == (("a", "fp32"), ("c", "fp16"))
    assert "with 1 product in fp16 and 1 product in float 99.65" in report.statement()


def test_what_16_bits_ruin_is_of_float32_whatever_the_metric_sees() -> None:
    narrow = {"a": 0.1, "b[0]": np.inf, "c": 0.0}
    report = search({"a": 2.0, "b[0]": 3.0, "c": 2.0}, 0.5, narrow=narrow)
    assert dict(chosen(report)) == {"a": "fp16", "b[0]": "fp32", "c": "fp16", "d": "int8"}


def test_products_with_little_work_for_their_noise_come_first() -> None:
    report = search({"a": 0.4, "c": 1.0}, 0.5, work={"c": 10, "a": 1})
    assert [each.product for each in report.products][:2] == ["a", "c"]
    report = search({"a": 0.4, "c": 1.0}, 0.5, work={"c": 10, "a": 2})
    assert chosen(report)[:2] == [("c", "fp16"), ("a", "int8")]


def test_of_products_that_ruin_the_outputs_those_with_the_least_work_come_first() -> None:
    report = search(
        dict.fromkeys("acd", np.inf),
        0.5,
        lambda model: max(0.0, 100 - float(model(np.ones(50))[0])),
        work={"a": 30, "c": 10, "d": 20},
    )
    assert [each.product for each in report.products] == ["c", "d", "a", "b[0]"]
    assert [each.noise_db for each in report.products][:3] == [np.inf] * 3


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


def test_the_page_shows_the_precision_of_each_product_and_why() -> None:
    report = search({"a": 5.0, "b[0]": 0.01}, 0.5, narrow={"a": 0.1})
    shown = data_of(replace(report, table=replace(report.table, model="<script>")))
    assert shown["title"] == "Accuracy budget of <script>"
    assert shown["paragraphs"][0] == report.statement()
    assert shown["paragraphs"][1:3] == [
        "Ranges: observer mse, 1 samples.",
        "In float from the start: first.",
    ]
    assert shown["paragraphs"][4] == "Without a search: --precision=a=fp16"
    assert shown["header"] == ["product", "noise in int8", "in fp16", "work", "computed in"]
    assert shown["rows"][:2] == [
        ["a", "14.0 dB", "-20.0 dB", "25.0%", "fp16"],
        ["b[0]", "-40.0 dB", "", "25.0%", "int8"],
    ]
    assert shown["classes"][:2] == ["doubtful", ""]


def test_the_page_of_a_budget_that_is_not_met_says_so() -> None:
    shown = data_of(search(dict.fromkeys(PRODUCTS, 1.0), 0.5))
    assert shown["paragraphs"][0].startswith("no choice of int8 products stays within 0.5")
    assert shown["paragraphs"][3].startswith("No model was made.")


def test_an_infinite_budget_only_tells_the_scores() -> None:
    report = search({"a": 5.0}, np.inf)
    assert report.met
    assert report.text() == "the metric: float 100, int8 95"


@pytest.mark.parametrize(
    ("target", "features", "precision"),
    [
        ("x86-avx2", set(), "fp16"),
        ("x86-avx512", set(), "fp16"),
        ("x86-avx512", {"avx512bf16"}, "bf16"),
        ("arm-dotprod", set(), "fp16"),
        ("arm-i8mm", set(), "bf16"),
    ],
)
def test_16_bits_are_bfloat16_where_kernels_multiply_it(
    target: str, features: set[str], precision: str
) -> None:
    known = targets()[target]
    assert narrow_precision(replace(known, features=known.features | features)) == precision
