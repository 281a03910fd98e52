"""Sequences whose length only a run knows as native code: values, threads, memory, other runtimes, errors."""

import resource
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx.reference import ReferenceEvaluator

from tests.e2e.test_control import artifact_of
from tests.unit.frontends.control_models import INT64, loop, node
from tests.unit.frontends.onnx_models import model
from tests.unit.frontends.sequence_models import CASES, CONSTANTS, HEAD, N, X, body_of, insert
from xcompile.runtime.errors import RuntimeModelError

ALWAYS = (
    "rows_that_a_loop_collects_are_joined",
    "tensors_that_differ_in_size_are_joined_along_the_last_axis",
    "tensors_of_all_sizes_are_put_at_computed_positions",
    "scalars_and_numbers",
    "a_branch_decides_whether_a_tensor_is_inserted",
    "slices_of_an_axis_of_open_size_are_stacked_1",
)
"""The cases that are compiled in each run of the tests."""


@pytest.mark.parametrize(
    "name", [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.full) for n in CASES]
)
def test_compiled_models_give_what_is_stated(name: str) -> None:
    """Run in turn with other inputs, on poisoned memory, on one and on three threads: the same bits."""
    case = CASES[name]
    artifact = artifact_of(case.model)
    alone, shared = (artifact.load(threads=n, poison=True) for n in (1, 3))
    for _ in range(2):
        for inputs, expected in case.calls:
            results = list(alone.run(list(inputs)).values())
            for result, wanted in zip(results, expected, strict=True):
                np.testing.assert_array_equal(result, wanted, strict=True)
            again = list(shared.run(list(inputs)).values())
            assert [r.tobytes() for r in results] == [r.tobytes() for r in again]


@pytest.mark.parametrize("name", CASES)
def test_other_runtimes_give_what_is_stated(name: str) -> None:
    """onnxruntime, and ONNX's evaluator, which can't insert into an empty sequence at a position."""
    case = CASES[name]
    names = [info.name for info in case.model.graph.input]
    onnxruntime.set_default_logger_severity(4)
    others = [onnxruntime.InferenceSession(case.model.SerializeToString())]
    if name not in (
        "tensors_are_put_in_front",
        "tensors_of_all_sizes_are_put_at_computed_positions",
    ):
        others.append(ReferenceEvaluator(case.model))
    for other in others:
        for inputs, expected in case.calls:
            results = other.run(None, dict(zip(names, inputs, strict=True)))
            for result, wanted in zip(results, expected, strict=True):
                np.testing.assert_array_equal(result, wanted, strict=True)


@pytest.fixture(scope="module")
def growing():
    """The heads of x, as many as n says, joined along the first axis (y) and stacked (z), and that at a place (w)."""
    nodes = [
        node("SequenceEmpty", [], ["s"]),
        loop(body_of([*HEAD, insert("head")]), ["r"], cond="yes", initial=["s"]),
        node("SequenceAt", ["r", "place"], ["w"], name="taken"),
        node("ConcatFromSequence", ["r"], ["y"], axis=0, name="joined"),
        node("ConcatFromSequence", ["r"], ["z"], axis=0, new_axis=1, name="stacked"),
    ]
    made = model(
        nodes, {"n": [], "x": ["N", "M"], "place": []}, ["y", "z", "w"], CONSTANTS,
        dtypes={"n": INT64, "place": INT64},
    )  # fmt: skip
    return artifact_of(made).load(threads=1)


@pytest.mark.parametrize(
    ("count", "place", "problem"),
    [
        (1, 1, "out of range.*taken|taken.*out of range"),
        (1, -2, "out of range.*taken|taken.*out of range"),
        (0, 0, "taken"),
        (2, 0, "tensors of a sequence that is concatenated differ in size.*stacked"),
    ],
)
def test_what_a_sequence_does_not_have_ends_the_run(growing, count, place, problem) -> None:
    with pytest.raises(RuntimeModelError, match=problem):
        growing.run([N[count], X, np.array(place)])
    y, z, w = growing.run([N[1], X, np.array(-1)]).values()
    assert (y.tolist(), z.tolist(), w.tolist()) == ([[1, 2]], [[[1, 2]]], [[1, 2]])


def test_a_number_of_iterations_for_which_there_is_no_memory_ends_the_run(growing) -> None:
    """Tensors of 64 MiB are collected for ever; a GiB is left."""
    x = np.zeros((1, 1 << 24), np.float32)
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        with pytest.raises(RuntimeModelError, match="memory"):
            growing.run([np.array(1 << 40), x, np.array(0)])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    y, _, _ = growing.run([N[1], X, np.array(0)]).values()
    assert y.tolist() == [[1, 2]]
