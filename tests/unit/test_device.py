"""GPU architectures: what is known of them, and the reading of their names."""

from dataclasses import replace

import pytest

from xcompile.compiler.codegen.job import MachineSpec
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.device import ARCHITECTURES, Device, parse_architectures
from xcompile.compiler.target.registry import parse_target, targets, with_architectures
from xcompile.compiler.target.target import Target


def test_the_architectures_are_seven_oldest_first() -> None:
    assert list(ARCHITECTURES) == "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120".split()


@pytest.mark.parametrize(
    ("name", "has", "lacks"),
    [
        ("sm_75", {"mma.f16.m16n8k8", "mma.s8.m8n8k16", "mma.s4.m8n8k32"}, {"cp.async", "bf16"}),
        ("sm_80", {"mma.s8.m16n8k32", "bf16", "tf32", "cp.async", "mma.s4.m16n8k64"}, {"wgmma"}),
        ("sm_90", {"wgmma", "tma", "mma.bf16.m16n8k16"}, {"mma.s4.m16n8k64"}),
        ("sm_120", {"tma", "mma.s8.m16n8k32"}, {"wgmma", "mma.s4.m8n8k32"}),
    ],
)
def test_an_architecture_has_these_features(name: str, has: set[str], lacks: set[str]) -> None:
    device = Device((name,))
    assert has <= device.features
    assert not lacks & device.features


def test_kernels_use_only_what_every_architecture_has() -> None:
    device = parse_architectures(["sm_90", "sm_75"])
    assert device.architectures == ("sm_75", "sm_90")
    assert device.oldest.name == "sm_75"
    assert device.has("mma.s8.m8n8k16")
    assert not device.has("cp.async")
    assert not device.has("wgmma")


def test_a_block_never_has_more_shared_memory_than_its_multiprocessor() -> None:
    assert all(48 * 1024 <= a.shared_block <= a.shared for a in ARCHITECTURES.values())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["sm_81"], "XC6001 no GPU architecture 'sm_81' (help: there are sm_80, sm_86, sm_89)"),
        (["sm_90a"], "XC6001 no GPU architecture 'sm_90a' (help: there are sm_90)"),
        ([], f"XC6001 no GPU architecture is named (help: there are {', '.join(ARCHITECTURES)})"),
    ],
)
def test_an_unknown_architecture_is_refused_with_what_there_is(
    names: list[str], message: str
) -> None:
    with pytest.raises(CompileError) as caught:
        parse_architectures(names)
    assert str(caught.value) == message


def test_cuda_is_a_target_of_every_precision_and_runs_on_no_cpu() -> None:
    cuda = targets()["cuda"]
    assert parse_target("cuda-int8") == (cuda, "int8")
    assert parse_target("cuda-fp16") == (cuda, "fp16")
    assert cuda.device == Device(("sm_80",))
    assert not cuda.runs_on(targets()["cpu"])


def test_blocked_images_of_a_gpu_have_blocks_of_16_channels() -> None:
    assert targets()["cuda"].channel_block == 16
    assert targets()["x86-avx2"].channel_block == 8


def test_architectures_are_given_as_one_text_or_several() -> None:
    cuda = targets()["cuda"]
    several = with_architectures(cuda, ["sm_90,sm_80", "sm_120"])
    assert several.device == Device(("sm_80", "sm_90", "sm_120"))
    assert with_architectures(cuda, []) is cuda
    assert Target.from_json(several.to_json()) == several


def test_architectures_of_a_target_without_a_gpu_are_refused() -> None:
    with pytest.raises(CompileError, match=r"XC6005 the target 'x86-avx2' has no GPU"):
        with_architectures(targets()["x86-avx2"], ["sm_80"])


@pytest.mark.parametrize("device", ["sm_80", [80], {"architectures": ["sm_80"]}])
def test_json_of_another_form_is_refused(device: object) -> None:
    with pytest.raises(CompileError, match="XC6005 a device is a list of architectures"):
        Target.from_json({**targets()["cuda"].to_json(), "device": device})


def test_llvm_is_told_the_oldest_architecture_and_its_ptx() -> None:
    machine = MachineSpec.of_device(parse_architectures(["sm_90", "sm_86"]))
    assert (machine.cpu, machine.features) == ("sm_86", "+ptx71")
    assert machine.is_device
    assert not MachineSpec.of(replace(targets()["cuda"], device=None)).is_device
