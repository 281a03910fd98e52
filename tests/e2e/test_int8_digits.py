"""The digits network in int8: the same bytes on AVX2, on AVX-512 VNNI in Bochs and on AArch64 in qemu."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.digits_qdq import quantized_digits
from tests.e2e.test_digits import MODEL, _load_digits
from tests.foreign.models import run_compiled
from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets

EMULATED = ("x86-vnni", "arm-dotprod")
IN_FULL = ("x86-avx2", "x86-avx512", "arm-neon", "arm-i8mm")
TARGETS = [*EMULATED, *(pytest.param(name, marks=pytest.mark.full) for name in IN_FULL)]
IMAGES = 20
FAMILIES = {"contraction", "integer-conv", "map", "pool"}
"""Of its kernels: the map quantizes the image."""


@pytest.fixture(scope="module")
def digits() -> Any:
    return _load_digits()


@pytest.fixture(scope="module")
def table(digits: Any) -> CalibrationTable:
    calibrator = Calibrator(MODEL)
    calibrator.observe(digits[0].images[:200])
    return calibrator.table("min-max")


@pytest.fixture(scope="module")
def qdq(digits: Any) -> onnx.ModelProto:
    return quantized_digits(onnx.load(MODEL), digits[0].images)


def calibrated(name: str, table: CalibrationTable) -> xcompile.CompiledModel:
    return xcompile.compile(MODEL, f"{name}-int8", calibration_table=table, pool=shared_pool())


def natively(made: Mapping[str, xcompile.CompiledModel], images: np.ndarray) -> set[bytes]:
    """The scores of the models whose code this host runs."""
    return {
        model.artifact.load(threads=2).run([images])["scores"].tobytes()
        for name, model in made.items()
        if targets()[name].runs_on(host_target())
    }


X86 = ("x86-avx2", "x86-avx512", "x86-vnni")


@pytest.fixture(scope="module")
def calibrated_scores(table: CalibrationTable, digits: Any) -> bytes:
    found = natively({name: calibrated(name, table) for name in X86}, digits[1].images[:IMAGES])
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("name", TARGETS)
def test_the_calibrated_network_gives_the_same_bytes_everywhere(
    name: str, table: CalibrationTable, digits: Any, calibrated_scores: bytes
) -> None:
    model = calibrated(name, table)
    families = {facts.family for facts in model.artifact.kernels.values()}
    assert families == FAMILIES
    found = run_compiled(model, {"images": digits[1].images[:IMAGES]})
    assert found["scores"].tobytes() == calibrated_scores


@pytest.fixture(scope="module")
def qdq_scores(qdq: onnx.ModelProto, digits: Any) -> bytes:
    made = {name: xcompile.compile(qdq, name, pool=shared_pool()) for name in X86}
    found = natively(made, digits[1].images[:IMAGES])
    assert len(found) == 1
    return found.pop()


@pytest.mark.full
@pytest.mark.parametrize("name", [*EMULATED, *IN_FULL])
def test_the_network_with_quantization_nodes_gives_the_same_bytes_everywhere(
    name: str, qdq: onnx.ModelProto, digits: Any, qdq_scores: bytes
) -> None:
    images = {"images": digits[1].images[:IMAGES]}
    model = xcompile.compile(qdq, name, pool=shared_pool())
    assert run_compiled(model, images)["scores"].tobytes() == qdq_scores


def test_the_network_with_quantization_nodes_reads_as_many_digits_as_in_float(
    qdq: onnx.ModelProto, digits: Any
) -> None:
    images, labels = digits[1].images, digits[1].labels
    right = [
        int((np.asarray(model(images)).argmax(axis=1) == labels).sum())
        for model in (xcompile.compile(qdq, pool=shared_pool()), xcompile.compile(MODEL))
    ]
    assert right[0] >= right[1] - 5
