"""Kernels of models for `cuda` are PTX that NVIDIA's assembler takes, for every architecture."""

import re
from pathlib import Path

import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.test_digits import MODEL
from xcompile.compiler import driver, request
from xcompile.compiler.codegen.cuda.assembler import (
    INSTALL,
    AssemblyFacts,
    assemble,
    find_assembler,
    read_facts,
)
from xcompile.compiler.target.device import ARCHITECTURES
from xcompile.runtime.library import read_manifest


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


@pytest.mark.skipif(find_assembler() is None, reason=f"ptxas is not installed: {INSTALL}")
def test_the_assembler_makes_machine_code_of_every_architecture_without_spills() -> None:
    model = compiled("cuda-fp16", ",".join(ARCHITECTURES))
    for symbol, kinds in model.artifact.device_code.items():
        assert list(kinds) == ["ptx", *ARCHITECTURES]
        assert all(kinds[arch].startswith(b"\x7fELF") for arch in ARCHITECTURES)
        facts = model.artifact.assembly[symbol]
        assert all(0 < made.registers <= 64 and made.spilled == 0 for made in facts.values())
    assert re.search(r"; sm_90: \d+ registers, 0 bytes spilled, 0 bytes of shared", model.report())


def test_without_an_assembler_a_model_has_ptx_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "find_assembler", lambda: None)
    monkeypatch.setattr(request, "find_assembler", lambda: None)
    model = compiled("cuda-bf16")
    assert {tuple(kinds) for kinds in model.artifact.device_code.values()} == {("ptx",)}
    assert model.report().endswith(
        "PTX only, as ptxas is not installed (pip install nvidia-cuda-nvcc): the driver compiles it"
    )


def test_what_the_assembler_says_is_read() -> None:
    said = (
        "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
        "    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
        "ptxas info    : Used 40 registers, used 1 barriers, 2048 bytes smem, 400 bytes cmem[0]\n"
    )
    assert read_facts(said) == AssemblyFacts(registers=40, spilled=28, shared=2048)


@pytest.mark.skipif(find_assembler() is None, reason=f"ptxas is not installed: {INSTALL}")
def test_what_the_assembler_refuses_is_an_error_of_one_line() -> None:
    assembler = find_assembler()
    assert assembler is not None
    payload = {"ptx": ".version 7.0\n.target sm_80\nnonsense", "architecture": "sm_80"}
    with pytest.raises(xcompile.CompileError, match=r"XC4013 ptxas [\d.]+ for sm_80: .*error"):
        assemble({**payload, "path": assembler.path, "version": assembler.version})


def test_a_saved_model_holds_its_kernels(tmp_path: Path) -> None:
    model = compiled("cuda")
    model.save(tmp_path / "digits.so")
    assert read_manifest(tmp_path / "digits.so").target == "cuda"
    with pytest.raises(xcompile.RuntimeModelError, match="XC5008"):
        xcompile.load(tmp_path / "digits.so")
