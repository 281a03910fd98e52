"""What the innermost loops of products of 16-bit floats are made of, in the assembly of every target."""

from dataclasses import replace
from typing import Any

import pytest

from bench.blocked import CompiledConv
from bench.matmul import CompiledContraction
from tests.kernels.test_integer_listing import STACK, count, loops
from xcompile.compiler.schedule.contraction import ContractionProblem
from xcompile.compiler.schedule.conv import ConvProblem
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

AVX512 = targets()["x86-avx512"]
BF16 = replace(AVX512, features=AVX512.features | {"avx512bf16"})
CASES = [
    pytest.param(BF16, "bf16", "vdpbf16ps", (), id="vdpbf16ps"),
    pytest.param(AVX512, "bf16", "vfmadd231ps", ("vpmovzxwd", "vpslld"), id="avx512-bf16"),
    pytest.param(AVX512, "f16", "vfmadd231ps", ("vcvtph2ps",), id="avx512-f16"),
    pytest.param(targets()["x86-avx2"], "f16", "vfmadd231ps", ("vcvtph2ps",), id="avx2-f16"),
    pytest.param(
        targets()["x86-avx2"], "bf16", "vfmadd231ps", ("vpmovzxwd", "vpslld"), id="avx2-bf16"
    ),
    pytest.param(targets()["arm-neon"], "f16", "fmla", ("fcvtl",), id="neon-f16"),
    pytest.param(targets()["arm-i8mm"], "f16", "fmlal", (), id="fmlal"),
    pytest.param(targets()["arm-i8mm"], "bf16", "bfmmla", (), id="bfmmla"),
    pytest.param(targets()["arm-neon"], "bf16", "fmla", ("shll",), id="neon-bf16"),
]


@pytest.mark.parametrize(("target", "dtype", "instruction", "widening"), CASES)
def test_the_loop_multiplies_what_it_widens_at_the_load_and_keeps_its_sums_in_registers(
    target: Target, dtype: str, instruction: str, widening: tuple[str, ...]
) -> None:
    operands = (dtype, dtype)
    problem = ContractionProblem(64, 512, 512, constant_b=True, operands=operands)  # type: ignore[arg-type]
    found = loops(CompiledContraction(problem, target).kernel.listing, instruction)
    assert max(count(body, instruction) for body in found) >= 12
    for body in found:
        assert all(count(body, each) for each in widening)
        assert not [line for line in body if STACK.search(line)]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(("dtype", "instruction"), [("f16", "fmlal"), ("bf16", "bfmmla")])
def test_convolutions_multiply_16_bits_without_widening_where_there_are_instructions(
    dtype: Any, instruction: str, size: int
) -> None:
    window = Window((size, size), pads=(size // 2,) * 4)
    problem = ConvProblem(1, 128, 28, 28, 128, window, dtype=dtype, weights=dtype)
    kernel = CompiledConv(problem, targets()["arm-i8mm"]).kernel
    found = loops(kernel.listing, instruction)
    assert max(count(body, instruction) for body in found) >= 12
    assert all(count(body, each) == 0 for body in found for each in ("fmla", "fcvtl", "shll"))
    assert (kernel.stack_stores, kernel.calls) == (0, [])


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("name", "instruction", "widening"),
    [
        ("x86-avx2", "vfmadd231ps", ("vpmovsxbd", "vcvtdq2ps")),
        ("x86-avx512", "vfmadd231ps", ("vpmovsxbd", "vcvtdq2ps")),
        ("arm-neon", "fmla", ("sshll", "scvtf")),
    ],
)
def test_convolutions_widen_codes_of_8_bits_once_for_all_pixels(
    name: str, instruction: str, widening: tuple[str, ...], size: int
) -> None:
    window = Window((size, size), pads=(size // 2,) * 4)
    problem = ConvProblem(1, 128, 28, 28, 128, window, dtype="f32", weights="i8")
    kernel = CompiledConv(problem, targets()[name]).kernel
    found = loops(kernel.listing, instruction)
    assert max(count(body, instruction) for body in found) >= 12
    for body in found:
        assert all(0 < count(body, each) < count(body, instruction) for each in widening)
        assert not [line for line in body if STACK.search(line)]
    assert kernel.calls == []


@pytest.mark.parametrize("weights", ["f32", "i8"])
def test_pixels_at_computed_places_leave_sums_in_registers(weights: str) -> None:
    """Open sizes on AVX-512: of 24 sums, two are not; with eight units in a pass half of them were not."""
    problem = ConvProblem(1, 256, "d0", "d1", 128, Window((1, 1)), weights=weights)  # type: ignore[arg-type]
    kernel = CompiledConv(problem, AVX512).kernel
    for body in loops(kernel.listing, "vfmadd231ps"):
        assert count(body, "vfmadd231ps") == 24
        assert len([line for line in body if STACK.search(line) and "mm" in line]) <= 4
