"""How large the memory of intermediate tensors is, and models that share it."""

import numpy as np
import onnx
import pytest

import xcompile
from bench import corpus
from bench.memory import kernel_level, live_bound
from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import residual_network
from tests.e2e.test_blocks import mobilenet_v2
from tests.numerics.test_levels import attention_block
from xcompile.runtime.arena import Arena
from xcompile.runtime.errors import RuntimeModelError


def minilm():
    """The corpus's model of one text of 128 tokens."""
    model = onnx.load(corpus.model("minilm"))
    for info in (*model.graph.input, *model.graph.output):
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if not dim.HasField("dim_value"):
                dim.dim_value = (1, 128)[axis]
    return model


@pytest.mark.parametrize(
    "make",
    [
        lambda: mobilenet_v2(1, 224),
        lambda: attention_block(2, 128),
        pytest.param(minilm, marks=pytest.mark.full),
    ],
    ids=["mobilenet_v2", "attention", "minilm"],
)
def test_an_arena_is_hardly_larger_than_what_is_live_at_once(make):
    model = make()
    bound = live_bound(kernel_level(model))
    assert bound > 1 << 16
    assert xcompile.compile(model, pool=shared_pool()).artifact.program.arena <= 1.10 * bound


def test_three_models_share_an_arena_of_the_largest_size():
    random = np.random.default_rng(3)
    models, needed = [], []
    for model in (residual_network(1), mobilenet_v2(1), attention_block(1, 9)):
        executable = xcompile.compile(model, pool=shared_pool()).executable
        shapes = [tuple(map(int, spec.dims)) for spec in executable.inputs]
        inputs = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
        models.append((executable, inputs, executable.run(inputs)))
        needed.append(executable.required_bytes(shapes))
    assert len(set(needed)) == 3
    arena = Arena(max(needed))
    for executable, inputs, wanted in models * 2:
        for name, found in executable.run(inputs, arena=arena).items():
            np.testing.assert_array_equal(found, wanted[name])
    largest, inputs, _ = models[needed.index(max(needed))]
    with pytest.raises(RuntimeModelError, match="XC5007 the arena has"):
        largest.run(inputs, arena=Arena(max(needed) - 64))
