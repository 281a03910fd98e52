import pytest

from tests.e2e.onnx_node_cases import node_cases
from tests.e2e.onnx_reference import failures, read_ledger

PARTS = 4


@pytest.mark.parametrize("part", range(PARTS))
def test_node_cases_pass_unless_the_ledger_lists_them(part):
    cases = node_cases()[part::PARTS]
    assert len(cases) > 400
    found, ledger = failures(cases), read_ledger()
    assert {name: why for name, why in found.items() if name not in ledger} == {}
    passing = [case.name for case in cases if case.name in ledger and case.name not in found]
    assert not passing, "these pass now: run python -m tests.e2e.onnx_reference --shrink"


def test_ledger_lists_only_cases_that_exist():
    assert set(read_ledger()) <= {case.name for case in node_cases()}
