"""The digits example from end to end: accuracy, sizes, threads, callers, files, reproducibility."""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import xcompile

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits"
MODEL = EXAMPLE / "digits.onnx"

COMPILE = "import sys, xcompile; xcompile.compile(sys.argv[1]).save(sys.argv[2])"


def _load_digits() -> tuple[Any, Any]:
    spec = importlib.util.spec_from_file_location("digits_data", EXAMPLE / "data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load()


@pytest.fixture(scope="module")
def held_out() -> Any:
    return _load_digits()[1]


@pytest.fixture(scope="module")
def model() -> xcompile.CompiledModel:
    return xcompile.compile(MODEL)


@pytest.fixture(scope="module")
def scores(model: xcompile.CompiledModel, held_out: Any) -> np.ndarray:
    """Of the 1,000 digits, on one thread."""
    return model.artifact.load(threads=1).run([held_out.images])["scores"]


def test_797_digits_are_trained_on_and_1000_others_held_out() -> None:
    training, held_out = _load_digits()
    assert training.images.shape == (797, 1, 8, 8)
    assert held_out.images.shape == (1000, 1, 8, 8)
    assert training.images.sum() + held_out.images.sum() == 561718


def test_the_model_file_is_small() -> None:
    assert MODEL.stat().st_size < 1_000_000


def test_the_compiled_model_reads_97_percent_of_the_digits(
    scores: np.ndarray, held_out: Any
) -> None:
    assert (scores.argmax(axis=1) == held_out.labels).mean() >= 0.97


def _error(scores: np.ndarray, held_out: Any, model: bytes) -> float:
    """The largest difference to onnxruntime's scores, relative to the largest score."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"images": held_out.images})[0]
    return float(np.abs(scores - expected).max() / np.abs(expected).max())


def test_the_scores_are_those_of_onnxruntime(scores: np.ndarray, held_out: Any) -> None:
    assert _error(scores, held_out, MODEL.read_bytes()) <= 2e-6


@pytest.mark.parametrize("weight", ["w1", "w2", "w3"])
def test_the_comparison_sees_one_percent_of_one_weight_tensor(
    scores: np.ndarray, held_out: Any, weight: str
) -> None:
    planted = onnx.load(MODEL)
    (tensor,) = (t for t in planted.graph.initializer if t.name == weight)
    changed = onnx.numpy_helper.to_array(tensor) * np.float32(1.01)
    tensor.CopyFrom(onnx.numpy_helper.from_array(changed, weight))
    assert _error(scores, held_out, planted.SerializeToString()) > 1e-3


def test_input_and_output_keep_their_names_and_the_size_n(model: xcompile.CompiledModel) -> None:
    assert [(s.name, str(s)) for s in model.inputs] == [("images", "float32[N, 1, 8, 8]")]
    assert [(s.name, str(s)) for s in model.outputs] == [("scores", "float32[N, 10]")]


@pytest.mark.parametrize("size", [1, 3, 64, 1000])
def test_one_artifact_takes_every_batch_size(
    model: xcompile.CompiledModel, scores: np.ndarray, held_out: Any, size: int
) -> None:
    found = model(held_out.images[:size])
    assert isinstance(found, np.ndarray)
    assert found.shape == (size, 10)
    np.testing.assert_allclose(found, scores[:size], rtol=0, atol=1e-4)


def test_an_empty_batch_gives_an_empty_result(model: xcompile.CompiledModel) -> None:
    found = model(np.empty((0, 1, 8, 8), np.float32))
    assert isinstance(found, np.ndarray)
    assert found.shape == (0, 10)


@pytest.mark.parametrize("threads", [2, 7])
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_any_number_of_threads_gives_the_same_bits(
    model: xcompile.CompiledModel, held_out: Any, size: int, threads: int
) -> None:
    images = held_out.images[:size]
    alone = model.artifact.load(threads=1).run([images])["scores"]
    together = model.artifact.load(threads=threads).run([images])["scores"]
    assert together.tobytes() == alone.tobytes()


def test_eight_callers_at_once_get_what_each_would_get_alone(
    model: xcompile.CompiledModel, held_out: Any
) -> None:
    batches = [held_out.images[start : start + 1 + start % 50] for start in range(0, 960, 12)]
    alone = [np.asarray(model(batch)).tobytes() for batch in batches]
    with ThreadPoolExecutor(8) as callers:
        together = list(callers.map(lambda batch: np.asarray(model(batch)).tobytes(), batches * 4))
    assert together == alone * 4


def test_memory_that_was_never_written_is_never_read(
    model: xcompile.CompiledModel, scores: np.ndarray, held_out: Any
) -> None:
    poisoned = model.artifact.load(threads=1, poison=True)
    assert poisoned.run([held_out.images])["scores"].tobytes() == scores.tobytes()


@pytest.mark.parametrize("source", ["path", "bytes"])
def test_a_saved_library_gives_the_same_bits(
    model: xcompile.CompiledModel,
    scores: np.ndarray,
    held_out: Any,
    tmp_path: Path,
    source: str,
) -> None:
    model.save(tmp_path / "digits.so")
    saved = tmp_path / "digits.so"
    loaded = xcompile.load(saved if source == "path" else saved.read_bytes())
    assert loaded.run({"images": held_out.images})["scores"].tobytes() == scores.tobytes()
    assert [p.name for p in tmp_path.iterdir()] == ["digits.so"]


def test_saving_without_a_linker_says_what_to_install_and_running_goes_on(
    model: xcompile.CompiledModel, scores: np.ndarray, held_out: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(xcompile.CompileError, match=r"XC7004 .*pip install ziglang"):
        model.save(tmp_path / "digits.so")
    assert list(tmp_path.iterdir()) == []
    assert model.run([held_out.images])["scores"].tobytes() == scores.tobytes()


def test_a_loaded_library_needs_nothing_of_the_compiler(
    model: xcompile.CompiledModel, tmp_path: Path
) -> None:
    model.save(tmp_path / "digits.so")
    code = (
        "import sys, numpy, xcompile; m = xcompile.load(sys.argv[1]); "
        "m.run([numpy.zeros((2, 1, 8, 8), 'f')]); "
        "print({n.split('.')[0] for n in sys.modules} & {'torch_mlir', 'llvmlite', 'onnx', 'typer'},"
        " [n for n in sys.modules if n.startswith('xcompile.compiler')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "digits.so")],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert done.stdout == "set() []\n"


def _digest(folder: Path, package: Path, **environment: str) -> str:
    """The hash of the library that a fresh process makes in the folder, with nothing in the cache."""
    folder.mkdir()
    shutil.copy(MODEL, folder / "digits.onnx")
    subprocess.run(
        [sys.executable, "-c", COMPILE, "digits.onnx", "out.so"],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(package), "XCOMPILE_CACHE": str(folder / "cache"), **environment},
        check=True,
    )
    return hashlib.sha256((folder / "out.so").read_bytes()).hexdigest()


def test_folders_locales_hash_seeds_and_workers_do_not_change_a_byte(tmp_path: Path) -> None:
    copy = tmp_path / "another folder" / "xcompile"
    shutil.copytree(ROOT / "xcompile", copy, ignore=shutil.ignore_patterns("__pycache__"))
    first = _digest(
        tmp_path / "first", ROOT, PYTHONHASHSEED="0", LC_ALL="C", XCOMPILE_JOBS="1", TZ="UTC"
    )
    second = _digest(
        tmp_path / "zwölf Größen", copy.parent, PYTHONHASHSEED="4711", LC_ALL=_turkish(), TZ="Asia/Tokyo",
        XCOMPILE_JOBS="2",
    )  # fmt: skip
    assert first == second


def _turkish() -> str:
    """A locale where the small letter of I is another one, where it is installed."""
    known = subprocess.run(["locale", "-a"], check=False, capture_output=True, text=True).stdout
    return next((name for name in known.split() if name.startswith("tr_TR")), "C.UTF-8")


def test_the_example_prints_compile_time_accuracy_and_latency() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLE / "run.py"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    compile_line, accuracy, latency, other = done.stdout.splitlines()
    assert compile_line.startswith("compile ")
    assert accuracy == "accuracy   98.8% of 1,000 digits"
    assert latency.startswith("latency ")
    assert other.endswith("µs in onnxruntime")


@pytest.mark.full
def test_training_again_gives_a_model_that_is_as_good(tmp_path: Path, held_out: Any) -> None:
    subprocess.run(
        [sys.executable, EXAMPLE / "train.py", tmp_path / "digits.onnx"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
    )
    again = np.asarray(xcompile.compile(tmp_path / "digits.onnx")(held_out.images))
    assert (again.argmax(axis=1) == held_out.labels).mean() >= 0.97
