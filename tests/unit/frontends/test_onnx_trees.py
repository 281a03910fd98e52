"""Ensembles of decision trees, by what the text of ai.onnx.ml says of the nodes that a row comes by."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.unit.frontends.onnx_models import model
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
NAN = np.nan


def ensemble(**changes):
    """One tree by default: x <= 1 gives 10 to target 0, else 20 to target 1."""
    given = {
        "nodes_featureids": [0], "nodes_splits": [1.0], "nodes_modes": [LEQ], "nodes_truenodeids": [0],
        "nodes_falsenodeids": [1], "nodes_trueleafs": [1], "nodes_falseleafs": [1], "tree_roots": [0],
        "leaf_weights": [10.0, 20.0], "leaf_targetids": [0, 1], "n_targets": 2, **changes,
    }  # fmt: skip
    kinds = {"nodes_splits": np.float32, "nodes_modes": np.uint8, "leaf_weights": np.float32}
    kinds["membership_values"] = np.float32
    attributes = {
        name: numpy_helper.from_array(np.array(value, kinds[name]), name)
        if name in kinds
        else value
        for name, value in given.items()
    }
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    return model([node], {"x": ["N", "F"]}, ["y"], domains={"ai.onnx.ml": 5})


def run(proto, rows):
    (y,) = interpret(import_onnx(proto), [np.array(rows, np.float32)])
    return y.tolist()


@pytest.mark.parametrize(
    ("mode", "first"),
    [(LEQ, [1, 1, 0]), (LT, [1, 0, 0]), (GTE, [0, 1, 1]), (GT, [0, 0, 1]), (EQ, [0, 1, 0]), (NEQ, [1, 0, 1])],
)  # fmt: skip
def test_each_comparison_with_what_is_below_at_and_above_the_threshold(mode, first):
    wanted = [[10, 0] if taken else [0, 20] for taken in first]
    assert run(ensemble(nodes_modes=[mode]), [[0], [1], [2]]) == wanted


@pytest.mark.parametrize("mode", [LEQ, GT, EQ, NEQ])
@pytest.mark.parametrize(("tracks", "wanted"), [(0, [0, 20]), (1, [10, 0])])
def test_a_missing_value_goes_where_the_node_says(mode, tracks, wanted):
    proto = ensemble(nodes_modes=[mode], nodes_missing_value_tracks_true=[tracks])
    assert run(proto, [[NAN]]) == [wanted]


def test_trees_of_different_depth_are_added():
    """The second one: feature 1 > 5 gives 1 to target 0; else feature 0 < 0 gives 2, or 4, to target 1."""
    proto = ensemble(
        nodes_featureids=[0, 1, 0], nodes_splits=[1.0, 5.0, 0.0], nodes_modes=[LEQ, GT, LT],
        nodes_truenodeids=[0, 2, 3], nodes_trueleafs=[1, 1, 1], nodes_falsenodeids=[1, 2, 4],
        nodes_falseleafs=[1, 0, 1], tree_roots=[0, 1], leaf_weights=[10.0, 20.0, 1.0, 2.0, 4.0],
        leaf_targetids=[0, 1, 0, 1, 1],
    )  # fmt: skip
    assert run(proto, [[0, 6], [2, 6], [-1, 5], [2, 0]]) == [[11, 0], [1, 20], [10, 2], [0, 24]]


@pytest.mark.parametrize(
    ("function", "wanted"), [(0, [15, 0]), (1, [30, 0]), (2, [10, 0]), (3, [20, 0])]
)
def test_leaves_are_averaged_over_the_trees_added_or_the_least_or_greatest_taken(function, wanted):
    proto = ensemble(
        nodes_featureids=[0, 0], nodes_splits=[1.0, 1.0], nodes_modes=[LEQ, LEQ], tree_roots=[0, 1],
        nodes_truenodeids=[0, 1], nodes_falsenodeids=[0, 1], nodes_trueleafs=[1, 1],
        nodes_falseleafs=[1, 1], leaf_targetids=[0, 0], aggregate_function=function,
    )  # fmt: skip
    assert run(proto, [[3]]) == [wanted]


def test_a_member_of_the_set_of_its_node_goes_to_the_true_branch():
    proto = ensemble(
        nodes_featureids=[0, 0], nodes_splits=[0.0, 0.0], nodes_modes=[MEMBER, MEMBER],
        nodes_truenodeids=[0, 1], nodes_trueleafs=[1, 1], nodes_falsenodeids=[1, 2],
        nodes_falseleafs=[0, 1], leaf_weights=[1.0, 2.0, 4.0], leaf_targetids=[0, 0, 0], n_targets=1,
        membership_values=[3.0, 5.0, 8.0, NAN, 9.0, NAN],
    )  # fmt: skip
    assert run(proto, [[3], [5], [8], [9], [4], [NAN]]) == [[1], [1], [1], [2], [4], [4]]


def test_a_tree_without_rows_and_a_transform():
    assert run(ensemble(), np.zeros((0, 1))) == []
    (y,) = run(ensemble(post_transform=2, leaf_weights=[0.0, 0.0]), [[0]])
    assert y == [0.5, 0.5]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"tree_roots": [1]}, "XC2007"),
        ({"nodes_truenodeids": [2]}, "XC2007"),
        ({"nodes_truenodeids": [-1]}, "XC2007"),
        ({"nodes_splits": [1.0, 2.0]}, "XC2007"),
        ({"nodes_modes": [7]}, "XC2007"),
        ({"leaf_targetids": [0, 2]}, "XC2007"),
        ({"aggregate_function": 4}, "XC2007"),
        ({"post_transform": 4}, "XC1006"),
        ({"nodes_trueleafs": [0]}, "XC1013"),
    ],
)
def test_trees_that_contradict_themselves_are_refused(changes, code):
    with pytest.raises(CompileError, match=code):
        import_onnx(ensemble(**changes))
