"""Products whose left operand is transposed, with open sizes: rows are the axis that is contiguous in memory."""

from itertools import permutations

import numpy as np
import pytest
from onnx import numpy_helper

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.support.dims import evaluate

SIZES = {"N": (2, 1, 3), "T": (13, 40, 1), "S": (3, 1, 2)}


def product(perm, dims, bias):
    """A transposed input times a constant matrix, plus a constant; the summed axis has 24 elements."""
    n = Network()
    weight = n.weight(24, 40)
    y = n("Add", n("MatMul", n("Transpose", "x", perm=perm), weight), n.weight(*bias))
    return n.model({"x": ("FLOAT", dims)}, {y: ("FLOAT", None)})


@pytest.mark.parametrize(
    "perm", [p for rank in (3, 4) for p in permutations(range(rank)) if p[-1] == 1]
)
@pytest.mark.parametrize("bias", [(40,), (3, 1, 1)], ids=["of columns", "of a batch"])
def test_products_of_transposed_operands_are_right_at_every_size(perm, bias):
    dims = ["N", 24, "T", "S"][: len(perm)]
    if len(bias) == 3:  # an axis in front of the last two of the product
        dims[perm[-3]] = 3
    model = product(perm, dims, bias)
    made = compile_model(model, pool=shared_pool(), threads=1)
    assert len(made.artifact.program.launches) == 1
    weight, addend = (numpy_helper.to_array(t).astype(np.float64) for t in model.graph.initializer)
    for case in range(3):
        shape = [SIZES[d][case] if isinstance(d, str) else d for d in dims]
        x = np.random.default_rng(case).standard_normal(shape).astype(np.float32)
        want = x.transpose(perm).astype(np.float64) @ weight + addend
        np.testing.assert_allclose(made(x), want, rtol=1e-4, atol=2e-5)


def test_steps_of_a_sequence_are_rows_and_not_images_of_two_rows():
    model = product((2, 0, 1), ["N", 24, "T"], (40,))
    made = compile_model(model, pool=shared_pool(), threads=1)
    (launch,) = made.artifact.program.launches
    assert evaluate(launch.extent, made.artifact.program.bindings([(2, 24, 600)])) <= 8
