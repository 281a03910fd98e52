"""Attention: values from the ONNX text."""

import numpy as np
import pytest

from tests.unit.nn.onnx_node import f32, run
from xcompile.compiler.support.errors import CompileError


def attention(q, k, v, *more, outputs=1, **attributes):
    """Attention of opset 25 with the scale 1, unless another is given."""
    given = {"scale": 1.0, "opset": 25} | attributes
    return run("Attention", f32(q), f32(k), f32(v), *more, outputs=outputs, **given)


ZERO = [[[[0], [0], [0]]]]
"""Three queries or keys of width 1: all scores are equal."""

VALUES = [[[[2], [4], [9]]]]


def test_equal_scores_average_the_values():
    np.testing.assert_allclose(attention(ZERO, ZERO, VALUES).reshape(-1), [5, 5, 5], 1e-6)


def test_causal_queries_see_keys_up_to_their_own():
    y = attention(ZERO, ZERO, VALUES, is_causal=1)
    np.testing.assert_allclose(y.reshape(-1), [2, 3, 5], 1e-6)


def test_past_keys_shift_the_causal_frontier_and_are_given_back():
    past, past_values = np.zeros((1, 1, 1, 1), np.float32), f32([[[[6]]]])
    y, keys, values = attention(ZERO, ZERO, VALUES, None, past, past_values, outputs=3, is_causal=1)
    np.testing.assert_allclose(y.reshape(-1), [4, 4, 21 / 4], 1e-6)
    assert keys.shape == (1, 1, 4, 1)
    assert values.reshape(-1).tolist() == [6, 2, 4, 9]


def test_lengths_end_the_keys_and_place_the_queries_at_their_end():
    lengths = np.array([2])
    y = attention(ZERO, ZERO, VALUES, None, None, None, lengths)
    np.testing.assert_allclose(y.reshape(-1), [3, 3, 3], 1e-6)
    y = attention(ZERO, ZERO, VALUES, None, None, None, lengths, is_causal=1)
    np.testing.assert_allclose(y.reshape(-1), [0, 2, 3], 1e-6)


def test_fully_masked_queries_give_zeros():
    bools = np.array([[True, False, True], [False, False, False], [True, True, True]])
    np.testing.assert_allclose(attention(ZERO, ZERO, VALUES, bools).reshape(-1), [5.5, 0, 5], 1e-6)
    floats = np.where(bools, 0, -np.inf).astype(np.float32)
    np.testing.assert_allclose(attention(ZERO, ZERO, VALUES, floats).reshape(-1), [5.5, 0, 5], 1e-6)


def test_masks_that_are_short_hide_the_last_keys():
    mask = np.array([[True, True]] * 3)
    np.testing.assert_allclose(attention(ZERO, ZERO, VALUES, mask).reshape(-1), [3, 3, 3], 1e-6)


def test_windows_bound_the_keys_on_both_sides():
    y = attention(ZERO, ZERO, VALUES, left_window_size=0, right_window_size=1)
    np.testing.assert_allclose(y.reshape(-1), [3, 6.5, 9], 1e-6)


def test_groups_of_heads_share_keys_and_values():
    q = np.zeros((1, 4, 1, 1), np.float32)
    k, v = np.zeros((1, 2, 1, 1), np.float32), f32([[[[1]], [[2]]]])
    assert attention(q, k, v).reshape(-1).tolist() == [1, 1, 2, 2]


def test_scale_and_softcap_act_before_the_softmax():
    q, k, v = [[[[3]]]], [[[[1], [0]]]], [[[[1], [0]]]]
    y = attention(q, k, v, scale=2.0, softcap=4.0)
    np.testing.assert_allclose(y.item(), 1 / (1 + np.exp(-4 * np.tanh(1.5))), 1e-6)
    y = run(
        "Attention",
        f32([[[[3, 0, 0, 0]]]]),
        f32([[[[1, 0, 0, 0], [0, 0, 0, 0]]]]),
        f32(v),
        opset=23,
        dynamic=False,
    )
    np.testing.assert_allclose(y.item(), 1 / (1 + np.exp(-1.5)), 1e-6)


def test_heads_side_by_side_are_split_and_joined():
    q = np.zeros((1, 2, 2), np.float32)
    v = f32([[[1, 10], [3, 30]]])
    y = attention(q, q, v, q_num_heads=2, kv_num_heads=2)
    assert y.tolist() == [[[2, 20], [2, 20]]]


def test_large_fp16_scores_do_not_overflow():
    q = np.full((1, 1, 1, 4), 200, np.float16)
    v = np.ones((1, 1, 1, 1), np.float16)
    assert run("Attention", q, q, v, opset=23, scale=1.0).item() == 1


@pytest.mark.parametrize(
    ("q", "k", "v", "code"),
    [
        ((1, 3, 2, 4), (1, 2, 2, 4), (1, 2, 2, 4), "XC2004"),
        ((1, 2, 2, 4), (1, 2, 2, 5), (1, 2, 2, 4), "XC2004"),
        ((1, 2, 2, 4), (1, 2, 3, 4), (1, 2, 2, 4), "XC2004"),
        ((2, 2, 2, 4), (1, 2, 2, 4), (1, 2, 2, 4), "XC2004"),
        ((2, 2), (2, 2), (2, 2), "XC2003"),
    ],
)
def test_operands_that_do_not_fit_are_refused(q, k, v, code):
    with pytest.raises(CompileError) as caught:
        run(
            "Attention",
            *(np.zeros(s, np.float32) for s in (q, k, v)),
            opset=23,
            scale=1.0,
            dynamic=False,
        )
    assert (caught.value.code, caught.value.node) == (code, "node")
