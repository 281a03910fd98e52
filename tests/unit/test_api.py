"""What users meet first: names of the package, wrong arguments, models of other machines."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xcompile
from xcompile.compiler.artifact import Artifact
from xcompile.compiler.codegen.program.program import Program
from xcompile.compiler.model import CompiledModel
from xcompile.runtime import native_library
from xcompile.runtime.abi import Manifest, TensorSpec
from xcompile.runtime.arrays import Port

MODEL = "examples/digits/digits.onnx"
X = TensorSpec("x", "float32", ("N", "4"))
OTHER = "aarch64" if native_library.host_architecture() == "x86_64" else "x86_64"


def artifact(architecture: str, features: tuple[str, ...] = ()) -> Artifact:
    manifest = Manifest(
        prefix="model", inputs=(X,), outputs=(TensorSpec("y", "float32", ("N",)),), table_slots=1,
        weights_bytes=0, target="there", features=features,
    )  # fmt: skip
    program = Program("model", (), (), 0, (), ())
    return Artifact(manifest, {}, b"", program, architecture)


def test_dir_of_the_package_lists_what_it_offers() -> None:
    assert set(xcompile.__all__) <= set(dir(xcompile))


def test_models_print_inputs_and_outputs() -> None:
    model = CompiledModel(artifact(OTHER))
    assert repr(model) == "<CompiledModel for there: (x: float32[N, 4]) -> (y: float32[N])>"


@pytest.mark.parametrize(
    ("architecture", "features", "word"),
    [(OTHER, (), OTHER), (native_library.host_architecture(), ("no-such",), "no-such")],
)
def test_a_model_of_another_machine_is_refused_before_its_code_runs(
    architecture: str, features: tuple[str, ...], word: str
) -> None:
    model = CompiledModel(artifact(architecture, features))
    with pytest.raises(xcompile.CompileError, match=f"{word}.*'there'") as error:
        model(np.zeros((1, 4), np.float32))
    assert error.value.code == "XC6007"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"prefix": "my-model"}, "XC6005 the prefix 'my-model'"),
        ({"prefix": "pthread"}, "XC6005 the prefix 'pthread'"),
        ({"explain": "nn-fuse-gel"}, "did you mean nn-fuse-gelu"),
        ({"explain": ("*", "nn-fuse-gel")}, "did you mean nn-fuse-gelu"),
        ({"load": "no-such.py"}, "XC3009 no-such.py cannot be read"),
        ({"passes": "-nn-fuse-gel"}, "XC3001 .*did you mean nn-fuse-gelu"),
        ({"passes": ["-cse"]}, "XC3002 .*text, not list"),
        ({"target": None}, "XC6001 .*not NoneType"),
        ({"passes": "-zzz"}, "XC3001 .*it has nn-"),
        ({"passes": "-kernel-form"}, "XC3010 nn.conv is in no kernel .* at node 'conv1'"),
    ],
)
def test_wrong_arguments_of_compile(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(xcompile.CompileError, match=text):
        xcompile.compile(MODEL, **arguments)


def test_a_library_given_to_compile_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "model.so").write_bytes(b"\x7fELF" + bytes(60))
    with pytest.raises(xcompile.CompileError, match="xcompile\\.load opens it"):
        xcompile.compile(tmp_path / "model.so")


def test_missing_files_are_named_once(tmp_path: Path) -> None:
    with pytest.raises(xcompile.CompileError, match="x' cannot be read: No such file or directory"):
        xcompile.compile(tmp_path / "x")
    with pytest.raises(xcompile.RuntimeModelError, match="x' cannot be read: No such file"):
        xcompile.load(tmp_path / "x")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.zeros((1, 4)), "astype\\('float32'\\)"),
        (np.zeros((1, 4), complex), "complex128\\[1, 4\\]$"),
        ({"x": 1}, "a mapping is no array"),
    ],
)
def test_wrong_inputs_come_with_what_to_do(value: object, text: str) -> None:
    with pytest.raises(xcompile.RuntimeModelError, match=text):
        Port("input", X).readable(value)
