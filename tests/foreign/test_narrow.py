"""Models in 16 bits compiled for AArch64 and run in qemu: every family of kernels, and what they give in numpy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import xcompile
from bench import corpus
from bench.entries import ENTRIES
from bench.narrow import cosine
from tests.e2e.compiled_node import shared_pool
from tests.e2e.test_narrow_floats import NARROW, emulated, matrices, residual
from tests.e2e.test_narrow_models import LEAST
from tests.foreign.models import run_compiled
from tests.foreign.test_models import ARM, EXAMPLE, digits
from tests.kernels.test_half_arithmetic import BINARY, UNARY, half_model
from tests.property.random_narrow import Graph
from xcompile.compiler.model import CompiledModel


def compiled_for(model: Any, name: str, precision: str) -> CompiledModel:
    return xcompile.compile(model, f"{name}-{precision}", pool=shared_pool())


@pytest.mark.parametrize("build", [residual, matrices])
@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("arm-neon", "fp16"),
        ("arm-neon", "bf16"),
        ("arm-i8mm", "fp16"),
        ("arm-i8mm", "bf16"),
        pytest.param("arm-dotprod", "fp16", marks=pytest.mark.full),
        pytest.param("arm-dotprod", "bf16", marks=pytest.mark.full),
    ],
)
def test_products_pools_and_sums_give_what_each_op_gives_in_numpy_to_the_bit(
    build: Callable[[Graph], onnx.ModelProto], name: str, precision: str
) -> None:
    shapes = {"x": (2, 3, 13, 11)} if build is residual else {"x": (3, 19, 37), "v": (37,)}
    graph = Graph(7)
    model = build(graph)
    inputs = {name: graph.whole(*shape) for name, shape in shapes.items()}
    compiled = compiled_for(model, name, precision)
    assert "fallback" not in {facts.family for facts in compiled.artifact.kernels.values()}
    wanted = emulated(model, inputs, f"{name}-{precision}")
    for got, want in zip(run_compiled(compiled, inputs).values(), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize("name", ARM)
def test_rows_and_functions_are_within_a_unit_of_the_last_place(name: str, precision: str) -> None:
    """Each behind a product that is exact, so that it is of 16 bits: results differ where float32 rounds otherwise."""
    graph = Graph(11)
    x = graph("MatMul", "x", graph.constant(np.eye(37, dtype=np.float32) / 2))
    scale = graph.constant(graph.whole(37))
    results = [
        graph("Softmax", x, axis=-1),
        graph("Softmax", x, axis=1),
        graph("LayerNormalization", x, scale, scale),
        graph("ReduceMean", x, axes=[2]),
        *(graph(op, x) for op in ("Exp", "Tanh", "Sigmoid", "Erf", "Relu", "Neg", "Abs")),
    ]
    model = graph.model({"x": (3, 19, 37)}, *results)
    inputs = {"x": graph.whole(3, 19, 37, most=6)}
    wanted = emulated(model, inputs, f"{name}-{precision}")
    found = run_compiled(compiled_for(model, name, precision), inputs).values()
    digits_kept = {"fp16": 10, "bf16": 7}[precision]
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=2.0**-digits_kept, atol=2.0**-24)


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize("name", ARM)
def test_the_digits_model_is_near_float32(name: str, precision: str) -> None:
    images = digits().images[:20]
    here = xcompile.compile(EXAMPLE / "digits.onnx", pool=shared_pool())
    wide = here.run({"images": images})["scores"]
    model = compiled_for(EXAMPLE / "digits.onnx", name, precision)
    scores = run_compiled(model, {"images": images})["scores"]
    assert cosine(scores, wide) >= {"fp16": 0.99999, "bf16": 0.9999}[precision]
    np.testing.assert_array_equal(scores.argmax(axis=1), wide.argmax(axis=1))


@pytest.mark.full
@pytest.mark.parametrize("precision", NARROW)
def test_the_digits_model_loses_no_more_than_half_a_point(precision: str) -> None:
    held_out = digits()
    model = compiled_for(EXAMPLE / "digits.onnx", "arm-neon", precision)
    scores = run_compiled(model, {"images": held_out.images})["scores"]
    assert (scores.argmax(axis=1) == held_out.labels).mean() >= 0.988 - 0.005


@pytest.mark.full
@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize("target", ["arm-neon", "arm-i8mm"])
@pytest.mark.parametrize("name", ["squeezenet", "minilm"])
def test_a_real_model_is_near_float32(name: str, target: str, precision: str) -> None:
    path, feeds = corpus.model(name), ENTRIES[name](1)
    wide = xcompile.compile(path, pool=shared_pool()).run(feeds)
    found = run_compiled(compiled_for(path, target, precision), feeds, heap=256 << 20)
    for key, got in found.items():
        assert cosine(got, wide[key]) >= LEAST[name]


def test_all_numbers_give_the_same_in_float16_arithmetic_as_in_float32() -> None:
    """NaN and infinities too; which NaN an operation makes of NaN is left open."""
    x = np.arange(1 << 16, dtype=np.uint16)
    y = np.random.default_rng(3).permutation(x)
    model = half_model(len(x), BINARY + UNARY)
    inputs = {"x": x.view(np.float16), "y": y.view(np.float16)}
    wide, half = (
        run_compiled(xcompile.compile(model, name, pool=shared_pool()), inputs, box=4 << 20)
        for name in ("arm-neon", "arm-dotprod")
    )
    for op, want in wide.items():
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.isnan(half[op]), ~numbers, err_msg=op)
        assert half[op][numbers].tobytes() == want[numbers].tobytes(), op
