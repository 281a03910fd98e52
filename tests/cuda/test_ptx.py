"""Kernels of models for `cuda` are PTX that NVIDIA's assembler takes, for every architecture."""

import shutil
import subprocess
from pathlib import Path

import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.test_digits import MODEL
from xcompile.compiler.target.device import ARCHITECTURES
from xcompile.runtime.library import read_manifest

PTXAS = shutil.which("ptxas")


def compiled(target: str, arch: str = "sm_80") -> xcompile.CompiledModel:
    return xcompile.compile(onnx.load(MODEL), target, arch=arch, pool=shared_pool())


def code_of(model: xcompile.CompiledModel) -> dict[str, str]:
    return {s: kinds["ptx"].decode() for s, kinds in model.artifact.device_code.items()}


@pytest.mark.parametrize("target", ["cuda", "cuda-fp16", "cuda-bf16"])
def test_each_kernel_is_an_entry_point_of_8_byte_parameters(target: str) -> None:
    model = compiled(target)
    for kernel in model.artifact.program.device:
        text = code_of(model)[kernel.symbol]
        assert ".target sm_80" in text
        head = text[text.index(f".visible .entry {kernel.symbol}(") :].partition(")")[0]
        assert head.count(".param .u64") == kernel.parameters + (kernel.scratch > 0) + 1
        assert f".maxntid {kernel.threads}" in text


def test_multiplications_and_additions_are_never_contracted() -> None:
    text = "".join(code_of(compiled("cuda")).values())
    assert "mul.rn.f32" in text
    assert "add.rn.f32" in text


@pytest.mark.skipif(PTXAS is None, reason="ptxas is not installed: pip install nvidia-cuda-nvcc")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_assembler_takes_every_kernel_without_spills(arch: str, tmp_path: Path) -> None:
    for symbol, text in code_of(compiled("cuda-fp16", arch)).items():
        source = tmp_path / f"{symbol}.ptx"
        source.write_text(text)
        assert PTXAS is not None
        command = [PTXAS, f"-arch={arch}", "-v", str(source), "-o", str(tmp_path / "out.cubin")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "0 bytes spill stores, 0 bytes spill loads" in done.stderr


def test_a_saved_model_holds_its_kernels(tmp_path: Path) -> None:
    model = compiled("cuda")
    model.save(tmp_path / "digits.so")
    assert read_manifest(tmp_path / "digits.so").target == "cuda"
    with pytest.raises(xcompile.RuntimeModelError, match="XC5008"):
        xcompile.load(tmp_path / "digits.so")


def test_a_model_whose_sizes_are_data_is_refused() -> None:
    helper = onnx.helper
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"], name="places")],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT64, [1, None])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(xcompile.CompileError, match="XC4011"):
        xcompile.compile(model, "cuda", pool=shared_pool())
