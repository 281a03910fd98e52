"""The same model at the nn level, at the kernel level and as native code gives the same numbers."""

import numpy as np
import pytest

import xcompile
from tests.e2e.networks import Network, residual_network
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import PIPELINES, default_pipeline
from xcompile.compiler.support.options import Options
from xcompile.compiler.target.registry import targets
from xcompile.dialects.kernel_interpreter import interpret_kernels
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx


def attention_block(batch="N", length="S"):
    n = Network()
    tokens = n("Gather", n("Shape", "x"), n.constant(np.array([1])), axis=0)
    shape = n("Concat", n.constant(np.array([0])), tokens, n.constant(np.array([4, 8])), axis=0)
    heads = []
    for _ in range(3):
        projected = n("Add", n("MatMul", "x", n.weight(32, 32)), n.weight(32))
        heads.append(n("Reshape", projected, shape))
    q, v = (n("Transpose", h, perm=[0, 2, 1, 3]) for h in (heads[0], heads[2]))
    k = n("Transpose", heads[1], perm=[0, 2, 3, 1])
    scores = n("Add", n("Div", n("MatMul", q, k), n.constant(np.float32(8**0.5))), "mask")
    mixed = n("Transpose", n("MatMul", n("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    flat = n("Reshape", mixed, n.constant(np.array([0, 0, 32])))
    y = n("LayerNormalization", n("Add", flat, "x"), n.weight(32), n.weight(32), axis=-1)
    return n.model(
        {"x": ("FLOAT", [batch, length, 32]), "mask": ("FLOAT", [batch, 1, 1, length])},
        {y: ("FLOAT", [batch, length, 32])},
    )


def attention_inputs(batch, length):
    random = np.random.default_rng(batch)
    mask = np.where(random.random((batch, 1, 1, length)) < 0.2, -1e9, 0).astype(np.float32)
    mask[..., 0] = 0
    return [random.standard_normal((batch, length, 32)).astype(np.float32), mask]


def images(batch, _):
    return [np.random.default_rng(batch).standard_normal((batch, 3, 16, 16)).astype(np.float32)]


@pytest.mark.parametrize(
    ("make", "inputs"), [(residual_network, images), (attention_block, attention_inputs)]
)
@pytest.mark.parametrize("target", ["x86-avx2", "x86-avx512"])
def test_all_levels_agree(make, inputs, target):
    machine = targets()[target]
    module, formed = import_onnx(make()), import_onnx(make())
    with formed.context, ir.Location.unknown():
        refine_types(formed, formed.input_shapes())
        run_pipeline(
            formed, parse_pipeline(default_pipeline(machine), PIPELINES), PassContext(machine)
        )
    with worker_pool(Options()) as pool:
        compiled = xcompile.compile(make(), target=target, pool=pool)
    for batch, length in ((1, 7), (3, 16), (2, 33)):
        given = inputs(batch, length)
        with module.context, ir.Location.unknown():
            wanted = interpret(module, given)
        with formed.context, ir.Location.unknown():
            kernels = interpret_kernels(formed, given)
        np.testing.assert_allclose(kernels[0], wanted[0], rtol=1e-4, atol=1e-5)
        if machine.runs_on(xcompile.targets()["cpu"]):
            found = list(compiled.run(given).values())
            np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", ["squeezenet", "minilm", "resnet50"])
def test_both_levels_of_a_real_model_agree(name):
    from bench import corpus
    from bench.entries import ENTRIES

    module, formed = (import_onnx(corpus.model(name)) for _ in range(2))
    given = list(ENTRIES[name](2).values())
    with formed.context, ir.Location.unknown():
        refine_types(formed, formed.input_shapes())
        context = PassContext(targets()["x86-avx2"])
        run_pipeline(formed, parse_pipeline(default_pipeline(context.target), PIPELINES), context)
        kernels = interpret_kernels(formed, given)
    with module.context, ir.Location.unknown():
        wanted = interpret(module, given)
    for found, expected in zip(kernels, wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
