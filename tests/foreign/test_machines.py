"""The machines themselves: they call with many arguments, keep what is outside of arrays, and tell of crashes."""

import numpy as np
import pytest

from bench.native import aligned
from tests.foreign.harness import KernelCall, machine_of, run_kernel, run_kernels
from tests.foreign.machines import REQUIRED, MachineError
from xcompile.compiler.codegen.job import MachineSpec
from xcompile.compiler.codegen.llvm import compile_object
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

MACHINES = [pytest.param(targets()[name], id=name) for name in ("arm-neon", "x86-vnni")]


def code(target: Target, text: str) -> bytes:
    return compile_object(text, MachineSpec.of(target))[0]


@pytest.mark.parametrize("target", MACHINES)
def test_arguments_beyond_the_registers_arrive_and_arrays_are_written_in_place(
    target: Target,
) -> None:
    types = ", ".join(f"i64 %a{i}" for i in range(20))
    text = (
        f"define void @kernel(ptr %out, ptr %in, {types}) {{\n"
        "%x = load float, ptr %in, align 4\n%n = sub i64 %a18, %a19\n%f = sitofp i64 %n to float\n"
        "%sum = fadd float %x, %f\nstore float %sum, ptr %out, align 4\nret void }"
    )
    out, given = np.zeros(3, np.float32), np.full(1, 0.5, np.float32)
    run_kernel(target, code(target, text), [out, given, *range(100, 118), -7, 10**6])
    np.testing.assert_array_equal(out, np.float32([-1000006.5, 0, 0]))


@pytest.mark.parametrize("target", MACHINES)
def test_calls_follow_each_other_and_views_share_memory(target: Target) -> None:
    text = (
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n"
        "define void @kernel(ptr %to, ptr %from, i64 %n) {\n"
        "call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)\nret void }"
    )
    compiled, memory = code(target, text), np.arange(16, dtype=np.int32)
    calls = [
        KernelCall(compiled, [memory[4:8], memory[:4], 16]),
        KernelCall(compiled, [memory[6:10], memory[4:8], 8]),
    ]
    run_kernels(target, calls)
    np.testing.assert_array_equal(memory[:12], [0, 1, 2, 3, 0, 1, 0, 1, 8, 9, 10, 11])


@pytest.mark.parametrize("target", MACHINES)
def test_addresses_keep_their_alignment(target: Target) -> None:
    text = (
        "define void @kernel(ptr %out) {\n%a = ptrtoint ptr %out to i64\n%m = and i64 %a, 63\n"
        "store i64 %m, ptr %out, align 4\nret void }"
    )
    out = aligned((8,), np.int32)[3:5]
    run_kernel(target, code(target, text), [out])
    np.testing.assert_array_equal(out, [12, 0])


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("index", [-1, 4])
def test_a_write_outside_an_array_is_seen(target: Target, index: int) -> None:
    text = (
        f"define void @kernel(ptr %out) {{\n%p = getelementptr float, ptr %out, i64 {index}\n"
        "store float 1.0, ptr %p, align 4\nret void }"
    )
    with pytest.raises(AssertionError, match="outside"):
        run_kernel(target, code(target, text), [np.zeros(4, np.float32)])


@pytest.mark.parametrize("target", MACHINES)
def test_a_crash_names_what_is_missing(target: Target) -> None:
    text = "declare void @nowhere()\ndefine void @kernel() {\ncall void @nowhere()\nret void }"
    with pytest.raises(MachineError, match=r"crashed .*no library has nowhere"):
        run_kernel(target, code(target, text), [])


@pytest.mark.parametrize("target", MACHINES)
def test_code_without_end_is_stopped(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.foreign.machines.TIMEOUT_SECONDS", 2)
    text = "define void @kernel() {\nbr label %again\nagain:\nbr label %again }"
    with pytest.raises(MachineError, match="no end within 2 s"):
        run_kernel(target, code(target, text), [])


def test_without_an_emulator_a_test_is_skipped_and_fails_in_the_projects_checks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"qemu-aarch64 .* apt-get install qemu-user"):
        machine_of(targets()["arm-neon"])
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(pytest.fail.Exception, match="apt-get install bochs bochs-term"):
        machine_of(targets()["x86-vnni"])
