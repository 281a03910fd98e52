"""Products of 16-bit floats on every target: exact sums of whole numbers, any schedule, NaN and infinity."""

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from bench.matmul import CompiledContraction
from bench.native import runnable_targets
from xcompile.compiler.schedule.contraction import ContractionProblem as Problem
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target

DTYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}
AVX512 = targets()["x86-avx512"]
BF16 = replace(AVX512, name="x86-bf16", features=AVX512.features | {"avx512bf16"})
NATIVE = [*runnable_targets(), *([BF16] if BF16.runs_on(host_target()) else [])]
EXPANDED = [
    each.portable(targets()["x86-avx2"])
    for each in (BF16, targets()["arm-neon"], targets()["arm-i8mm"])
]
ALL = [pytest.param(t, id=t.name) for t in (*NATIVE, *EXPANDED)]
SHAPES = [(1, 33, 7), (37, 19, 65)]


def whole(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-7, 7, shape, endpoint=True).astype(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["constant", "data", "transposed"])
@pytest.mark.parametrize("target", ALL)
def test_sums_of_whole_numbers_are_exact(target: Target, layout: str, dtype: str) -> None:
    strides = (1, "d2") if layout == "transposed" else None
    problem = Problem("d0", "d1", "d2", b_strides=strides, dtype="f32", operands=(dtype, dtype))  # type: ignore[arg-type]
    compiled = CompiledContraction(problem, target, epilogue=False)
    for number, (m, n, k) in enumerate(SHAPES):
        left, right = whole((m, k), dtype, number), whole((k, n), dtype, number + 9)
        wanted = left.astype(np.float32) @ right.astype(np.float32)
        if layout == "constant":
            sized = Problem(m, n, k, constant_b=True, operands=(dtype, dtype))  # type: ignore[arg-type]
            one, sizes = CompiledContraction(sized, target, epilogue=False), {}
        else:
            one, sizes = compiled, {"d0": m, "d1": n, "d2": k}
            right = np.ascontiguousarray(right.T).T if layout == "transposed" else right
        memory = right.T if layout == "transposed" else right
        found = one(left, memory, np.zeros(n, np.float32), sizes, threads=3)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("m", [1, 5])
def test_sums_that_are_rounded_to_odd_err_little(m: int) -> None:
    """By `bfdot` for one row and `bfmmla` for more: an eighth of what 513 roundings could add up to."""
    rng, dtype = np.random.default_rng(m), DTYPES["bf16"]
    left, right = rng.normal(size=(m, 513)).astype(dtype), rng.normal(size=(513, 9)).astype(dtype)
    problem = Problem(m, 9, 513, constant_b=True, operands=("bf16", "bf16"))
    target = targets()["arm-i8mm"].portable(targets()["x86-avx2"])
    compiled = CompiledContraction(problem, target, epilogue=False)
    found = compiled(left, right, np.zeros(9, np.float32))
    wide = left.astype(np.float64), right.astype(np.float64)
    most = abs(wide[0]) @ abs(wide[1]) * 2.0**-23 * 513 / 8
    assert (abs(found - wide[0] @ wide[1]) <= most).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("target", ALL)
def test_nan_and_infinity_stay_in_their_rows_and_columns(target: Target, dtype: str) -> None:
    left, right = whole((9, 21), dtype, 1), whole((21, 18), dtype, 2)
    left[2, 20], left[4, 0] = np.nan, np.inf
    right[right == 0] = 1
    with np.errstate(invalid="ignore"):
        wanted = left.astype(np.float32) @ right.astype(np.float32)
    problem = Problem(9, 18, 21, constant_b=True, operands=(dtype, dtype))  # type: ignore[arg-type]
    found = CompiledContraction(problem, target, epilogue=False)(
        left, right, np.zeros(18, np.float32)
    )
    np.testing.assert_array_equal(found, wanted)
