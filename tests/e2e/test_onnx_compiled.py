"""The official backend suite of ONNX through our backend: a sample always, all of it with `-m full`."""

import pytest

from tests.e2e.onnx_compiled import LEDGER, all_cases, failures, wrong
from tests.e2e.onnx_node_cases import node_cases
from tests.e2e.onnx_reference import read_ledger

SAMPLE = 20
"""One in so many cases is in the sample."""


def _check(cases):
    found, ledger = failures(cases), read_ledger(LEDGER)
    assert wrong(found) == {}
    assert {name: why for name, why in found.items() if name not in ledger} == {}
    passing = [case.name for case in cases if case.name in ledger and case.name not in found]
    assert not passing, "these pass now: run python -m tests.e2e.onnx_compiled --shrink"


def test_a_sample_of_the_suite_is_right_or_refused_with_a_code():
    cases = [c for c in all_cases() if c.name not in read_ledger(LEDGER)]
    _check(cases[::SAMPLE])


@pytest.mark.full
def test_all_cases_are_right_or_refused_with_a_code():
    _check(all_cases())


DYNAMIC = 1200
"""So many node cases at least are right when all sizes are known only at run time."""


def test_a_sample_of_node_cases_is_right_or_refused_without_any_known_size():
    cases = [c for c in node_cases() if c.name not in read_ledger(LEDGER)][7 :: 2 * SAMPLE]
    found = failures(cases, dynamic=True)
    assert wrong(found) == {}
    assert len(found) < len(cases) / 3


HARD_WITHOUT_SIZES = {
    "test_affine_grid_2d": "sizes come from branches that constants choose once they are folded",
    "test_conv_with_autopad_same": "the padding follows from the kernel, whose size only the run knows",
    "test_linear_attention_decode_step": "layouts are weighed by sizes that must broadcast to exist",
    "test_attention_4d": "the scale follows from the width of the queries",
    "test_attention_4d_attn_mask_3d": "the mask may turn out to repeat along any axis",
}


def test_cases_that_are_hard_without_any_known_size_are_right():
    cases = [c for c in node_cases() if c.name in HARD_WITHOUT_SIZES]
    assert len(cases) == len(HARD_WITHOUT_SIZES)
    assert failures(cases, dynamic=True) == {}


@pytest.mark.full
def test_most_node_cases_are_right_without_any_known_size():
    found = failures(node_cases(), dynamic=True)
    assert wrong(found) == {}
    assert len(node_cases()) - len(found) >= DYNAMIC


def test_ledger_lists_only_refusals_of_cases_that_exist():
    ledger = read_ledger(LEDGER)
    assert set(ledger) <= {case.name for case in all_cases()}
    assert wrong(ledger) == {}
