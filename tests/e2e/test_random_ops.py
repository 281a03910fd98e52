"""Random numbers of compiled models: the same in every run, on any number of threads, and well distributed."""

import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled, run
from xcompile.dialects.nn.random import GOLDEN, mixed

MANY = [200, 100]


def draw(op, seed=None, name="node", **attributes):
    given = {} if seed is None else {"seed": seed}
    node = helper.make_node(op, [], ["y"], name=name, shape=MANY, **given, **attributes)
    return compiled([node], {}, ["y"]).executable.run([])["y"]


def test_the_generator_is_splitmix64():
    raw = mixed(np.arange(1, 4, dtype=np.uint64) * np.uint64(GOLDEN))
    assert [hex(v) for v in raw] == [
        "0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f",
    ]  # fmt: skip


def test_uniform_numbers_fill_their_range():
    y = draw("RandomUniform", low=2.0, high=4.0)
    assert y.min() >= 2 and y.max() < 4
    counts = np.histogram(y, 10, (2, 4))[0]
    assert counts.min() > 1850 and counts.max() < 2150  # 2,000 each: 3.5 deviations are 150


def test_normal_numbers_have_their_moments():
    y = draw("RandomNormal", mean=1.0, scale=2.0).astype(np.float64)
    assert y.mean() == pytest.approx(1, abs=0.06)
    assert y.std() == pytest.approx(2, abs=0.05)
    assert ((y - 1) ** 3).mean() == pytest.approx(0, abs=0.6)


def test_a_seed_gives_the_same_numbers_and_another_seed_others():
    a, b, c = (draw("RandomUniform", seed) for seed in (1.0, 1.0, 2.0))
    np.testing.assert_array_equal(a, b)
    assert (a != c).mean() > 0.99


def test_without_a_seed_the_name_of_the_node_is_one():
    a, b, c = (draw("RandomUniform", name=name) for name in ("one", "one", "two"))
    np.testing.assert_array_equal(a, b)
    assert (a != c).mean() > 0.99


def test_dropout_keeps_what_its_mask_says_and_scales_it():
    x, ratio = np.ones((50, 40), np.float32), np.float32(0.25)
    y, mask = run("Dropout", x, ratio, np.array(True), opset=13, outputs=2, seed=3)
    np.testing.assert_array_equal(y, np.where(mask, np.float32(1) / np.float32(0.75), 0))
    assert mask.mean() == pytest.approx(0.75, abs=0.04)


def test_samples_follow_the_probabilities():
    logits = np.log(np.array([[0.1, 0.6, 0.3]], np.float32))
    y = run("Multinomial", logits, sample_size=5000)
    assert np.bincount(y[0], minlength=3) / 5000 == pytest.approx([0.1, 0.6, 0.3], abs=0.025)
