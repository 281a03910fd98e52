"""Integer instructions and kernels as the code that ships: AVX-512 VNNI in Bochs, AArch64 in qemu, bit for bit."""

import re
from dataclasses import replace

import numpy as np
import pytest

from bench.blocked import CompiledConv, from_blocked, reference
from bench.matmul import CompiledContraction
from bench.native import NativeKernel
from tests.foreign.harness import one_machine
from tests.kernels import (
    test_integer_contraction,
    test_integer_conv,
    test_integer_windows,
    test_isa,
)
from tests.kernels.test_conv import random_problem
from xcompile.compiler.codegen.cpu.builder import Builder, Signature
from xcompile.compiler.codegen.cpu.isa import INSTRUCTIONS, Instruction, vpdpbusd
from xcompile.compiler.schedule import contraction, conv
from xcompile.compiler.schedule.contraction import ContractionProblem
from xcompile.compiler.schedule.conv import ConvProblem
from xcompile.compiler.schedule.depthwise import DepthwiseProblem
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

TIERS = [
    pytest.param(targets()[name], id=name)
    for name in ("x86-avx2", "x86-vnni", "arm-neon", "arm-dotprod", "arm-i8mm")
]


def instruction_kernel(instruction: Instruction, target: Target) -> NativeKernel:
    """Applies an instruction to one operand of each kind."""
    b, types = Builder(), (*instruction.operands, instruction.result)
    signature = Signature(tuple(dtype for _, dtype in types))
    operands = [b.load(signature.buffer(i), 0, t[0]) for i, t in enumerate(instruction.operands)]
    result = instruction.write(b, *operands)
    b.store(result, signature.buffer(len(operands)), 0, instruction.result[0])
    return NativeKernel(b, signature, target)


@pytest.mark.parametrize("target", [TIERS[1], TIERS[4]])
def test_every_instruction_is_its_meaning(target: Target) -> None:
    present = [i for i in INSTRUCTIONS if any(f <= target.features for f in i.features)]
    results: list[tuple[Instruction, np.ndarray, np.ndarray]] = []
    with one_machine(target):
        for instruction in present:
            kernel = instruction_kernel(instruction, target)
            for number in range(50):
                operands = test_isa.operands(instruction, number)
                out = np.zeros(instruction.result[0], test_isa.DTYPES[instruction.result[1]])
                kernel(*operands, out, 0, 1)
                results.append((instruction, out, instruction.meaning(*operands)))
    for instruction, got, want in results:
        np.testing.assert_array_equal(got, want, err_msg=instruction.name)
    names = {instruction.name for instruction in present}
    arm = {"sdot", "udot", "smmla", "fmlal", "bfdot", "bfmmla", "smull", "saddlp"}
    assert names == ({"vpdpbusd", "vpmaddwd", "vpshufb"} if target.arch == "x86_64" else arm)


@pytest.mark.parametrize("target", [TIERS[1], TIERS[3]])
def test_a_depthwise_convolution_multiplies_four_columns_at_a_time(target: Target) -> None:
    window = Window((3, 5), pads=(1, 2, 1, 2))
    problem = DepthwiseProblem(1, 20, 9, 13, window, "ui8" if target.arch == "x86_64" else "i8")
    x = test_integer_windows.integers(problem.dtype, 1, 20, 9, 13)
    weight = test_integer_windows.integers("i8", 20, 1, 3, 5)
    test_integer_windows.check(problem, target, x, weight, 7)


@pytest.mark.parametrize("lanes", [4, 8])
def test_vpdpbusd_has_the_vex_form_where_there_is_no_avx512(lanes: int) -> None:
    """No emulator of Debian's executes it; its meaning is that of the EVEX form."""
    avx2 = targets()["x86-avx2"]
    target = replace(avx2, name="x86-avxvnni", features=avx2.features | {"avxvnni"})
    kernel = instruction_kernel(vpdpbusd(lanes), target)
    register = {4: "xmm", 8: "ymm"}[lanes]
    assert re.search(rf"{{vex}}\s+vpdpbusd\s.*%{register}\d", kernel.listing)


def check_convolutions(target: Target, seeds: range) -> None:
    """Random convolutions with any schedule, in one machine, give the sums of int64."""
    results: list[tuple[ConvProblem, np.ndarray, np.ndarray]] = []
    with one_machine(target):
        for seed in seeds:
            rng = np.random.default_rng(seed)
            problem = test_integer_conv.typed(random_problem(rng, target.lanes(32)), target)
            data = test_integer_conv.arrays(problem, seed)
            if seed % 4 == 0:
                data[0][:] = rng.choice([0, 127, 128, 255])
                data[1][:] = rng.choice([-128, -127, 127])
            x, fill = test_integer_conv.signed_as(data[0], problem), int(rng.integers(0, 128))
            schedules = list(conv.space(problem, target))
            schedule = schedules[0 if seed % 2 else int(rng.integers(len(schedules)))]
            kernel = CompiledConv(problem, target, schedule, fill=fill)
            y = kernel(x, *data[1:], threads=int(rng.integers(1, 5)))
            want = reference(x, data[1], problem, fill) + data[2][:, None, None]
            results.append((problem, y, want))
    for problem, y, want in results:
        np.testing.assert_array_equal(from_blocked(y, problem.oc), want)


@pytest.mark.parametrize("target", TIERS[1:])
def test_convolutions_are_exact(target: Target) -> None:
    check_convolutions(target, range(5))


@pytest.mark.full
@pytest.mark.parametrize("begin", range(0, 200, 20))
@pytest.mark.parametrize("target", TIERS)
def test_200_convolutions_are_exact(target: Target, begin: int) -> None:
    check_convolutions(target, range(begin, begin + 20))


@pytest.mark.parametrize(
    ("name", "instructions"),
    [
        ("arm-neon", {"smull", "sadalp"}),
        ("arm-dotprod", {"sdot"}),
        ("arm-i8mm", {"smmla"}),
    ],
)
def test_inner_loops_are_the_instructions_and_spill_nothing(
    name: str, instructions: set[str]
) -> None:
    target = targets()[name]
    window = Window((3, 3), pads=(1, 1, 1, 1))
    images = ConvProblem(1, 128, 28, 28, 128, window, dtype="i8", weights="i8")
    matrices = ContractionProblem(
        512, 512, 512, constant_b=True, dtype="i32", operands=("i8", "i8")
    )
    pixels = ConvProblem(1, 128, 28, 28, 128, dtype="i8", weights="i8")
    kernels = [CompiledConv(problem, target).kernel for problem in (images, pixels)]
    kernels.append(CompiledContraction(matrices, target).kernel)
    found = set(
        re.findall(r"\t(smull|sadalp|sdot|smmla)2?\t", " ".join(k.listing for k in kernels))
    )
    assert found == instructions
    assert [(kernel.stack_stores, kernel.calls) for kernel in kernels] == [(0, [])] * 3


def check_contractions(target: Target, numbers: range) -> None:
    """Random contractions with any schedule, in one machine, give the sums of int64."""
    results: list[tuple[np.ndarray, np.ndarray]] = []
    with one_machine(target):
        for number in numbers:
            rng = np.random.default_rng(number)
            left, right = test_integer_contraction.random_operands(target, number)
            (m, k), n = left.shape, right.shape[1]
            problem = ContractionProblem(
                m, n, k, constant_b=number % 3 == 0, dtype="i32",
                operands=test_integer_contraction.signs(target),  # type: ignore[arg-type]
            )  # fmt: skip
            schedules = list(contraction.space(problem, target))
            schedule = schedules[0 if number % 2 else int(rng.integers(len(schedules)))]
            bias = rng.integers(-(2**20), 2**20, n).astype(np.int32)
            compiled = CompiledContraction(problem, target, schedule)
            got = compiled(left, right, bias, threads=int(rng.integers(1, 5)))
            results.append((got, left.astype(np.int64) @ right.astype(np.int64) + bias))
    for got, want in results:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("target", TIERS[1:])
def test_contractions_are_exact(target: Target) -> None:
    check_contractions(target, range(5))


@pytest.mark.full
@pytest.mark.parametrize("begin", range(0, 200, 20))
@pytest.mark.parametrize("target", TIERS)
def test_200_contractions_are_exact(target: Target, begin: int) -> None:
    check_contractions(target, range(begin, begin + 20))
