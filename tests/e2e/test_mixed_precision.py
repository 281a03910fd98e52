"""The budget mode on a network in which 8 bits are enough for one layer, 16 for another, and a third needs float32."""

from pathlib import Path

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network
from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.calibration.data import function_of
from xcompile.compiler.cli.main import execute

SPREAD = np.where(np.arange(64) == 5, 3000, 1).astype(np.float32)
"""One channel is so large that 8 bits lose all others, whose weights are larger by as much."""

METRIC = """
import numpy as np

held_out = dict(np.load("held_out.npz"))
wanted = np.load("wanted.npz")

def closeness(model):
    found = model.run(held_out)
    errors = [np.linalg.norm(found[n] - wanted[n]) / np.linalg.norm(wanted[n]) for n in found]
    return 100 - 100 * float(max(errors))
"""


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """Products of even inputs, of inputs with one large channel, and of small differences of large numbers."""
    n, random = Network(), np.random.default_rng(7)
    wide, columns = random.standard_normal((2, 64, 16))
    weights = {
        "even": n.weight(64, 16),
        "wide": n.constant((wide / SPREAD[:, None]).astype(np.float32)),
        "small": n.constant((columns - columns.mean(axis=0)).astype(np.float32)),
    }
    outputs = {n("MatMul", x, weight): ("FLOAT", ["N", 16]) for x, weight in weights.items()}
    return n.model({name: ("FLOAT", ["N", 64]) for name in weights}, outputs)


@pytest.fixture(scope="module")
def folder(model: onnx.ModelProto, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, samples, held-out data and the metric."""
    path = tmp_path_factory.mktemp("mixed")
    onnx.save(model, path / "model.onnx")
    for seed, name in enumerate(("samples", "held_out")):
        even, wide, small = (
            np.random.default_rng(seed).standard_normal((3, 60, 64)).astype(np.float32)
        )
        np.savez(
            path / f"{name}.npz", even=even, wide=wide * SPREAD, small=small + np.float32(20_000)
        )
    plain = xcompile.compile(model, pool=shared_pool())
    np.savez(path / "wanted.npz", **plain.run(dict(np.load(path / "held_out.npz"))))
    (path / "metric.py").write_text(METRIC)
    return path


@pytest.mark.parametrize("narrow", ["fp16", "bf16"])
def test_each_layer_has_the_precision_that_it_needs(
    narrow: str, model: onnx.ModelProto, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(
        "xcompile.compiler.calibration.budget.narrow_precision", lambda target: narrow
    )
    calibrator = Calibrator(model, pool=shared_pool())
    calibrator.observe(dict(np.load("samples.npz")))
    made = xcompile.compile(
        model, "x86-avx2-mixed", calibration_table=calibrator.table("min-max"), accuracy_budget=2.0,
        metric=function_of("metric.py", "closeness"), pool=shared_pool(),
    )  # fmt: skip
    rows = {row.nodes: (row.arithmetic, row.why) for row in made.precisions()}
    names = {"fp16": "float16", "bf16": "bfloat16"}
    assert rows == {
        "MatMul_0": ("int8", ""),
        "MatMul_1": (names[narrow], f"'v1_0' asks for {narrow}"),
        "MatMul_2": ("float32", "kept in floating point by 'v2_0'"),
    }


def test_the_command_chooses_the_same_and_says_how_to_ask_for_it_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    command = ["model.onnx", "--calibrate=samples.npz", "--observer=min-max"]
    searched = [
        "--target=x86-avx2-mixed", "--accuracy-budget=2", "--metric=metric.py:closeness",
        "--budget-report=budget.html", "-o", "searched.so",
    ]  # fmt: skip
    assert execute([*command, *searched]) == 0
    printed = capsys.readouterr().out
    assert "with 1 product in fp16 and 1 product in float 98." in printed
    options = ["--precision=v1_0=fp16", "--precision=v2_0=fp32"]
    assert f"without a search: {' '.join(options)}" in printed
    assert '"v1_0"' in (folder / "budget.html").read_text()
    assert execute([*command, "--target=x86-avx2-int8", *options, "-o", "asked.so"]) == 0
    assert (folder / "asked.so").read_bytes() == (folder / "searched.so").read_bytes()
    assert execute([*command, "--target=x86-avx2-mixed"]) == 1
    assert "XC6005 'x86-avx2-mixed' leaves the precision of each node to" in capsys.readouterr().err


def test_the_mixed_precision_needs_a_budget(model: onnx.ModelProto) -> None:
    with pytest.raises(xcompile.CompileError, match="XC6005 'cpu-mixed' leaves the precision"):
        xcompile.compile(model, "cpu-mixed", calibrate=[])


def test_a_rule_knows_a_product_by_its_tensor_where_others_read_its_result_in_8_bits() -> None:
    n = Network()
    first = n("Conv", "x", n.weight(8, 8, 3, 3))
    y = n("Conv", n("Conv", first, n.weight(8, 8, 3, 3)), n.weight(8, 8, 3, 3))
    model = n.model({"x": ("FLOAT", [1, 8, 12, 12])}, {y: ("FLOAT", None)})
    x = np.random.default_rng(0).standard_normal((1, 8, 12, 12)).astype(np.float32)
    made = xcompile.compile(
        model, "x86-avx2-int8", calibrate=[x], precisions={first: "fp16"}, pool=shared_pool()
    )
    assert [row.arithmetic for row in made.precisions()] == ["float16", "int8", "int8"]
