"""A model that was compiled before comes from the cache: without MLIR or ONNX, equal, and never stale."""

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import xcompile
from xcompile.compiler.codegen.link import link_library
from xcompile.compiler.ir.passes import PASS_REGISTRY, Pass
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.fingerprint import package_fingerprint
from xcompile.compiler.worker.pool import WorkerPool

ROOT = Path(__file__).parents[2]

FRESH_PROCESS = """
import json, sys
import numpy as np
import xcompile

model = xcompile.compile(sys.argv[1], options={"cache": sys.argv[2]})
found = model(np.full((2, 3), 2, np.float32)).tolist()
doors = [name for name in ("torch_mlir", "onnx") if name in sys.modules]
print(json.dumps([found, doors]))
"""

PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PASS_REGISTRY, Pass


@PASS_REGISTRY.register
@dataclass(frozen=True)
class Refuse(Pass):
    NAME: ClassVar[str] = "warm-refuse"

    def run(self, module, context):
        {body}
"""


def scale(factor: float, batch: int | str = "N") -> onnx.ModelProto:
    """x · factor."""
    node = helper.make_node("Mul", ["x", "factor"], ["y"], name="scale")
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, 3]) for name in ("x", "y")
    ]
    weights = [numpy_helper.from_array(np.array(factor, np.float32), "factor")]
    graph = helper.make_graph([node], "scale", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A model that multiplies by 3."""
    path = tmp_path / "scale.onnx"
    onnx.save(scale(3), path)
    return path


class Broken(WorkerPool):
    """A pool that compiles nothing: whoever asks it is not warm."""

    def __init__(self) -> None:
        super().__init__(1)

    def map(self, *_: object) -> list[object]:
        raise AssertionError("a kernel is compiled")


def is_warm(cache: Path, *arguments: object, **options: object) -> bool:
    """Whether a compile comes from the cache."""
    given = {"options": {"cache": cache}, **options}
    try:
        xcompile.compile(*arguments, **given, pool=Broken())
    except AssertionError:
        return False
    return True


def fresh(path: Path, cache: Path) -> list[object]:
    command = [sys.executable, "-c", FRESH_PROCESS, str(path), str(cache)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_a_warm_compile_imports_neither_mlir_nor_onnx(path: Path, tmp_path: Path) -> None:
    assert fresh(path, tmp_path / "cache") == [[[6, 6, 6], [6, 6, 6]], ["torch_mlir", "onnx"]]
    assert fresh(path, tmp_path / "cache") == [[[6, 6, 6], [6, 6, 6]], []]


def test_a_warm_artifact_equals_the_cold_one_and_links_to_the_same_library(
    path: Path, tmp_path: Path
) -> None:
    options = {"cache": tmp_path / "cache"}
    cold = xcompile.compile(path, options=options, explain=["*"]).artifact
    warm = xcompile.compile(path, options=options, explain=["*"]).artifact
    assert warm is not cold
    assert warm == cold
    assert warm.explanations
    for name, artifact in (("cold.so", cold), ("warm.so", warm)):
        objects = list(artifact.objects.values())
        link_library(
            tmp_path / name, objects, artifact.manifest, artifact.weights,
            architecture=artifact.architecture,
        )  # fmt: skip
    assert (tmp_path / "cold.so").read_bytes() == (tmp_path / "warm.so").read_bytes()


def test_what_decides_the_result_decides_the_key(path: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    xcompile.compile(path, options={"cache": cache})
    assert is_warm(cache, path)
    assert not is_warm(cache, path, target="x86-avx2")
    assert not is_warm(cache, path, threads=61)
    assert not is_warm(cache, path, passes="-nn-canonicalize")
    assert not is_warm(cache, path, pipeline="kernel-form")
    assert not is_warm(cache, path, prefix="other")
    assert not is_warm(cache, path, explain=["cse"])
    assert not is_warm(cache, path.read_bytes())
    path.rename(tmp_path / "renamed.onnx")
    assert not is_warm(cache, tmp_path / "renamed.onnx")


def test_a_model_given_as_bytes_or_as_a_message_is_one(tmp_path: Path) -> None:
    model = scale(3)
    xcompile.compile(model, options={"cache": tmp_path})
    assert is_warm(tmp_path, model)
    assert is_warm(tmp_path, model.SerializeToString(deterministic=True))
    assert not is_warm(tmp_path, scale(4))
    assert not is_warm(tmp_path, scale(3, batch=2))


def test_an_edited_model_file_is_another_model(path: Path, tmp_path: Path) -> None:
    options = {"cache": tmp_path / "cache"}
    x = np.ones((1, 3), np.float32)
    assert xcompile.compile(path, options=options)(x)[0, 0] == 3
    onnx.save(scale(5), path)
    assert xcompile.compile(path, options=options)(x)[0, 0] == 5


def test_edited_external_data_is_seen(tmp_path: Path) -> None:
    path, options = tmp_path / "external.onnx", {"cache": tmp_path / "cache"}
    model = scale(3)
    onnx.external_data_helper.convert_model_to_external_data(
        model, location="weights.bin", size_threshold=0
    )
    onnx.save(model, path)
    x = np.ones((1, 3), np.float32)
    assert xcompile.compile(path, options=options)(x)[0, 0] == 3
    assert is_warm(tmp_path / "cache", path)
    (tmp_path / "weights.bin").write_bytes(np.array(7, np.float32).tobytes())
    assert xcompile.compile(path, options=options)(x)[0, 0] == 7
    assert is_warm(tmp_path / "cache", path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(CompileError, match="XC1004"):
        xcompile.compile(path, options=options)


def test_an_edited_plug_in_is_another_compile(path: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(PLUGIN.format(body="pass"))
    arguments = {"load": [plugin], "passes": "+before(kernel-form):warm-refuse"}
    xcompile.compile(path, options={"cache": tmp_path / "cache"}, **arguments)
    assert is_warm(tmp_path / "cache", path, **arguments)
    plugin.write_text(PLUGIN.format(body="raise ValueError('edited')"))
    with pytest.raises(CompileError, match="edited"):
        xcompile.compile(path, options={"cache": tmp_path / "cache"}, **arguments)


def test_passes_whose_source_is_not_at_hand_are_not_remembered(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompile.compiler.support.fingerprint._extensions", {})
    xcompile.compile(path, options={"cache": tmp_path / "cache"})
    assert is_warm(tmp_path / "cache", path)
    namespace = type("Unknown", (Pass,), {"NAME": "warm-unknown", "__module__": "__main__"})
    PASS_REGISTRY.register(namespace)
    assert not is_warm(tmp_path / "cache", path)


def test_passes_of_an_edited_package_are_another_compile(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "warm_package.py"
    package.write_text("ONE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("warm-installed", "warm_package:Nothing", "xcompile.passes")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    xcompile.compile(path, options={"cache": tmp_path / "cache"})
    assert is_warm(tmp_path / "cache", path)
    package.write_text("ONE = 2\n")
    package_fingerprint.cache_clear()
    assert not is_warm(tmp_path / "cache", path)


def test_a_cache_that_cannot_be_written_fails_no_compile(path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    options = {"cache": tmp_path / "file" / "cache"}
    assert xcompile.compile(path, options=options)(np.ones((1, 3), np.float32))[0, 0] == 3


def test_without_a_cache_nothing_is_kept(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XCOMPILE_CACHE", str(folder / "cache"))
    xcompile.compile(path, options={"cache": None})
    assert list(folder.iterdir()) == []
