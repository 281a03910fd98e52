"""The elementary functions against references of higher precision."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from bench.accuracy import (
    DTYPES,
    HALVES,
    REFERENCES,
    SLOW,
    errors,
    evaluate,
    samples,
    worst,
    worst_half,
    worst_power,
    worst_single,
)
from bench.native import NativeKernel, runnable_targets
from xcompile.compiler.codegen.cpu import casts
from xcompile.compiler.codegen.cpu.builder import Builder, Signature
from xcompile.compiler.codegen.cpu.elementary import MATH
from xcompile.dialects.nn.numeric import to_integer

BOUNDS = {
    "acos": 1.5,
    "acosh": 3,
    "asin": 2.5,
    "asinh": 3,
    "atan": 2.5,
    "atanh": 3,
    "cosh": 2,
    "sinh": 2,
    "tan": 2.5,
    "cos": 1,
    "erf": 2.5,
    "exp": 1.05,
    "exp_nonpositive": 1.05,
    "expm1": 2,
    "gelu": 4,
    "gelu_tanh": 3,
    "log": 1,
    "log1p": 1.5,
    "mish": 4,
    "reciprocal": 0.5,
    "rsqrt": 1.5,
    "sigmoid": 2.5,
    "silu": 3.5,
    "sin": 1,
    "softplus": 3,
    "sqrt": 0.5,
    "tanh": 2.5,
}
INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_errors_over_all_exponents_stay_within_the_stated_ulps(name: str, dtype: str) -> None:
    found = worst(name, dtype, 2 if name in SLOW else 20)
    assert found.error <= BOUNDS[name], f"at {found.at}"


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_errors_over_the_whole_range_of_f32_stay_within_the_stated_ulps(name: str) -> None:
    found = worst_single(name, 499)
    assert found.error <= BOUNDS[name], f"at {found.at}"


def test_the_published_table_has_every_function_within_its_bound() -> None:
    table = (Path(__file__).parents[2] / "docs" / "accuracy.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in table if line.startswith("| ")]
    figures = {row[1]: (float(row[2]), float(row[4])) for row in rows[1:]}
    assert figures.keys() == BOUNDS.keys() | {"pow"}
    for name, bound in BOUNDS.items():
        assert max(figures[name]) <= bound, name


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", ["exp", "gelu", "log", "sin", "softplus", "tanh"])
def test_16_bit_floats_are_rounded_well_for_all_values(name: str, dtype: str) -> None:
    found = worst_half(name, dtype)
    assert found.error <= 0.501, f"at {found.at}"


@pytest.mark.full
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_every_function_rounds_16_bit_floats_well_for_all_values(name: str, dtype: str) -> None:
    found = worst_half(name, dtype)
    assert found.error <= 0.501, f"at {found.at}"


@pytest.mark.parametrize("lanes", [0, 8])
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_huge_arguments_are_reduced_by_all_of_pi(name: str, lanes: int) -> None:
    """Among them the double that is nearest to a multiple of pi/2, and the largest one."""
    nearest, largest = 6381956970095103.0 * 2.0**797, np.finfo(np.float64).max
    values = [2.0**45, 1e22, -1e22, nearest, -nearest, largest, 1.0, 1e-300, INF, -INF, NAN]
    x = np.array(values)
    error = errors(evaluate(name, x, lanes=lanes), REFERENCES[name](x.astype(np.longdouble)))
    assert error.max() <= BOUNDS[name]


@pytest.mark.parametrize(("dtype", "bound"), [("f32", 5e-6), ("f64", 8e-15)])
def test_gelu_has_relative_precision_where_one_plus_erf_cancels(dtype: str, bound: float) -> None:
    x = np.linspace(-8.4, -1, 5000).astype(DTYPES[dtype])
    exact = REFERENCES["gelu"](x.astype(np.longdouble))
    assert np.max(np.abs(evaluate("gelu", x) / exact - 1)) <= bound
    beyond = evaluate("gelu", np.array([-8.5, -100, -1e30], x.dtype))
    np.testing.assert_array_equal(beyond, np.zeros(3))


@pytest.mark.parametrize("lanes", [0, 4, 16])
def test_every_function_gives_the_same_bits_for_any_number_of_lanes(lanes: int) -> None:
    x = np.linspace(-9, 9, 1600, dtype=np.float32)
    with np.errstate(all="ignore"):
        for name in MATH:
            a, b = evaluate(name, x, lanes=8), evaluate(name, x, lanes=lanes)
            np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32), err_msg=name)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # of NaN, -infinity, infinity, -0.0
        ("exp", [NAN, 0.0, INF, 1.0]),
        ("log", [NAN, NAN, INF, -INF]),
        ("tanh", [NAN, -1.0, 1.0, -0.0]),
        ("sigmoid", [NAN, 0.0, 1.0, 0.5]),
        ("erf", [NAN, -1.0, 1.0, -0.0]),
        ("gelu", [NAN, NAN, INF, -0.0]),
        ("softplus", [NAN, 0.0, INF, np.log(2)]),
        ("sin", [NAN, NAN, NAN, -0.0]),
        ("expm1", [NAN, -1.0, INF, -0.0]),
        ("log1p", [NAN, NAN, INF, -0.0]),
        ("relu", [NAN, 0.0, INF, -0.0]),
        ("sign", [NAN, -1.0, 1.0, -0.0]),
        ("round_even", [NAN, -INF, INF, -0.0]),
        ("rsqrt", [NAN, NAN, 0.0, -INF]),
        ("mish", [NAN, NAN, INF, -0.0]),
        ("atan", [NAN, -np.pi / 2, np.pi / 2, -0.0]),
        ("asin", [NAN, NAN, NAN, -0.0]),
        ("acos", [NAN, NAN, NAN, np.pi / 2]),
        ("tan", [NAN, NAN, NAN, -0.0]),
        ("sinh", [NAN, -INF, INF, -0.0]),
        ("cosh", [NAN, INF, INF, 1.0]),
        ("asinh", [NAN, -INF, INF, -0.0]),
        ("acosh", [NAN, NAN, INF, NAN]),
        ("atanh", [NAN, NAN, NAN, -0.0]),
    ],
)
def test_special_values(name: str, expected: list[float], dtype: str) -> None:
    result = evaluate(name, np.array([NAN, -INF, INF, -0.0], DTYPES[dtype]))
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    zeros = np.array(expected) == 0
    np.testing.assert_array_equal(np.signbit(result[zeros]), np.signbit(expected)[..., zeros])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_exponential_of_softmax_flushes_to_exactly_zero(dtype: str) -> None:
    x = np.array([-INF, -1e30, -800, 0, -0.0, NAN], DTYPES[dtype])
    np.testing.assert_array_equal(evaluate("exp_nonpositive", x), [0, 0, 0, 1, 1, NAN])


def test_round_ties_go_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], np.float32)
    np.testing.assert_array_equal(evaluate("round_even", x), [0, 2, 2, -0.0, -2, -2])


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_maximum_and_minimum_keep_nan_of_either_operand(name: str) -> None:
    x, y = np.array([NAN, 1, -1], np.float32), np.array([1, NAN, 2], np.float32)
    expected = [NAN, NAN, 2 if name == "maximum" else -1]
    np.testing.assert_array_equal(evaluate(name, x, y), expected)


@pytest.mark.parametrize(("dtype", "bound"), [("f32", 0.51), ("f64", 3.0)])
def test_pow_is_precise_up_to_overflow(dtype: str, bound: float) -> None:
    assert worst_power(dtype, 4000).error <= bound


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_pow_has_the_special_cases_of_c(dtype: str) -> None:
    values = [0, -0.0, 1, -1, INF, -INF, NAN, 2, -2, 0.5, -0.5, 3, -3, 1e30, -1e30, 1.5, 1e-40]
    x, y = (a.ravel().astype(DTYPES[dtype]) for a in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.longdouble), y).astype(x.dtype)
    result = evaluate("pow", x, y)
    np.testing.assert_allclose(result, expected, rtol=1e-6 if dtype == "f32" else 1e-14)
    kept = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result)[kept], np.signbit(expected)[kept])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fmod_is_exact_whatever_the_quotient(dtype: str) -> None:
    random = np.random.default_rng(0)
    x, y = (random.permutation(samples(dtype, 6))[:3000] for _ in range(2))
    with np.errstate(all="ignore"):
        near = (x * random.uniform(0.01, 1, len(x))).astype(x.dtype)
    values = [0, -0.0, 1, -1, INF, -INF, NAN, 5.5, -5.5, 3, 1e-40]
    a, b = (v.ravel().astype(x.dtype) for v in np.meshgrid(values, values))
    x, y = np.concatenate([x, x, a]), np.concatenate([y, near, b])
    with np.errstate(all="ignore"):
        expected = np.fmod(x, y)
    result = evaluate("fmod", x, y)
    np.testing.assert_array_equal(result, expected)
    kept = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(result)[kept], np.signbit(expected)[kept])


def test_no_function_calls_a_library() -> None:
    for target in runnable_targets():
        lanes = target.lanes(32)
        builder, signature = Builder(), Signature(("f32", "f32"))
        with builder.loop(signature.begin, signature.end, lanes) as at:
            value = builder.load(signature.buffer(0), at, lanes)
            for function in MATH.values():
                value = function(builder, value, lanes, "f32")
            builder.store(value, signature.buffer(1), at, lanes)
        assert NativeKernel(builder, signature, target).calls == []


# -- casts ------------------------------------------------------------------------------------------

NUMPY = {"f64": "f8", "f32": "f4", "f16": "f2", "bf16": ml_dtypes.bfloat16, "bool": "?"} | {
    f"{kind}{size * 8}": f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)
}


@pytest.mark.parametrize("target", ["i8", "u16", "i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("source", ["f32", "f64", "f16", "bf16"])
def test_casts_to_integers_agree_with_the_reference_over_all_exponents(
    source: str, target: str
) -> None:
    with np.errstate(all="ignore"):
        x = samples("f64" if source == "f64" else "f32", 3).astype(NUMPY[source])
    expected = to_integer(x, np.dtype(NUMPY[target]))
    np.testing.assert_array_equal(convert(x, source, target), expected)


def convert(x: np.ndarray, source: str, target: str, lanes: int = 8, **known: bool) -> np.ndarray:
    builder = Builder()
    signature = Signature((casts.storage(source), casts.storage(target)))
    with builder.loop(signature.begin, signature.end, lanes or 1) as at:
        value = builder.load(signature.buffer(0), at, lanes)
        value = casts.cast(builder, value, source, target, lanes, **known)
        builder.store(value, signature.buffer(1), at, lanes)
    size = len(x)
    x = np.concatenate([x, np.zeros(-size % 16, x.dtype)])
    out = np.zeros(len(x), NUMPY[target])
    kernel = NativeKernel(builder, signature, runnable_targets()[-1])
    assert kernel.calls == []
    kernel(x, out, 0, len(x))
    return out[:size]


@pytest.mark.parametrize("lanes", [0, 4, 8, 16])
@pytest.mark.parametrize("number", [False, True])
def test_casts_to_the_nearest_integer_round_ties_to_even(lanes: int, number: bool) -> None:
    values = [0.5, 1.5, -2.5, 2.500001, -0.49, 254.5, -128.0, 2.0**30 + 128]
    whole = [0, 2, -2, 3, 0, 254, -128, 2**30 + 128]
    if not number:
        values, whole = [NAN, *values], [0, *whole]
    x = np.array(values, np.float32)
    found = convert(x, "f32", "i32", lanes, fits=True, number=number, nearest=True)
    assert found.tolist() == whole


@pytest.mark.parametrize(
    ("source", "target", "values", "expected"),
    [
        ("f32", "i8", [300, NAN, INF, -INF, 50, -50], [44, 0, 0, 0, 50, -50]),
        ("f32", "u8", [300, NAN, INF, -1.9, 255.9], [44, 0, 0, 255, 255]),
        ("f32", "i32", [NAN, 3e9, -3e9, -1.5, INF], [0, 3000000000 - 2**32, 2**32 - 3000000000, -1, 0]),
        ("f32", "i32", [2.0**31, -(2.0**31), 1.5 * 2.0**32, 2.0**63], [-(2**31), -(2**31), -(2**31), 0]),
        ("f64", "i32", [2147483647.5, -2147483649.5, 2.0**40 + 7.9], [2147483647, 2147483647, 7]),
        ("f64", "i16", [-65537.5, 40000.0], [-1, 40000 - 65536]),
        ("f32", "u32", [4e9, -1.0, NAN], [4000000000, 2**32 - 1, 0]),
        ("f32", "i64", [1e18, NAN, INF, -2.5], [999999984306749440, 0, 0, -2]),
        ("f64", "u64", [1.5 * 2**63, 2.0**64, 3.7, -1.0, NAN], [3 * 2**62, 0, 3, 2**64 - 1, 0]),
        ("f32", "f16", [65504, 65519.99, 65520, 1e-8, 2049, -1e6], [65504, 65504, INF, 0, 2048, -INF]),
        ("f32", "bf16", [1.00390625, 1.01171875, 3.4e38, NAN], [1, 1.015625, INF, NAN]),
        ("f64", "f16", [1 + 2**-11 + 2**-40, 1 + 2**-11, NAN], [1 + 2**-10, 1, NAN]),
        ("f64", "bf16", [1 + 2**-8 + 2**-40, 1 + 2**-8], [1 + 2**-7, 1]),
        ("f32", "bool", [NAN, -0.0, 0.5, 1e-45], [True, False, True, True]),
        ("bf16", "f64", [1.5, -INF, NAN], [1.5, -INF, NAN]),
        ("i32", "i8", [300, -300, 127], [44, -44, 127]),
        ("u8", "i32", [200, 255], [200, 255]),
        ("i8", "i64", [-1], [-1]),
        ("i64", "bool", [0, 2**40], [False, True]),
        ("bool", "f32", [True, False], [1, 0]),
        ("u32", "f32", [4000000000], [4e9]),
        ("i64", "f64", [2**53 + 2], [2.0**53 + 2]),
    ],
)  # fmt: skip
def test_casts(source: str, target: str, values: list[float], expected: list[float]) -> None:
    with np.errstate(all="ignore"):
        x = np.array(values).astype(NUMPY[source])
    for lanes in (8, 0):
        result = convert(x, source, target, lanes)
        wanted = np.array(expected, object).astype(NUMPY[target])
        if target == "bf16":  # numpy does not know its NaN
            result, wanted = result.astype(np.float32), wanted.astype(np.float32)
        np.testing.assert_array_equal(result, wanted)
