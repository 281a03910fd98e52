from tests.e2e.onnx_node_cases import node_cases
from tests.e2e.onnx_reference import compare


def test_node_cases_agree_with_the_ledger():
    assert len(node_cases()) > 1800
    _, passing, fresh = compare()
    assert not fresh, "cases fail that the ledger does not list"
    assert not passing, "listed cases pass: run python -m tests.e2e.onnx_reference --shrink"
