"""What float16 does not hold is named, and kept in float32 on request."""

from pathlib import Path

import numpy as np
import pytest

import xcompile
from tests.property.random_narrow import Graph
from xcompile.compiler.calibration.overflow import extremes_of, rules_against_overflow
from xcompile.compiler.cli.main import execute
from xcompile.compiler.support.errors import CompileError


def large_in_the_middle() -> Graph:
    g = Graph(0)
    x = g("MatMul", "x", g.constant(np.full((4, 4), 300, np.float32)))
    x = g("MatMul", x, g.constant(np.full((4, 4), 100, np.float32)))
    x = g("Mul", g("Abs", x), g.constant(np.array([1e-4], np.float32)))
    g("MatMul", x, g.constant(np.full((4, 4), 1e-7, np.float32)))
    return g


MODEL = large_in_the_middle().model({"x": (2, 4)}, "MatMul4_y")
SAMPLES = [np.full((2, 4), fill, np.float32) for fill in (0.01, 1.0, 0.5)]


def test_tensors_that_overflow_or_lose_bits_are_named_with_their_nodes() -> None:
    found = {each.tensor: each for each in extremes_of(MODEL, SAMPLES)}
    assert [name for name, each in found.items() if each.overflows] == ["MatMul1_y", "Abs2_y"]
    assert found["MatMul1_y"].largest == 480000
    assert found["MatMul1_y"].node == "MatMul1"
    assert found["MatMul1_y"].around == ("MatMul1_y", "Abs2_y")
    assert found["MatMul1_y"].text() == (
        "'MatMul1_y' of MatMul1 reaches 480000, and float16 holds 65504"
    )
    assert found["MatMul4_y"].small == 1
    names = [glob for glob, _ in rules_against_overflow(list(found.values()))]
    assert names == ["MatMul1_y", "Abs2_y", "MatMul4_y"]


def test_samples_keep_a_float16_model_finite() -> None:
    x = SAMPLES[1]
    plain = xcompile.compile(MODEL, "cpu-fp16")
    kept = xcompile.compile(MODEL, "cpu-fp16", calibrate=SAMPLES)
    assert not np.isfinite(plain(x)).any()
    np.testing.assert_allclose(kept(x), xcompile.compile(MODEL)(x), rtol=0.2)
    kinds = {row.nodes.split(" + ")[0]: row.arithmetic for row in kept.precisions()}
    assert kinds == {"MatMul0": "float16", "MatMul1": "float32", "MatMul4": "float32"}


def test_the_command_line_names_what_overflows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.onnx").write_bytes(MODEL.SerializeToString())
    np.savez(tmp_path / "x.npz", x=np.stack(SAMPLES))
    words = ["--target=cpu-fp16", f"--calibrate={tmp_path / 'x.npz'}", "-o", str(tmp_path / "m.so")]
    assert execute([str(tmp_path / "m.onnx"), *words]) == 0
    printed = capsys.readouterr().out
    assert "'MatMul1_y' of MatMul1 reaches 480000, and float16 holds 65504" in printed
    assert "float32: 2 of 3 products" in printed


def test_no_samples_are_refused() -> None:
    with pytest.raises(CompileError, match="XC6009 there are no samples"):
        extremes_of(MODEL, [])
