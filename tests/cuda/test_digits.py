"""The digits network whole on the interpreter of PTX: int8 is the CPU's bytes, floats are close to the CPU's."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.digits_qdq import quantized_digits
from tests.e2e.test_digits import MODEL, _load_digits
from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.cli.main import execute
from xcompile.compiler.ptx.device import EmulatedDevice


@pytest.fixture(scope="module")
def images() -> Any:
    """Six images, the first of the held-out ones."""
    return np.asarray(_load_digits()[1].images[:6], np.float32)


def on_both(model: Any, precision: str, images: Any, **arguments: Any) -> tuple[Any, Any]:
    """The scores of the CPU and of the emulated device."""
    cpu = xcompile.compile(model, f"cpu-{precision}", pool=shared_pool(), **arguments)
    gpu = xcompile.compile(
        model, f"cuda-{precision}", pool=shared_pool(), device="emulate", **arguments
    )
    return np.asarray(cpu(images)), np.asarray(gpu(images))


@pytest.mark.parametrize(
    ("precision", "tolerance"), [("fp32", 1e-6), ("fp16", 1e-3), ("bf16", 8e-3), ("w8", 1e-6)]
)
def test_floats_are_the_cpus_but_for_the_order_of_sums(
    precision: str, tolerance: float, images: Any
) -> None:
    cpu, gpu = on_both(MODEL, precision, images)
    np.testing.assert_allclose(gpu, cpu, rtol=0, atol=tolerance * np.abs(cpu).max())


def test_int8_of_a_calibrated_model_is_the_cpus_bytes(images: Any) -> None:
    calibrator = Calibrator(MODEL, pool=shared_pool())
    calibrator.observe(_load_digits()[0].images[:100])
    cpu, gpu = on_both(MODEL, "int8", images, calibration_table=calibrator.table("mse"))
    assert gpu.tobytes() == cpu.tobytes()


def test_int8_of_a_model_with_quantized_nodes_is_the_cpus_bytes(images: Any) -> None:
    model = quantized_digits(onnx.load(MODEL), _load_digits()[0].images)
    cpu, gpu = on_both(model, "int8", images)
    assert gpu.tobytes() == cpu.tobytes()


def test_one_model_serves_every_batch(images: Any) -> None:
    device = EmulatedDevice()
    model = xcompile.compile(MODEL, "cuda", pool=shared_pool(), device=device)
    whole = np.asarray(model(images))
    parts = [np.asarray(model(part)) for part in (images[:1], images[1:4], images[4:])]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert np.asarray(model(images[:0])).shape == (0, 10)
    assert set(device.reports) == {kernel.symbol for kernel in model.artifact.program.device}


def test_a_saved_model_runs_as_the_compiled_one(
    images: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = xcompile.compile(MODEL, "cuda-fp16", pool=shared_pool(), device="emulate")
    model.save(tmp_path / "digits.so")
    loaded = xcompile.load(tmp_path / "digits.so", device="emulate", poison=True)
    assert loaded.run([images])["scores"].tobytes() == np.asarray(model(images)).tobytes()
    np.save(tmp_path / "images.npy", images)
    given = f"--input=images={tmp_path / 'images.npy'}"
    assert execute(["run", str(tmp_path / "digits.so"), "--device=emulate", given]) == 0
    assert capsys.readouterr().out.startswith("scores: float32[6, 10] min ")


def test_a_device_is_not_for_a_model_of_a_cpu() -> None:
    model = xcompile.compile(MODEL, pool=shared_pool(), device="emulate")
    with pytest.raises(xcompile.RuntimeModelError, match="XC5008 the model was compiled for a CPU"):
        model(np.zeros((1, 1, 8, 8), np.float32))
