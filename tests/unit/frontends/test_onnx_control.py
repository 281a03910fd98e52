"""If, Loop and Scan from ONNX: what is imported, and what is refused."""

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.unit.frontends.control_models import (
    BOOL,
    CASES,
    INT64,
    TRUE,
    f32,
    graph,
    loop,
    node,
    scan,
)
from tests.unit.frontends.onnx_models import model
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.rewrite import walk
from xcompile.compiler.ir.verifier import verify_module
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx


def imported(proto: onnx.ModelProto):
    module = import_onnx(proto.SerializeToString())
    with module.context, ir.Location.unknown():
        verify_module(module)
    return module


def op_names(module) -> list[str]:
    return [operation.name for operation in walk(module)]


def refused(proto: onnx.ModelProto, code: str) -> str:
    with pytest.raises(CompileError) as caught:
        import_onnx(proto.SerializeToString())
    assert caught.value.code == code, str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", sorted(CASES))
def test_models_compute_what_onnx_says(name: str) -> None:
    case = CASES[name]()
    module = imported(case.model)
    with module.context, ir.Location.unknown():
        refine_types(module, module.input_shapes())
        verify_module(module)
    for inputs, expected in case.calls:
        results = interpret(module, inputs)
        for result, wanted in zip(results, expected, strict=True):
            assert result.shape == wanted.shape
            np.testing.assert_array_equal(result, wanted)


def test_a_decided_branch_leaves_no_trace() -> None:
    module = imported(CASES["a_branch_of_a_constant_stands_in_place_of_the_node"]().model)
    assert "nn.if" not in op_names(module)


def test_branches_of_different_ranks_end_where_the_ranks_agree() -> None:
    module = imported(CASES["a_branch_that_squeezes_where_it_can"]().model)
    names = op_names(module)
    assert names.count("nn.if") == 1
    assert names.count("nn.exp") == 1
    assert names.count("nn.mul") == 2


def branching(then: onnx.GraphProto, other: onnx.GraphProto, *more: onnx.NodeProto, output="y"):
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other, name="branch"), *more]
    return model(
        nodes, {"c": [], "x": [2, 2]}, [output], {"zero": np.array([0])}, dtypes={"c": BOOL}
    )


SAME = graph([node("Identity", ["x"], ["s"])], [], ["s"])
TALLER = graph([node("Unsqueeze", ["x", "zero"], ["u"])], [], ["u"])


def test_a_branch_that_contradicts_an_op_is_an_error_when_it_is_taken() -> None:
    product = node("LSTM", ["y", "w", "r"], ["h"], hidden_size=1, name="needs_three_axes")
    proto = branching(TALLER, SAME, product, output="h")
    proto.graph.initializer.extend(
        [
            onnx.numpy_helper.from_array(np.ones((1, 4, n), np.float32), name)
            for name, n in (("w", 2), ("r", 1))
        ]
    )
    module = imported(proto)
    x = np.ones((2, 2), np.float32)
    (h,) = interpret(module, [TRUE, x])
    assert h.shape == (1, 1, 2, 1)
    with pytest.raises(CompileError, match=r"rank 2, not 3.*needs_three_axes"):
        interpret(module, [~TRUE, x])


def test_an_op_that_is_wrong_in_both_branches_is_refused() -> None:
    product = node("LSTM", ["y", "w", "r"], ["h"], hidden_size=1)
    wrong = branching(SAME, graph([node("Neg", ["x"], ["n"])], [], ["n"]), product, output="h")
    wrong.graph.initializer.extend(
        [onnx.numpy_helper.from_array(np.ones((1, 4, 1), np.float32), name) for name in "wr"]
    )
    refused(wrong, "XC2003")


def test_an_output_of_the_model_whose_rank_depends_on_data_is_refused() -> None:
    text = refused(branching(SAME, TALLER), "XC2010")
    assert "'branch'" in text
    assert "the data of 'c' decides" in text


def squeezing(sizes: list[int | str], declared: list[int] | None = None) -> onnx.ModelProto:
    """The last node squeezes axis 1 where its size is 1, as exporters write it."""
    sized = [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["n"])]
    flat = graph([node("Squeeze", ["x", "one"], ["f"])], [], ["f"])
    same = graph([node("Identity", ["x"], ["s2"])], [], ["s2"])
    branch = node("If", ["c"], ["y"], then_branch=flat, else_branch=same, name="branch")
    nodes = [*sized, node("Equal", ["n", "one"], ["c"]), branch]
    proto = model(nodes, {"x": sizes}, ["y"], {"one": np.array([1])})
    if declared is not None:
        info = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, declared)
        proto.graph.output[0].CopyFrom(info)
    return proto


def test_the_size_that_decides_the_rank_of_an_output_is_named() -> None:
    text = refused(squeezing(["batch", "width"]), "XC2010")
    assert "declare the size that decides, axis 1 of 'x' ('width'), as a number" in text


@pytest.mark.parametrize(("sizes", "rank"), [([3, 1], 1), ([3, 2], 2), (["batch", 1], 1)])
def test_a_stated_size_decides_the_rank_of_an_output(sizes, rank: int) -> None:
    module = imported(squeezing(sizes))
    assert "nn.if" not in op_names(module)
    assert ir.RankedTensorType(module.main.type.results[0]).rank == rank


@pytest.mark.parametrize(("declared", "right", "wrong"), [([3], 1, 2), ([3, 2], 2, 1)])
def test_the_declared_rank_of_an_output_decides_between_branches(declared, right, wrong) -> None:
    module = imported(squeezing(["batch", "width"], declared))
    x = f32(*range(3 * right)).reshape(3, right)
    (y,) = interpret(module, [x])
    assert y.shape == ((3,) if right == 1 else (3, 2))
    np.testing.assert_array_equal(y.reshape(x.shape), x)
    message = f"declares an output of rank {len(declared)}, which is {3 - len(declared)} here"
    with pytest.raises(CompileError, match=message):
        interpret(module, [np.ones((3, wrong), np.float32)])


def test_a_declared_rank_that_no_branch_gives_decides_nothing() -> None:
    assert "axis 1 of 'x'" in refused(squeezing(["batch", "width"], [1, 2, 3]), "XC2010")


def test_ranks_that_stay_apart_for_too_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xcompile.frontends.onnx.scope.MOST_COPIES", 5)
    chain = [node("Neg", [f"n{i}" if i else "y"], [f"n{i + 1}"]) for i in range(6)]
    refused(
        branching(SAME, TALLER, *chain, node("Size", ["n6"], ["size"]), output="size"), "XC1013"
    )


@pytest.mark.parametrize(
    ("then", "other", "code"),
    [
        (SAME, graph([], [], []), "XC1011"),
        (graph([], ["given"], ["x"]), SAME, "XC1011"),
        (SAME, graph([], [], ["c"]), "XC2002"),
        (SAME, graph([], [], ["nowhere"]), "XC1008"),
        (SAME, graph([node("Neg", ["nowhere"], ["n"])], [], ["n"]), "XC1008"),
        (SAME, graph([node("Neg", ["x"], ["n"]), node("Neg", ["x"], ["n"])], [], ["n"]), "XC1008"),
        (SAME, graph([node("Neg", ["b"], ["a"]), node("Neg", ["a"], ["b"])], [], ["a"]), "XC1009"),
    ],
)  # fmt: skip
def test_branches_that_do_not_fit_are_refused(then, other, code: str) -> None:
    refused(branching(then, other), code)


def test_values_of_a_branch_are_not_seen_outside() -> None:
    refused(branching(SAME, SAME, node("Neg", ["s"], ["z"]), output="z"), "XC1008")


def test_a_node_that_a_graph_of_its_own_waits_for_is_a_cycle() -> None:
    refused(branching(graph([node("Neg", ["y"], ["n"])], [], ["n"]), SAME), "XC1009")


BODY = graph([node("Neg", ["a"], ["a2"])], ["i", "go", "a"], ["go", "a2"])


def looping(body: onnx.GraphProto, **more: object) -> onnx.ModelProto:
    return model(
        [loop(body, ["y"], **more)],
        {"n": [], "c": [], "x": [2]},
        ["y"],
        dtypes={"n": INT64, "c": BOOL},
    )


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (graph([], ["i", "go"], ["go"]), "XC1011"),
        (graph([], ["i", "go", "a", "b"], ["go", "a"]), "XC1011"),
        (graph([], ["i", "go", "a"], ["go"]), "XC1011"),
        (graph([], ["i", "go", "a"], ["a", "a"]), "XC2002"),
        (graph([], ["i", "go", "a"], ["go", "i"]), "XC2002"),
        (graph([node("Unsqueeze", ["a", "i"], ["u"])], ["i", "go", "a"], ["go", "u"]), "XC2003"),
    ],
)
def test_bodies_of_loops_that_do_not_fit_are_refused(body: onnx.GraphProto, code: str) -> None:
    refused(looping(body), code)


def test_a_carried_value_whose_rank_changes_is_refused() -> None:
    body = graph(
        [node("Unsqueeze", ["a", "k"], ["u"])], ["i", "go", "a"], ["go", "u"], {"k": np.array([0])}
    )
    refused(looping(body), "XC2003")


def test_a_loop_that_never_ends_is_refused() -> None:
    refused(looping(BODY, trip=""), "XC1006")


def test_loops_in_loops_are_imported_in_time_that_does_not_double_with_each() -> None:
    body = graph([node("Concat", ["a29", "x"], ["z"], axis=0)], ["i", "go29", "a29"], ["go29", "z"])
    for depth in range(28, -1, -1):
        inner = loop(body, [f"y{depth}"], initial=[f"a{depth}"])
        body = graph([inner], ["i", f"go{depth}", f"a{depth}"], [f"go{depth}", f"y{depth}"])
    module = imported(looping(body))
    (y,) = interpret(module, [np.array(1), TRUE, f32(1, 2)])
    np.testing.assert_array_equal(y, f32(1, 2, 1, 2))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"scan_input_axes": [0, 1]}, "XC1010"),
        ({"scan_input_axes": [2]}, "XC2006"),
        ({"scan_output_directions": [0, 0]}, "XC1010"),
        ({"count": 3}, "XC1010"),
        ({"count": 0}, "XC1010"),
    ],
)
def test_scans_that_do_not_fit_are_refused(changes: dict[str, object], code: str) -> None:
    body = graph([node("Add", ["s", "e"], ["s2"])], ["s", "e"], ["s2", "s2"])
    made = scan(body, ["x0", "x"], ["last", "all"], **{"count": 1, **changes})
    refused(model([made], {"x0": [2], "x": [3, 2]}, ["last", "all"]), code)


def test_scan_inputs_of_different_lengths_are_refused() -> None:
    body = graph([node("Add", ["a", "b"], ["s"])], ["a", "b"], ["s"])
    proto = model([scan(body, ["x", "z"], ["y"], 2)], {"x": [3, 2], "z": [4, 2]}, ["y"])
    refused(proto, "XC2004")


def test_a_function_that_calls_itself_from_a_graph_inside_it_is_refused() -> None:
    body = graph([node("Again", ["a"], ["a2"], domain="my")], ["i", "go", "a"], ["go", "a2"])
    function = helper.make_function(
        "my", "Again", ["x"], ["y"],
        [node("Constant", [], ["n"], value=onnx.numpy_helper.from_array(np.array(3))), loop(body, ["y"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    proto = model(
        [node("Again", ["x"], ["y"], domain="my")],
        {"x": [1]},
        ["y"],
        functions=[function],
        domains={"my": 1},
    )
    refused(proto, "XC1013")
