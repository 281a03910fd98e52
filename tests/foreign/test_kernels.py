"""Kernels of every family as NEON code, run in qemu, against float64: a few cases of the tests in `tests/kernels`.

All of those run on any target that an emulator has: `XCOMPILE_KERNEL_TARGETS=arm-neon pytest tests/kernels`.
"""

import os
import subprocess
import sys

import numpy as np
import pytest

from bench.blocked import CompiledConv
from bench.native import TARGETS
from tests.foreign.harness import machine_of
from tests.kernels import test_attention, test_contraction, test_conv, test_rows, test_transposed
from tests.kernels import test_volumes as volumes
from tests.kernels import test_windows as windows
from tests.numerics import test_winograd
from xcompile.compiler.schedule.conv import ConvProblem
from xcompile.compiler.schedule.window import Window
from xcompile.compiler.target.registry import targets

NEON = targets()["arm-neon"]


@pytest.mark.parametrize("constant", [True, False])
def test_contractions(constant: bool) -> None:
    test_contraction.test_sizes_that_are_no_multiples_of_anything(NEON, constant, 7, 33, 65)


@pytest.mark.parametrize("name", ["1x1 flattened", "groups of three", "stem 7x7", "5x3 dilated"])
def test_convolutions(name: str) -> None:
    test_conv.test_a_convolution_is_right(name, NEON)


def test_transposed_convolutions() -> None:
    name = "3x3 stride 2, output padded"
    test_transposed.test_a_transposed_convolution_is_right(name, NEON, dynamic=False)


@pytest.mark.parametrize("m", [2, 4])
def test_winograd_convolutions(m: int) -> None:
    problem = (2, 5, 13, 6, 11, (0, 2, 1, 0))
    test_winograd.test_a_convolution_is_right_and_does_not_depend_on_the_partition(
        m, NEON, *problem
    )


def test_depthwise_convolutions() -> None:
    windows.test_a_depthwise_convolution_is_right("3x3 stride 2", NEON)


@pytest.mark.parametrize("name", ["dilated", "stem"])
def test_convolutions_of_volumes(name: str) -> None:
    volumes.test_a_convolution_is_right(name, NEON)


def test_pools_and_depthwise_convolutions_of_volumes() -> None:
    volumes.test_pools_and_depthwise_convolutions_are_right("strides and pads differ", NEON)


@pytest.mark.parametrize("name", ["max 3x3 stride 2", "average with ceiling and padding"])
def test_pools(name: str) -> None:
    windows.test_a_pool_is_right(name, NEON)


def test_attentions() -> None:
    test_attention.test_heads_of_any_size(NEON, 13, 5, 7, 9)


@pytest.mark.parametrize(
    ("kind", "inner"), [("softmax", 1), ("layer_norm", 1), ("log_sum_exp", 33), ("sum", 1)]
)
def test_rows_and_columns(kind: str, inner: int) -> None:
    problem = test_rows.Problem(kind, 3, 37, inner, "f32", 1e-5)  # type: ignore[arg-type]
    x = test_rows.values((3, 37, inner), kind).astype(np.float32)
    got = test_rows.Compiled(problem, NEON)(x, threads=2)
    np.testing.assert_allclose(got, test_rows.reference(problem, x), rtol=4e-5, atol=4e-6)


@pytest.mark.parametrize("size", [1, 3])
def test_convolutions_keep_their_accumulators_in_registers(size: int) -> None:
    window = Window((size, size), pads=(size // 2,) * 4)
    kernel = CompiledConv(ConvProblem(1, 128, 28, 28, 128, window), NEON).kernel
    assert kernel.stack_stores == 0
    assert kernel.calls == []


@pytest.mark.parametrize("m", [2, 4])
def test_winograd_convolutions_keep_their_accumulators_in_registers(m: int) -> None:
    test_winograd.test_the_main_loop_keeps_its_accumulators_in_registers(m, NEON)


@pytest.mark.full
@pytest.mark.parametrize("name", ["arm-neon", "arm-i8mm"])
def test_all_tests_of_kernels_pass_on(name: str) -> None:
    machine_of(targets()[name])
    chosen = (
        "tests/kernels",
        "tests/numerics/test_winograd.py",
        "tests/numerics/test_vector_math.py",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not bench", *chosen],
        env={**os.environ, TARGETS: name}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:]
