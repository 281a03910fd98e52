"""Targets: the named ones, this host, and the reading of target texts."""

import json
import os
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.host import detect, host_target, usable_cores
from xcompile.compiler.target.registry import MIXED, PRECISIONS, parse_target, targets
from xcompile.compiler.target.target import Target

NAMES = ("cpu", "x86-avx2", "x86-avx512", "x86-vnni", "arm-neon", "arm-dotprod", "arm-i8mm", "cuda")

ZEN4 = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
flags\t\t: fpu sse sse2 pni ssse3 fma cx16 sse4_1 sse4_2 movbe popcnt avx f16c lahf_lm abm bmi1 avx2 bmi2 \
avx512f avx512dq avx512cd avx512bw avx512vl avx512_vnni avx512_bf16 amx_tile
"""
ZEN2 = "vendor_id\t: AuthenticAMD\ncpu family\t: 23\nflags\t: sse sse2 avx avx2 fma f16c\n"
GRAVITON = "processor\t: 0\nFeatures\t: fp asimd atomics asimdhp asimddp i8mm bf16 sve\n"


def machine(root: Path, files: dict[str, str]) -> Path:
    """A folder with the given files of another machine's `/proc` and `/sys`."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_the_targets_are_this_host_and_seven_named_ones() -> None:
    assert tuple(targets()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_target_is_what_its_json_says(name: str) -> None:
    target = targets()[name]
    assert Target.from_json(json.loads(json.dumps(target.to_json()))) == target


@pytest.mark.parametrize("name", NAMES)
def test_llvm_knows_every_feature(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = targets()[name]
    llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.llvm_cpu(), features=target.llvm_features()
    )
    assert "not a recognized" not in capfd.readouterr().err


def test_features_come_sorted_for_llvm() -> None:
    target = replace(targets()["arm-neon"], features=frozenset({"neon", "dotprod", "i8mm"}))
    assert target.llvm_features() == "+dotprod,+i8mm,+neon"


def test_features_and_lanes_of_avx2_and_vnni() -> None:
    avx2, vnni = targets()["x86-avx2"], targets()["x86-vnni"]
    assert (avx2.lanes(32), avx2.lanes(8), avx2.vector_registers) == (8, 32, 16)
    assert (vnni.lanes(32), vnni.lanes(8), vnni.vector_registers) == (16, 64, 32)
    assert vnni.has("avx512vnni")
    assert not avx2.has("avx512vnni")


def test_code_runs_where_its_features_are() -> None:
    known = targets()
    assert known["x86-avx2"].runs_on(known["x86-vnni"])
    assert not known["x86-vnni"].runs_on(known["x86-avx2"])
    assert not known["arm-neon"].runs_on(known["x86-vnni"])


@pytest.mark.parametrize(
    ("text", "name"),
    [("cpu", "cpu"), ("cpu-fp32", "cpu"), ("x86-avx2", "x86-avx2"), ("arm-i8mm-fp32", "arm-i8mm")],
)
def test_a_target_text_names_target_and_precision(text: str, name: str) -> None:
    assert parse_target(text) == (targets()[name], "fp32")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x86-avx",
            "XC6001 no target 'x86-avx' (help: did you mean x86-avx2 or x86-avx512 or x86-vnni?)",
        ),
        ("arm", "XC6001 no target 'arm' (help: did you mean arm-neon or arm-dotprod or arm-i8mm?)"),
        (
            "x86-avx3-fp32",
            "XC6001 no target 'x86-avx3' (help: did you mean x86-avx2 or x86-avx512 or x86-vnni?)",
        ),
        ("", f"XC6001 no target '' (help: there are {', '.join(NAMES)})"),
        (
            "cpu-fp23",
            "XC6002 no precision 'fp23' (in target 'cpu-fp23') (help: did you mean fp32?)",
        ),
        (
            "cpu-",
            f"XC6002 no precision '' (in target 'cpu-') (help: there are {', '.join((*PRECISIONS, MIXED))})",
        ),
    ],
)
def test_an_unknown_target_or_precision_is_refused_with_what_there_is(
    text: str, message: str
) -> None:
    with pytest.raises(CompileError) as caught:
        parse_target(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "change",
    [{"cores": "4"}, {"cores": True}, {"features": "avx2"}, {"features": [2]}, {"sockets": 2}],
    ids=[
        "text for a number",
        "bool for a number",
        "text for a list",
        "number for a text",
        "unknown field",
    ],
)
def test_json_of_another_form_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(CompileError, match="XC6005"):
        Target.from_json({**targets()["x86-avx2"].to_json(), **change})


def test_the_host_can_run_its_own_code() -> None:
    host = host_target()
    assert host.runs_on(host)
    assert host.arch == os.uname().machine
    assert host.l1d > 0
    assert host.l2 > 0


def test_an_amd_core_that_splits_512_bit_operations_has_one_multiply_add_port(
    tmp_path: Path,
) -> None:
    target = detect(machine(tmp_path, {"proc/cpuinfo": ZEN4}), "x86_64")
    assert target.features == frozenset(
        "sse sse2 sse3 ssse3 sse4.1 sse4.2 fma cx16 movbe popcnt avx f16c sahf lzcnt bmi avx2 bmi2 avx512f"
        " avx512dq avx512cd avx512bw avx512vl avx512vnni avx512bf16".split()
    )
    assert (target.vector_bits, target.vector_registers, target.fma_ports) == (512, 32, 1)


def test_an_avx2_core_has_sixteen_registers_of_256_bits(tmp_path: Path) -> None:
    target = detect(machine(tmp_path, {"proc/cpuinfo": ZEN2}), "x86_64")
    assert (target.vector_bits, target.vector_registers, target.fma_ports) == (256, 16, 2)


def test_arm_features_get_llvms_names(tmp_path: Path) -> None:
    target = detect(machine(tmp_path, {"proc/cpuinfo": GRAVITON}), "aarch64")
    assert target.features == {"fp-armv8", "neon", "lse", "fullfp16", "dotprod", "i8mm", "bf16"}
    assert (target.vector_bits, target.vector_registers) == (128, 32)


def test_caches_are_read_by_level_and_the_instruction_cache_is_left_out(tmp_path: Path) -> None:
    files = {}
    for index, (level, kind, size) in enumerate(
        [
            ("1", "Data", "48K"),
            ("1", "Instruction", "64K"),
            ("2", "Unified", "2M"),
            ("3", "Unified", "32768K"),
        ]
    ):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        files |= {
            f"{folder}/level": level,
            f"{folder}/type": f"{kind}\n",
            f"{folder}/size": f"{size}\n",
        }
    target = detect(machine(tmp_path, files), "x86_64")
    assert (target.l1d, target.l2, target.l3) == (48 * 1024, 2 * 1024 * 1024, 32 * 1024 * 1024)


def test_a_machine_that_says_nothing_has_small_caches_and_no_features(tmp_path: Path) -> None:
    target = detect(tmp_path, "x86_64")
    assert (target.l1d, target.l2, target.l3) == (32 * 1024, 256 * 1024, 0)
    assert target.features == frozenset()


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        (
            {
                "proc/self/cgroup": "0::/pod/box\n",
                "sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,cpuacct:/box\n",
                "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/box/cpu.cfs_period_us": "100000\n",
            },
            4,
        ),
        (
            {
                "proc/self/cgroup": "4:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            8,
        ),
    ],
    ids=[
        "no cgroup",
        "no limit",
        "2.5 cores",
        "half a core",
        "limit of the parent",
        "version 1",
        "version 1, no limit",
    ],
)
def test_cores_are_those_of_the_affinity_within_the_cgroups_quota(
    files: dict[str, str], cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert usable_cores(machine(tmp_path, files)) == cores
