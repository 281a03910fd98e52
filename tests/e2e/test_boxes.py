"""NonMaxSuppression: which boxes stand, in which order."""

import numpy as np
import pytest
from onnx import helper

import xcompile
from tests.e2e.compiled_node import compiled, run

NAN, INF = np.nan, np.inf
SIDE = [[0, 0, 1, 1], [0, 0, 1, 0.5], [0, 2, 1, 3]]
"""The second box is half of the first, the third is apart."""


def suppress(boxes, scores, most=9, overlap=0.4, least=None, **attributes):
    """The chosen rows, for one batch of boxes [n, 4] and scores [n]."""
    boxes = np.float32(boxes).reshape(1, -1, 4)
    scores = np.float32(scores).reshape(1, 1, -1)
    limits = [np.array(most, np.int64), np.float32(overlap)]
    limits += [] if least is None else [np.float32(least)]
    y = run("NonMaxSuppression", boxes, scores, *limits, **attributes)
    assert y.dtype == np.int64
    assert y[:, :2].tolist() == [[0, 0]] * len(y)
    return y[:, 2].tolist()


def test_a_box_stands_unless_a_better_one_overlaps_it():
    assert suppress(SIDE, [0.5, 0.9, 0.1]) == [1, 2]
    assert suppress(SIDE, [0.5, 0.9, 0.1], overlap=0.6) == [1, 0, 2]


def test_an_overlap_of_exactly_the_threshold_is_no_reason():
    assert suppress(SIDE, [0.5, 0.9, 0.1], overlap=0.5) == [1, 0, 2]


def test_of_equal_scores_the_lower_index_is_better():
    apart = [[0, 3 * i, 1, 3 * i + 1] for i in range(9)]
    assert suppress(apart, [1, 2, 1, 2, 1, 2, 1, 2, 0], most=20) == [1, 3, 5, 7, 0, 2, 4, 6, 8]
    assert suppress([SIDE[0]] * 4, [1, 1, 1, 1]) == [0]


def test_only_scores_greater_than_the_threshold_count():
    apart = [[0, 3 * i, 1, 3 * i + 1] for i in range(4)]
    assert suppress(apart, [0.5, 0.25, 0.75, 0], least=0.25) == [2, 0]
    assert suppress(apart, [0, -1, -INF, -2], least=0) == []
    assert suppress(apart, [0, -1, -INF, -2]) == [0, 1, 3, 2]


def test_a_score_that_is_no_number_never_counts():
    apart = [[0, 3 * i, 1, 3 * i + 1] for i in range(4)]
    assert suppress(apart, [NAN, 1, NAN, 2]) == [3, 1]
    assert suppress(apart, [NAN, 1, NAN, 2], least=-INF) == [3, 1]
    assert suppress(apart, [NAN] * 4) == []


@pytest.mark.parametrize("most", [0, -1, -(2**63)])
def test_a_limit_of_none_chooses_none(most):
    assert suppress(SIDE, [1, 2, 3], most=most) == []


def test_without_a_limit_none_is_chosen():
    boxes, scores = np.float32([SIDE]), np.float32([[[1, 2, 3]]])
    assert run("NonMaxSuppression", boxes, scores).shape == (0, 3)


def test_the_limit_cuts_the_worst():
    assert suppress(SIDE, [1, 2, 3], most=1) == [2]
    assert suppress(SIDE, [1, 2, 3], most=2**62) == [2, 1]


def test_no_overlap_is_allowed_unless_it_is_said():
    touching = [[0, 0, 1, 1], [0, 0.9, 1, 2], [0, 2, 1, 3]]
    boxes, scores, most = np.float32([touching]), np.float32([[[3, 2, 1]]]), np.array([5])
    assert run("NonMaxSuppression", boxes, scores, most)[:, 2].tolist() == [0, 2]


def test_corners_may_come_in_any_order():
    flipped = [[1, 1, 0, 0], [1, 0, 0, 0.5], [0, 3, 1, 2]]
    assert suppress(flipped, [0.5, 0.9, 0.1]) == [1, 2]


def test_boxes_may_be_given_by_centre_and_extents():
    centred = [[0.5, 0.5, 1, 1], [0.25, 0.5, 0.5, 1], [2.5, 0.5, 1, 1]]
    assert suppress(centred, [0.5, 0.9, 0.1], center_point_box=1) == [1, 2]
    assert suppress(centred, [0.5, 0.9, 0.1], overlap=0.5, center_point_box=1) == [1, 0, 2]


@pytest.mark.parametrize("overlap", [0, -1])
def test_boxes_without_an_area_overlap_nothing(overlap):
    flat = [[0, 0, 1, 1], [0.5, 0.5, 0.5, 0.5], [0, 0, 1, 0]]
    assert suppress(flat, [3, 2, 1], overlap=overlap) == [0, 1, 2]
    inside_out = [[0.5, 0.5, 1, 1], [0.5, 0.5, -1, -1], [0.5, 0.5, -1, 1]]
    assert suppress(inside_out, [3, 2, 1], overlap=overlap, center_point_box=1) == [0, 1, 2]


def test_boxes_that_are_no_numbers_overlap_nothing():
    assert suppress([[0, 0, 1, 1], [0, NAN, 1, 1], [0, 0, INF, INF]], [3, 2, 1], 9, 0) == [0, 1, 2]


def test_no_boxes_no_classes_no_batches():
    most = np.array(3)
    for batch, classes, count in ((1, 2, 0), (1, 0, 2), (0, 2, 2)):
        boxes = np.zeros((batch, count, 4), np.float32)
        scores = np.zeros((batch, classes, count), np.float32)
        assert run("NonMaxSuppression", boxes, scores, most).shape == (0, 3)


def many(seed, batch=2, classes=3, count=150):
    random = np.random.default_rng(seed)
    low = random.random((batch, count, 2)) * 3
    boxes = np.concatenate([low, low + random.random((batch, count, 2))], -1)
    scores = random.integers(0, 40, (batch, classes, count)) / 40
    return boxes.astype(np.float32), scores.astype(np.float32)


def by_hand(boxes, scores, most, overlap, least):
    """Rows chosen by the text of the op, one box after another."""
    rows = []
    for batch, group in enumerate(scores):
        for kind, row in enumerate(group):
            kept = []
            for k in sorted(range(len(row)), key=lambda k: (-row[k], k)):
                shares = [union_share(boxes[batch, k], boxes[batch, n]) for n in kept]
                if row[k] > least and len(kept) < most and max(shares, default=-1) <= overlap:
                    kept.append(k)
            rows += [[batch, kind, k] for k in kept]
    return rows


def union_share(a, c):
    shared = np.minimum(a[2:], c[2:]) - np.maximum(a[:2], c[:2])
    if (shared <= 0).any():
        return 0
    common = shared[0] * shared[1]
    return common / (np.prod(a[2:] - a[:2]) + np.prod(c[2:] - c[:2]) - common)


def test_many_boxes_of_several_classes_and_batches():
    boxes, scores = many(0)
    for most, overlap, least in ((200, 0.3, 0.1), (7, 0.5, -1), (30, 0, 0.5)):
        limits = np.array([most]), np.float32([overlap]), np.float32([least])
        y = run("NonMaxSuppression", boxes, scores, *limits)
        assert y.tolist() == by_hand(boxes, scores, most, overlap, least)
        assert len(y) > 5


def node_model(sizes):
    node = helper.make_node(
        "NonMaxSuppression", ["b", "s", "most", "overlap", "least"], ["y"], name="choose"
    )
    inputs = {
        "b": (np.float32, sizes[0]),
        "s": (np.float32, sizes[1]),
        "most": (np.int64, [1]),
        "overlap": (np.float32, [1]),
        "least": (np.float32, [1]),
    }
    return compiled([node], inputs, ["y"])


def test_threads_give_the_same_rows_in_the_same_order():
    model = node_model((["a", "n", 4], ["a", "c", "n"]))
    for seed in range(3):
        boxes, scores = many(seed, batch=1 + seed, classes=5)
        given = [boxes, scores, np.array([50]), np.float32([0.3]), np.float32([0.2])]
        wanted = by_hand(boxes, scores, 50, np.float32(0.3), np.float32(0.2))
        for threads in (1, 2, 7):
            executable = model.artifact.load(threads=threads, poison=True)
            assert executable.run(given)["y"].tolist() == wanted


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(xcompile.CompileError, match=r"XC2004 .*boxes and scores"):
        node_model(([1, 5, 4], [1, 2, 6]))
    with pytest.raises(xcompile.CompileError, match=r"XC2004 .*the numbers of a box"):
        node_model(([1, 5, 5], [1, 2, 5]))
    with pytest.raises(xcompile.CompileError, match=r"XC2002 .*rank 3"):
        node_model(([5, 4], [1, 2, 5]))
    model = node_model((["a", "n", 4], ["a", "c", "m"]))
    boxes, scores = np.zeros((1, 5, 4), np.float32), np.zeros((1, 2, 6), np.float32)
    with pytest.raises(xcompile.RuntimeModelError, match="boxes and scores"):
        model.executable.run([boxes, scores, np.array([1]), np.float32([0]), np.float32([0])])
