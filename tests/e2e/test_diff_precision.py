"""`diff` of a float model and a quantized one: what each tensor loses, alone and with what comes before it."""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.digits_qdq import quantized_digits
from tests.e2e.networks import Network, save
from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.cli.main import execute
from xcompile.compiler.quantize.observers import Range
from xcompile.compiler.quantize.table import CalibrationTable, Observed

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"

ELSEWHERE = "arm-dotprod"
"""A target that this machine does not run: only meanings are compared, which is quick."""


def images() -> onnx.ModelProto:
    """Four convolutions, one of them behind a sum of two others, and a dense layer."""
    n = Network(seed=3)
    stem = n("Relu", n("Conv", "x", n.weight(16, 3, 3, 3), n.weight(16), pads=[1, 1, 1, 1]))
    left = n("Conv", stem, n.weight(16, 16, 3, 3, scale=0.1), n.weight(16), pads=[1, 1, 1, 1])
    right = n("Conv", stem, n.weight(16, 16, 1, 1), n.weight(16))
    joined = n("Relu", n("Add", left, right))
    last = n("Relu", n("Conv", joined, n.weight(32, 16, 3, 3, scale=0.1), n.weight(32)))
    flat = n("Flatten", n("MaxPool", last, kernel_shape=[2, 2], strides=[2, 2]))
    y = n("Gemm", flat, n.weight(10, 32 * 9, scale=0.1), n.weight(10), transB=1)
    return n.model({"x": ("FLOAT", [4, 3, 8, 8])}, {y: ("FLOAT", [4, 10])})


def rows() -> onnx.ModelProto:
    """Five dense layers with what stands between them in language models."""
    n = Network(seed=4)
    x = "x"
    for _ in range(2):
        wide = n("Gemm", x, n.weight(64, 32), n.weight(64), transB=1)
        back = n("Gemm", n("Tanh", wide), n.weight(32, 64), n.weight(32), transB=1)
        x = n("LayerNormalization", n("Add", back, x), n.constant(np.ones(32, np.float32)), axis=-1)
    y = n("Gemm", x, n.weight(8, 32), n.weight(8), transB=1)
    return n.model({"x": ("FLOAT", [16, 32])}, {y: ("FLOAT", [16, 8])})


MODELS = {"images": images, "rows": rows}


@cache
def pair(name: str) -> tuple[onnx.ModelProto, onnx.ModelProto, np.ndarray]:
    """The float model, the quantized one, and an input."""
    model = MODELS[name]()
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    return model, quantized_digits(model, x), x


def products(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type in ("Conv", "Gemm")]


def behind(model: onnx.ModelProto, tensor: str) -> set[str]:
    """The tensors that depend on one, and it."""
    found = {tensor}
    for node in model.graph.node:
        if not found.isdisjoint(node.input):
            found.update(node.output)
    return found


@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("name", MODELS)
def test_a_scale_that_is_wrong_by_four_is_named_first(name: str, place: int) -> None:
    model, quantized, x = pair(name)
    node = products(model)[place]
    wrong = onnx.ModelProto()
    wrong.CopyFrom(quantized)
    scale = next(t for t in wrong.graph.initializer if t.name == f"{node.input[1]}_scale")
    scale.CopyFrom(numpy_helper.from_array(4 * numpy_helper.to_array(scale), scale.name))
    right = xcompile.diff_precision(model, {"x": x}, other=quantized, target=ELSEWHERE)
    report = xcompile.diff_precision(model, {"x": x}, other=wrong, target=ELSEWHERE)

    first, second = report.sorted_rows()[:2]
    assert first.tensor == node.output[0]
    assert first.alone.sqnr < 0 < 20 < second.alone.sqnr
    before = {row.tensor: row.accumulated.sqnr for row in right.rows}
    assert min(before.values()) > 20
    worse = {row.tensor for row in report.rows if row.accumulated.sqnr < before[row.tensor] - 6}
    same = {row.tensor for row in report.rows if row.accumulated.sqnr == before[row.tensor]}
    assert worse == behind(model, node.output[0]) & before.keys()
    assert same == before.keys() - worse


@pytest.fixture(scope="module")
def table() -> CalibrationTable:
    calibrator = Calibrator(DIGITS, pool=shared_pool())
    random = np.random.default_rng(0)
    calibrator.observe(random.uniform(0, 16, (40, 1, 8, 8)).astype(np.float32))
    return calibrator.table("min-max")


def test_a_range_that_is_too_small_by_four_is_named_first(table: CalibrationTable) -> None:
    x = {"images": np.random.default_rng(1).uniform(0, 16, (20, 1, 8, 8)).astype(np.float32)}
    seen = table.tensors["p1"]
    small = Observed(Range(seen.range.low / 4, seen.range.high / 4), seen.means)
    spoilt = CalibrationTable(
        table.model, table.digest, "mse", 40, {**table.tensors, "p1": small}, ()
    )
    for given, least in ((table, 25.0), (spoilt, 0.0)):
        report = xcompile.diff_precision(DIGITS, x, calibration_table=given, pool=shared_pool())
        assert report.executed
        assert {row.tensor for row in report.rows} == {
            "c1",
            "r1",
            "p1",
            "c2",
            "r2",
            "flat",
            "scores",
        }
        assert least < report.sorted_rows()[0].alone.sqnr < least + 30
    worst = report.sorted_rows()[0]
    assert (worst.tensor, worst.op, worst.reads, worst.nodes) == ("c2", "conv", "ui8 × i8", "conv2")


def test_the_outputs_are_those_of_the_compiled_code(table: CalibrationTable) -> None:
    x = np.random.default_rng(1).uniform(0, 16, (20, 1, 8, 8)).astype(np.float32)
    plain = np.asarray(xcompile.compile(DIGITS, pool=shared_pool())(x))
    model = xcompile.compile(DIGITS, "cpu-int8", calibration_table=table, pool=shared_pool())
    report = xcompile.diff_precision(DIGITS, [x], calibration_table=table, pool=shared_pool())
    scores = next(row for row in report.rows if row.tensor == "scores")
    error = float(np.abs(np.asarray(model(x)) - plain).max())
    assert scores.accumulated.max_abs == pytest.approx(error, rel=1e-3)


def test_nodes_that_are_kept_in_float_cost_nothing(table: CalibrationTable) -> None:
    report = xcompile.diff_precision(
        DIGITS, calibration_table=table, keep_float="conv*", pool=shared_pool()
    )
    alone = {row.tensor: row.alone.sqnr for row in report.rows}
    assert [name for name, sqnr in alone.items() if sqnr != np.inf] == ["scores"]
    assert next(row.reads for row in report.rows if row.tensor == "c1") == "f32 × f32"


def test_a_float_target_is_one_error() -> None:
    with pytest.raises(xcompile.CompileError, match="XC6005 the target 'cpu' is in floating point"):
        xcompile.diff_precision(DIGITS, target="cpu")


# -- the command ------------------------------------------------------------------------------------


def test_the_command_compares_precisions(
    table: CalibrationTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.save(tmp_path / "t.json")
    words = ["diff", str(DIGITS), "--against=int8", f"--calibration-table={tmp_path / 't.json'}"]
    assert execute([*words, "--html", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split()[:4] == ["tensor", "nodes", "op", "reads"]
    assert printed[-1].startswith("7 tensors in cpu-int8 against float32; outputs: 'scores' ")
    page = (tmp_path / "page.html").read_text()
    assert "xcompile diff: digits in float32 and cpu-int8" in page


def test_the_command_compares_two_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, quantized, _ = pair("rows")
    files = [save(model, tmp_path / "a.onnx"), save(quantized, tmp_path / "b.onnx")]
    assert execute(["diff", *map(str, files), f"--target={ELSEWHERE}"]) == 0
    assert "11 tensors in b against float32; outputs by its meaning" in capsys.readouterr().out
