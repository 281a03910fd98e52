"""The reference of what chooses among boxes."""

import numpy as np
import pytest

from xcompile.dialects.nn import boxes

SIDE = np.float32([[[0, 0, 1, 1], [0, 0, 1, 0.5], [0, 2, 1, 3]]])


def find(run, scores, **fields):
    limits = {"limit": np.array(2), "overlap": np.float32(0.4)}
    scores = np.float32(scores).reshape(1, 1, -1)
    found, chosen = run(boxes.FindBoxes, **{"boxes": SIDE, "scores": scores, **limits, **fields})
    return int(found[0, 0]), chosen[0, 0].tolist()


def test_the_best_boxes_stand(run):
    assert find(run, [0.5, 0.9, 0.1]) == (2, [1, 2, -1])
    assert find(run, [0.5, 0.9, 0.1], overlap=np.float32(0.5)) == (2, [1, 0, -1])
    assert find(run, [0.5, 0.9, 0.1], limit=np.array(1)) == (1, [1, -1, -1])
    assert find(run, [0.5, 0.5, 0.5]) == (2, [0, 2, -1])


def test_scores_must_exceed_the_least(run):
    assert find(run, [0.5, np.nan, 0.25], least=np.float32(0.25)) == (1, [0, -1, -1])
    assert find(run, [np.nan, np.nan, np.nan]) == (0, [-1, -1, -1])


def test_centred_boxes(run):
    centred = np.float32([[[0.5, 0.5, 1, 1], [0.25, 0.5, 0.5, 1], [2.5, 0.5, 1, 1]]])
    assert find(run, [0.5, 0.9, 0.1], boxes=centred, centered=True) == (2, [1, 2, -1])


def test_the_chosen_are_listed_by_batch_and_class(run):
    found, chosen = np.array([[1, 0], [0, 2]]), np.full((2, 2, 3), -1)
    chosen[0, 0, 0], chosen[1, 1, :2] = 2, [1, 0]
    rows = run(boxes.ListBoxes, count=np.array(3), found=found, chosen=chosen)
    assert rows.tolist() == [[0, 0, 2], [1, 1, 1], [1, 1, 0]]
    with pytest.raises(ValueError, match="3 elements, and the count says 2"):
        run(boxes.ListBoxes, count=np.array(2), found=found, chosen=chosen)
