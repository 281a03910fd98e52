"""docs/operators.md says what the importer's table says."""

import pytest

from tests.e2e import operator_table
from xcompile.frontends.onnx.operator_table import operators


def rows():
    text = operator_table.PAGE.read_text()
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return {
        line.split("|")[1].strip(): [c.strip() for c in line.split("|")[1:-1]] for line in lines
    }


def test_every_op_of_the_table_is_on_the_page_with_its_opsets_and_types():
    found = rows()
    for operator in operators():
        name, opsets, dtypes = operator_table.cells(operator)
        if not operator.defined or name in found:
            assert found.pop(name)[:3] == [name, opsets, dtypes]
    assert found == {}, "python -m tests.e2e.operator_table --write"


def test_no_op_without_a_definition_is_refused_in_all_its_cases():
    assert {r[0] for r in rows().values() if r[3] == "no case"} <= NO_CASE


NO_CASE = {
    f"`{name}`"
    for name in (
        "Compress", "GlobalLpPool", "If", "Loop", "MaxRoiPool", "MelWeightMatrix", "Multinomial", "NonZero", "OneHot",
        "Optional", "RandomNormal", "RandomNormalLike", "RandomUniform", "Scan", "SequenceMap", "Unique",
        *(f"ai.onnx.ml.{n}" for n in (
            "FeatureVectorizer", "Imputer", "LabelEncoder", "LinearClassifier", "LinearRegressor", "Normalizer",
            "OneHotEncoder", "Scaler",
        )),
    )
}  # fmt: skip
"""Ops of which no case of the suite is planned; other tests have some."""


@pytest.mark.full
def test_the_page_is_up_to_date():
    assert operator_table.PAGE.read_text() == operator_table.page()
