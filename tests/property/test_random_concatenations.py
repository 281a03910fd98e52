"""Random concatenations, with open sizes, of what kernels of many families make, are right on any number of threads."""

import numpy as np
import pytest

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network, reference
from xcompile.compiler.api import compile as compile_model

NAMES = ("N", "A", "B", "C")


def part(n, x, kind, channels):
    """What one operand is made by, and its channels."""
    match kind:
        case "map":
            return n("Sigmoid", n("Mul", x, n.weight(1))), channels
        case "conv":
            return n("Relu", n("Conv", x, n.weight(5, channels, 3, 3), pads=[1] * 4)), 5
        case "rows":
            return n("Softmax", x, axis=-1), channels
        case "pool":
            return n("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4), channels
        case "contraction":
            return n("MatMul", x, n.weight(6, 6)), channels
        case "depthwise":
            return n("Conv", x, n.weight(channels, 1, 3, 3), pads=[1] * 4, group=channels), channels
    raise AssertionError(kind)


def concatenation(seed):
    """A concatenation of two to four operands on a random axis, maybe with something behind it."""
    random, n = np.random.default_rng(seed), Network(seed)
    axis = int(random.integers(0, 4))
    kinds = ["map", "conv", "rows", "pool", "contraction", "depthwise"]
    if axis != 1:
        kinds.remove("conv")  # which changes the number of channels
    shapes, ends = {}, []
    for number in range(int(random.integers(2, 5))):
        channels = int(random.choice([16, 3, 32])) if axis == 1 else 8
        open_size = random.random() < 0.5
        size = f"S{number}" if axis in (0, 2) and open_size else int(random.integers(1, 5))
        shape = ["N", channels, "H", 6]
        if axis in (0, 2):
            shape[axis] = size
        name = f"x{number}"
        shapes[name] = shape
        kind = str(random.choice(kinds))
        ends.append(part(n, name, kind, channels)[0])
    y = n("Concat", *ends, axis=axis)
    if random.random() < 0.5:
        y = n("Relu", y)
    if random.random() < 0.3:
        y = n("Concat", y, n("Neg", y), axis=int(random.integers(0, 4)))
    return n.model({k: ("FLOAT", v) for k, v in shapes.items()}, {y: ("FLOAT", None)}), shapes


def _check(seed):
    model, shapes = concatenation(seed)
    made = {t: compile_model(model, pool=shared_pool(), threads=t) for t in (1, 3)}
    for case in range(3):
        random = np.random.default_rng(case)
        known = {"N": (1, 2, 5)[case], "H": (7, 1, 4)[case]}
        feeds = {}
        for name, shape in shapes.items():
            sizes = [
                d if isinstance(d, int) else known.setdefault(d, int(random.integers(1, 6)))
                for d in shape
            ]
            feeds[name] = random.standard_normal(sizes).astype(np.float32)
        wanted = reference(model, feeds)[0]
        got = made[1].run(feeds)
        (result,) = got.values()
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(*made[3].run(feeds).values(), result)


@pytest.mark.parametrize("seed", range(12))
def test_random_concatenations_are_right_at_every_size(seed):
    _check(seed)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(12, 200))
def test_more_random_concatenations_are_right_at_every_size(seed):
    _check(seed)
