"""Models cross-compiled for AArch64: the library that users get, run through its C interface in qemu."""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import xcompile
from bench import corpus
from bench.entries import ENTRIES
from bench.quantized import quantized
from tests.e2e.compiled_node import shared_pool
from tests.e2e.float64 import reference64
from tests.e2e.networks import reference
from tests.e2e.test_corpus import agrees, distance, optimized
from tests.foreign.models import run_compiled

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
ARM = ["arm-neon", *(pytest.param(t, marks=pytest.mark.full) for t in ("arm-dotprod", "arm-i8mm"))]


def digits() -> Any:
    """The labelled digits that the example's model has not seen."""
    spec = importlib.util.spec_from_file_location("digits_data", EXAMPLE / "data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load()[1]


@pytest.mark.parametrize("name", ARM)
def test_the_digits_model_agrees_with_x86(name: str) -> None:
    images = digits().images[:20]
    here = xcompile.compile(EXAMPLE / "digits.onnx", pool=shared_pool())(images)
    there = run_compiled(
        xcompile.compile(EXAMPLE / "digits.onnx", name, pool=shared_pool()), {"images": images}
    )
    np.testing.assert_allclose(there["scores"], here, rtol=0, atol=2e-6 * np.abs(here).max())


@pytest.mark.full
def test_the_digits_model_reads_97_percent_of_the_digits() -> None:
    held_out = digits()
    model = xcompile.compile(EXAMPLE / "digits.onnx", "arm-neon")
    scores = run_compiled(model, {"images": held_out.images})["scores"]
    assert (scores.argmax(axis=1) == held_out.labels).mean() >= 0.97


@pytest.mark.full
@pytest.mark.parametrize("target", ["arm-neon", "arm-i8mm"])
@pytest.mark.parametrize("name", ["squeezenet", "minilm"])
def test_a_real_model_is_as_near_to_float64_as_onnxruntime(name: str, target: str) -> None:
    path = corpus.model(name)
    proto, feeds = onnx.load(path), ENTRIES[name](1)
    own = distance(optimized(proto, feeds), reference(proto, feeds))
    wanted = reference64(proto, feeds)
    found = run_compiled(xcompile.compile(path, target), feeds, heap=256 << 20)
    assert agrees(list(found.values()), wanted, own)


@pytest.fixture(scope="module", params=["minilm", "squeezenet"])
def quantized_model(
    request: pytest.FixtureRequest,
) -> tuple[Path, dict[str, np.ndarray], list[bytes]]:
    """A real model with quantization nodes, an input, and the bytes of the outputs on AVX2."""
    path, feeds = quantized(request.param), ENTRIES[request.param](1)
    model = xcompile.compile(path, "x86-avx2", pool=shared_pool())
    return path, feeds, [output.tobytes() for output in model.run(feeds).values()]


@pytest.mark.full
@pytest.mark.parametrize("target", ["x86-vnni", "arm-neon", "arm-dotprod", "arm-i8mm"])
def test_a_real_model_in_int8_gives_the_bytes_of_avx2(
    target: str, quantized_model: tuple[Path, dict[str, np.ndarray], list[bytes]]
) -> None:
    path, feeds, wanted = quantized_model
    model = xcompile.compile(path, target, pool=shared_pool())
    found = run_compiled(model, feeds, heap=256 << 20)
    assert [output.tobytes() for output in found.values()] == wanted
