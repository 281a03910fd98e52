"""Sequences and optional values that are gone when the model is imported; and opset 6."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.unit.frontends import control_models, sequence_models
from tests.unit.frontends.onnx_models import model
from tests.unit.nn.onnx_node import f32, run
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.verifier import verify_module
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx

node = helper.make_node
A, B = f32([1, 2]), f32([3, 4])
LAST = {"last": np.array(-1), "one": np.array(1)}


def results(nodes, *outputs, **sizes):
    module = import_onnx(model(nodes, sizes or {"a": [2], "b": [2]}, outputs, LAST))
    return [r.tolist() for r in interpret(module, [A, B][: len(sizes or "ab")])]


PAIR = node("SequenceConstruct", ["a", "b"], ["s"])


def test_tensors_are_taken_out_by_their_position():
    assert results([PAIR, node("SequenceAt", ["s", "last"], ["y"])], "y") == [[3, 4]]


def test_tensors_are_put_in_and_removed():
    nodes = [
        PAIR,
        node("SequenceInsert", ["s", "b", "one"], ["t"]),
        node("SequenceErase", ["t"], ["u"]),
        node("SequenceLength", ["t"], ["n"]),
        node("ConcatFromSequence", ["u"], ["y"], axis=0),
        node("ConcatFromSequence", ["u"], ["z"], axis=-1, new_axis=1),
    ]
    assert results(nodes, "n", "y", "z") == [3, [1, 2, 3, 4], [[1, 3], [2, 4]]]


def test_parts_of_a_tensor_may_lose_their_axis():
    nodes = [
        node("SplitToSequence", ["a"], ["s"], keepdims=0),
        node("SequenceAt", ["s", "one"], ["y"]),
    ]
    assert results(nodes, "y", a=[2]) == [2]


def test_what_is_there_has_an_element():
    nodes = [
        node("Optional", ["a"], ["o"]),
        node("OptionalHasElement", ["o"], ["h"]),
        node("OptionalGetElement", ["o"], ["y"]),
    ]
    assert results(nodes, "h", "y", a=[2]) == [True, [1, 2]]


@pytest.mark.parametrize(
    ("nodes", "code"),
    [
        ([PAIR], "XC1012"),
        ([PAIR, node("Neg", ["s"], ["y"])], "XC1012"),
        ([PAIR, node("SequenceAt", ["s", "a"], ["y"])], "XC2002"),
        ([node("SequenceLength", ["a"], ["y"])], "XC2002"),
    ],
)
def test_sequences_where_tensors_belong_are_refused(nodes, code):
    output = nodes[-1].output[0]
    with pytest.raises(CompileError) as caught:
        results(nodes, output)
    assert caught.value.code == code


def branch(op, *, sequence):
    """A graph that gives an op of `a`, or a sequence of that."""
    nodes = [node(op, ["a", *(["first"] if op == "Squeeze" else [])], ["part"])]
    if sequence:
        nodes.append(node("SequenceConstruct", ["part"], ["made"]))
    name = "made" if sequence else "part"
    return helper.make_graph(nodes, op, [], [helper.ValueInfoProto(name=name)])


def of_branches(condition, then, otherwise, nodes):
    """What `nodes` make of the value `v` that an If gives, for a = [[1, 2]]."""
    choice = node("If", ["c"], ["v"], then_branch=then, else_branch=otherwise)
    inputs = {"c": [], "a": [1, 2]}
    constants = {**LAST, "first": np.array([0])}
    made = model([choice, *nodes], inputs, ["y"], constants, dtypes={"c": TensorProto.BOOL})
    (y,) = interpret(import_onnx(made), [np.array(condition), f32([[1, 2]])])
    return y.tolist()


@pytest.mark.parametrize(("condition", "sum_"), [(True, 3), (False, -3)])
def test_a_sequence_of_what_branches_give_in_different_ranks_is_that_of_the_branch_that_runs(
    condition, sum_
):
    nodes = [
        node("SequenceConstruct", ["v", "v"], ["s"]),
        node("SequenceAt", ["s", "last"], ["w"]),
        node("ReduceSum", ["w"], ["y"], keepdims=0),
    ]
    branches = branch("Squeeze", sequence=False), branch("Neg", sequence=False)
    assert of_branches(condition, *branches, nodes) == sum_


@pytest.mark.parametrize(("condition", "y"), [(True, [[-1, -2]]), (False, [[1, 2]])])
def test_branches_may_give_sequences(condition, y):
    branches = branch("Neg", sequence=True), branch("Abs", sequence=True)
    assert of_branches(condition, *branches, [node("SequenceAt", ["v", "last"], ["y"])]) == y


def test_lengths_of_parts_must_be_a_scalar_or_a_vector():
    nodes = [
        node("SplitToSequence", ["a", "lengths"], ["s"]),
        node("SequenceAt", ["s", "lengths"], ["y"]),
    ]
    with pytest.raises(CompileError) as caught:
        import_onnx(model(nodes, {"a": [2]}, ["y"], {"lengths": np.ones((1, 1), np.int64)}))
    assert caught.value.code == "XC2003"


@pytest.mark.parametrize("name", sequence_models.CASES)
def test_sequences_whose_length_only_a_run_knows(name):
    case = sequence_models.CASES[name]
    module = import_onnx(case.model)
    with module.context, ir.Location.unknown():
        refine_types(module, module.input_shapes())
        verify_module(module)
    for inputs, expected in case.calls:
        for result, wanted in zip(interpret(module, inputs), expected, strict=True):
            np.testing.assert_array_equal(result, wanted, strict=True)


def test_a_computed_position_that_the_sequence_does_not_have_is_an_error():
    nodes = [PAIR, node("Size", ["a"], ["n"]), node("SequenceAt", ["s", "n"], ["y"])]
    with pytest.raises(CompileError) as caught:
        results(nodes, "y")
    assert caught.value.code == "XC2011"


def looping(*nodes, initial=("s",), body_inputs=("i", "go", "s_in"), body_outputs=("on", "t")):
    """A model of a loop whose body is `nodes`."""
    on = node("Identity", ["go"], ["on"])
    body = control_models.graph([*nodes, on], body_inputs, body_outputs)
    given = [node("SequenceEmpty", [], ["s"]), node("SequenceEmpty", [], ["q"])]
    made = node("Loop", ["n", "", *initial], ["r", "r2"][: len(initial)], body=body, name="grow")
    length = node("SequenceLength", ["r"], ["y"])
    kinds = {"n": TensorProto.INT64, "y": TensorProto.INT64}
    return model([*given, made, length], {"n": [], "x": ["N"]}, ["y"], LAST, dtypes=kinds)


@pytest.mark.parametrize(
    ("nodes", "code", "text"),
    [
        (  # of two ranks
            [node("SequenceInsert", ["s_in", "x"], ["u"]), node("Size", ["x"], ["k"]),
             node("Cast", ["k"], ["f"], to=1), node("SequenceInsert", ["u", "f"], ["t"])],
            "XC2003", "rank 0 and 1",
        ),
        ([node("SequenceInsert", ["s_in", "i"], ["t"])], "XC2002", "i64 in a sequence of f32"),
        ([node("Neg", ["x"], ["t"])], "XC2002", "a tensor"),
        ([node("SequenceAt", ["s_in", "last"], ["v"]), node("SequenceErase", ["s_in"], ["t"]),
          node("Neg", ["v"], ["unread"])], "XC2007", "taken out of a sequence that is empty"),
        ([node("Add", ["s_in", "x"], ["t"])], "XC1012", "sequence"),
    ],
)  # fmt: skip
def test_bodies_that_do_not_fit_the_sequence_that_they_carry_are_refused(nodes, code, text):
    with pytest.raises(CompileError, match=text) as caught:
        import_onnx(looping(*nodes))
    assert caught.value.code == code


@pytest.mark.parametrize("condition", [True, False])
def test_a_branch_that_inserts_another_rank_is_an_error_when_it_is_taken(condition):
    then = [
        node("SplitToSequence", ["a"], ["parts"]),
        node("SequenceInsert", ["parts", "k"], ["more"]),
        node("SequenceAt", ["more", "last"], ["t"]),
    ]
    made = model(
        [node("Cast", ["last"], ["k"], to=1), node("If", ["c"], ["y"],
              then_branch=control_models.graph(then, [], ["t"]),
              else_branch=control_models.graph([node("Neg", ["a"], ["e"])], [], ["e"]))],
        {"c": [], "a": ["N"]}, ["y"], LAST, dtypes={"c": TensorProto.BOOL},
    )  # fmt: skip
    module = import_onnx(made)
    if condition:
        with pytest.raises(CompileError, match="rank 0 and 1"):
            interpret(module, [np.array(True), A])
    else:
        assert interpret(module, [np.array(False), A])[0].tolist() == [-1, -2]


def test_two_sequences_may_hold_tensors_of_different_ranks():
    """Each is read before anything is inserted, so that the ranks are found by trying."""
    read = [node("SequenceAt", [s, "last"], [v]) for s, v in (("s_in", "v"), ("q_in", "w"))]
    used = [node("Neg", ["v"], ["v2"]), node("Neg", ["w"], ["w2"])]
    rows = node("Unsqueeze", ["x", "first"], ["rows"])
    choices = [
        control_models.node(
            "If", ["none"], [result],
            then_branch=control_models.graph([node("Identity", [fresh], [result + "1"])], [], [result + "1"]),
            else_branch=control_models.graph([at, neg], [], [neg.output[0]]),
        )
        for result, fresh, at, neg in (("a", "x", read[0], used[0]), ("b", "rows", read[1], used[1]))
    ]  # fmt: skip
    length = [node("SequenceLength", ["s_in"], ["k"]), node("Equal", ["k", "zero"], ["none"])]
    inserted = [
        node("SequenceInsert", ["s_in", "a"], ["t"]),
        node("SequenceInsert", ["q_in", "b"], ["u"]),
    ]
    made = looping(
        *length, rows, *choices, *inserted,
        initial=("s", "q"), body_inputs=("i", "go", "s_in", "q_in"), body_outputs=("on", "t", "u"),
    )  # fmt: skip
    for name, array in {"zero": np.array(0), "first": np.array([0])}.items():
        made.graph.initializer.append(numpy_helper.from_array(array, name))
    (y,) = interpret(import_onnx(made), [np.array(3), f32([1, 2])])
    assert y == 3


class TestOpset6:
    def test_the_second_operand_meets_the_axis_that_is_told(self):
        x, b = np.zeros((2, 3, 2), np.float32), f32([1, 2, 3])
        y = run("Add", x, b, opset=6, broadcast=1, axis=1)
        assert y[0].tolist() == [[1, 1], [2, 2], [3, 3]]

    def test_without_an_axis_it_meets_the_last_ones(self):
        y = run("Mul", np.ones((2, 2), np.float32), f32([2, 3]), opset=6, broadcast=1)
        assert y.tolist() == [[2, 3], [2, 3]]

    def test_nothing_broadcasts_untold(self):
        with pytest.raises(CompileError) as caught:
            run("Add", np.ones((2, 2), np.float32), f32([1, 2]), opset=6)
        assert caught.value.code == "XC2003"

    def test_slopes_belong_to_channels(self):
        y = run("PRelu", -np.ones((1, 2, 2), np.float32), f32([2, 3]), opset=6)
        assert y.tolist() == [[[-2, -2], [-3, -3]]]

    @pytest.mark.parametrize("op", ["Dropout", "BatchNormalization"])
    def test_training_is_the_default_and_refused(self, op):
        one = f32([1])
        with pytest.raises(CompileError) as caught:
            run(op, np.ones((1, 1), np.float32), *([one] * 4 if op[0] == "B" else []), opset=6)
        assert caught.value.code == "XC1006"
