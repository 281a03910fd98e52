"""Branches and loops as native code: values, sizes, threads, memory, saved libraries, errors."""

import numpy as np
import onnx
import pytest

from tests.e2e.compiled_node import shared_pool
from tests.numerics.test_control_passes import EXTRA
from tests.unit.frontends.control_models import BOOL, CASES, f32, graph, loop, node
from tests.unit.frontends.onnx_models import model
from xcompile.compiler.api import compile as compile_model
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.runtime.errors import RuntimeModelError

VERIFIED = {"verify-each": True}


def artifact_of(proto: onnx.ModelProto):
    return compile_model(proto, pool=shared_pool(), threads=3, options=VERIFIED).artifact


def assert_same(results, wanted) -> None:
    for result, right in zip(results, wanted, strict=True):
        assert result.ndim == right.ndim
        assert result.dtype == right.dtype
        if right.size or result.size:
            np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-5, strict=True)


@pytest.mark.parametrize("name", [*CASES, *EXTRA])
def test_compiled_models_compute_what_the_interpreter_does(name: str) -> None:
    """Run in turn with other inputs, on poisoned memory, on one and on three threads: the same bits."""
    case = (CASES | EXTRA)[name]()
    artifact, reference = artifact_of(case.model), import_onnx(case.model)
    alone, shared = (artifact.load(threads=n, poison=True) for n in (1, 3))
    for _ in range(2):
        for inputs, expected in case.calls:
            given = [np.asarray(array) for array in inputs]
            results = list(alone.run(given).values())
            assert_same(results, expected or interpret(reference, given))
            again = list(shared.run(given).values())
            assert [r.tobytes() for r in results] == [r.tobytes() for r in again]


def test_a_branch_that_contradicts_an_op_ends_the_run_when_it_is_taken() -> None:
    then = graph([node("Unsqueeze", ["x", "zero"], ["t"])], [], ["t"])
    other = graph([node("Identity", ["x"], ["e"])], [], ["e"])
    nodes = [
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("LSTM", ["y", "w", "r"], ["h"], hidden_size=1, name="needs_three_axes"),
    ]
    constants = {
        "zero": np.array([0]),
        "w": np.ones((1, 4, 2), np.float32),
        "r": np.ones((1, 4, 1), np.float32),
    }
    proto = model(nodes, {"c": [], "x": ["N", 2]}, ["h"], constants, dtypes={"c": BOOL})
    compiled = artifact_of(proto).load(threads=1)
    x = np.ones((3, 2), np.float32)
    (h,) = compiled.run([np.array(True), x]).values()
    assert_same([h], interpret(import_onnx(proto), [np.array(True), x]))
    with pytest.raises(RuntimeModelError, match=r"rank 2, not 3.*needs_three_axes"):
        compiled.run([np.array(False), x])
    (again,) = compiled.run([np.array(True), x]).values()
    assert again.tobytes() == h.tobytes()


@pytest.mark.parametrize("length", [-1, 4])
def test_a_sequence_of_scan_8_that_is_longer_than_its_axis_ends_the_run(length) -> None:
    case = CASES["sequences_of_a_scan_of_opset_8_may_be_shorter"]()
    compiled = artifact_of(case.model).load(threads=1)
    (lengths, start, x), _ = case.calls[0]
    with pytest.raises(RuntimeModelError, match="out of range"):
        compiled.run([np.array([3, length, 0]), start, x])
    assert compiled.run([lengths, start, x])


def test_a_check_of_sizes_in_a_branch_counts_only_when_it_is_taken() -> None:
    then = graph([node("Add", ["x", "z"], ["t"])], [], ["t"])
    other = graph([node("Neg", ["x"], ["e"])], [], ["e"])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)],
        {"c": [], "x": ["N"], "z": ["M"]}, ["y"], dtypes={"c": BOOL},
    )  # fmt: skip
    compiled = artifact_of(proto).load(threads=1)
    x, z = f32(1, 2), f32(1, 2, 3)
    assert_same(compiled.run([np.array(False), x, z]).values(), [-x])
    with pytest.raises(RuntimeModelError, match="N and M must be equal"):
        compiled.run([np.array(True), x, z])
    assert_same(compiled.run([np.array(True), x, x]).values(), [2 * x])


def test_what_a_loop_stacks_must_have_one_size() -> None:
    body = graph([node("Concat", ["a", "a"], ["b"], axis=0)], ["i", "go", "a"], ["go", "b", "b"])
    proto = model(
        [loop(body, ["last", "all"])],
        {"n": [], "x": ["N"]},
        ["last", "all"],
        dtypes={"n": onnx.TensorProto.INT64},
    )
    compiled = artifact_of(proto).load(threads=1)
    last, every = compiled.run([np.array(1), f32(1, 2)]).values()
    assert_same([last, every], [f32(1, 2, 1, 2), f32(1, 2, 1, 2)[None]])
    with pytest.raises(RuntimeModelError, match="differ in size"):
        compiled.run([np.array(2), f32(1, 2)])


def test_many_iterations_grow_what_is_stacked_and_carried() -> None:
    body = graph(
        [
            node("Concat", ["a", "x"], ["b"], axis=0),
            node("Less", ["i", "most"], ["on"]),
            node("Cast", ["i"], ["f"], to=1),
        ],
        ["i", "go", "a"], ["on", "b", "f"],
    )  # fmt: skip
    proto = model(
        [loop(body, ["last", "all"], trip="", cond="yes")],
        {"x": [1], "most": []}, ["last", "all"], {"yes": np.array(True)}, dtypes={"most": onnx.TensorProto.INT64},
    )  # fmt: skip
    compiled = artifact_of(proto).load(threads=1, poison=True)
    for most in (1000, 3, 2000):
        last, every = compiled.run([f32(7), np.array(most)]).values()
        assert_same(
            [last, every], [np.full(most + 2, 7, np.float32), np.arange(most + 1, dtype=np.float32)]
        )


def test_a_saved_library_has_branches_and_loops(tmp_path) -> None:
    case = CASES["loops_in_loops_with_branches"]()
    path = tmp_path / "model.so"
    compile_model(case.model, pool=shared_pool(), threads=1).save(path)
    import xcompile

    loaded = xcompile.load(path)
    for inputs, expected in case.calls:
        assert_same(loaded.run([np.asarray(array) for array in inputs]).values(), expected)
