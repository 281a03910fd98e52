"""The networks of the zoo: they compile, with open sizes, and agree with the reference interpreter and onnxruntime."""

import numpy as np
import pytest

import xcompile
from tests.e2e.networks import reference

SMALL = {"width": 8, "blocks": (1, 1, 1, 1), "classes": 10}

CASES = {
    "attention_cluster": (
        lambda: xcompile.zoo.attention_cluster({"rgb": 40, "audio": 24}, clusters=5, classes=10),
        lambda r, n, t: {"rgb": _normal(r, n, t, 40), "audio": _normal(r, n, t, 24)},
    ),
    "nextvlad": (
        lambda: xcompile.zoo.nextvlad(features=48, clusters=6, groups=4, hidden=32, classes=10),
        lambda r, n, t: {"frames": _normal(r, n, t, 48)},
    ),
    "lstm": (
        lambda: xcompile.zoo.lstm(features=48, hidden=24, classes=10),
        lambda r, n, t: {
            "frames": _normal(r, n, t, 48),
            "lengths": r.integers(1, t + 1, n).astype(np.int32),
        },
    ),
    "tsn": (
        lambda: xcompile.zoo.tsn(segments=3, **SMALL),
        lambda r, n, t: {"video": _normal(r, n, 3, 3, 32 + t, 33)},
    ),
    "stnet": (
        lambda: xcompile.zoo.stnet(segments=3, frames=2, **SMALL),
        lambda r, n, t: {"video": _normal(r, n, 3, 6, 32 + t, 33)},
    ),
}


def _normal(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
def test_one_artifact_takes_any_clip_and_agrees_with_onnxruntime(name):
    build, feeds_of = CASES[name]
    model = build()
    compiled = xcompile.compile(model)
    random = np.random.default_rng(1)
    for batch, frames in ((1, 7), (3, 12), (2, 1)):
        feeds = feeds_of(random, batch, frames)
        (expected,) = reference(model, feeds)
        scores = compiled.run(feeds)["scores"]
        assert scores.shape == (batch, 10)
        assert np.abs(scores - expected).max() <= 1e-5 * np.abs(expected).max()


def test_clips_are_told_apart():
    """Scores that hardly depend on the input would agree whatever the network computed."""
    for build, feeds_of in CASES.values():
        feeds = feeds_of(np.random.default_rng(2), 4, 9)
        (scores,) = reference(build(), feeds)
        assert np.ptp(scores, axis=0).max() > 1e-2


def test_the_same_seed_gives_the_same_model_and_another_one_another():
    one, two = (xcompile.zoo.tsn(segments=2, **SMALL, seed=s) for s in (5, 6))
    assert one == xcompile.zoo.tsn(segments=2, **SMALL, seed=5)
    assert one != two


def test_groups_that_do_not_divide_the_features_are_refused():
    with pytest.raises(ValueError, match="7 groups must divide 96"):
        xcompile.zoo.nextvlad(features=48, groups=7)
