"""Sequences and optional values that are gone when the model is imported; and opset 6."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.unit.frontends.onnx_models import model
from tests.unit.nn.onnx_node import f32, run
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
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


def test_a_position_that_is_computed_is_refused():
    nodes = [PAIR, node("Size", ["a"], ["n"]), node("SequenceAt", ["s", "n"], ["y"])]
    with pytest.raises(CompileError) as caught:
        results(nodes, "y")
    assert caught.value.code == "XC2010"


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
