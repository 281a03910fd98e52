"""Kernels that differ only in their scalars: a few have them inside, the others share one that reads them."""

import numpy as np
import pytest
from onnx import helper

from tests.e2e.compiled_node import compiled
from xcompile.passes.kernel.outline import MOST_VARIANTS

X = np.linspace(0.5, 2, 24, dtype=np.float32).reshape(4, 6)

OPS = {
    "Mul": lambda x, c: x * c,
    "Sub": lambda x, c: x - c,
    "Pow": lambda x, c: x**c,
    "Min": np.minimum,
    "Div": lambda x, c: x / c,
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", OPS)
def test_many_different_scalars_need_few_kernels(op, dtype):
    values = np.linspace(0.5, 1.5, 12).astype(dtype)
    nodes, constants, wanted, last = [], {}, X.astype(dtype), "x"
    for i, value in enumerate(values):
        constants[f"c{i}"] = value
        nodes += [
            helper.make_node(op, [last, f"c{i}"], [f"a{i}"]),
            helper.make_node("Softmax", [f"a{i}"], [f"y{i}"], axis=-1),
        ]
        last = f"y{i}"
        powers = np.exp(OPS[op](wanted, value))
        wanted = powers / powers.sum(axis=-1, keepdims=True)
    model = compiled(nodes, {"x": (dtype, X.shape)}, [last], constants)
    (found,) = model.executable.run([X.astype(dtype)]).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert len(model.artifact.kernels) <= 2 * (MOST_VARIANTS + 1)


def test_a_large_constant_of_one_value_is_never_stored():
    nodes, constants, last = [], {}, "x"
    for i in range(8):
        constants[f"c{i}"] = np.full((256, 1024), i + 1, np.float32)
        nodes += [
            helper.make_node("Add", [last, f"c{i}"], [f"a{i}"]),
            helper.make_node("Softmax", [f"a{i}"], [f"y{i}"], axis=-1),
        ]
        last = f"y{i}"
    model = compiled(nodes, {"x": ("float32", [256, 1024])}, [last], constants)
    assert len(model.artifact.weights) < 1 << 16
