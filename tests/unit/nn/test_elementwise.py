"""Elementwise ops: stated values at the corners."""

import math

import ml_dtypes
import numpy as np
import pytest

from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn import binary, ternary, unary
from xcompile.dialects.nn.numeric import rounded

F32 = np.float32
NAN, INF = math.nan, math.inf


def f32(*values):
    return np.array(values, F32)


def i32(*values):
    return np.array(values, np.int32)


def test_round_goes_to_even(run):
    y = run(unary.Round, x=f32(0.5, 1.5, 2.5, -0.5, -1.5, -2.5))
    assert y.tolist() == [0, 2, 2, 0, -2, -2]
    assert np.signbit(y[3])


def test_integer_division_rounds_toward_zero(run):
    assert run(binary.Div, a=i32(-7, 7, -7, 7), b=i32(2, -2, -2, 2)).tolist() == [-3, -3, 3, 3]


def test_integer_division_without_a_quotient_is_defined(run):
    least = -(2**31)
    assert run(binary.Div, a=i32(7, 0, -7, least), b=i32(0, 0, 0, -1)).tolist() == [0, 0, 0, least]
    assert run(binary.Mod, a=i32(7, least), b=i32(0, -1)).tolist() == [0, 0]
    assert run(binary.Mod, a=i32(7, least), b=i32(0, -1), fmod=True).tolist() == [0, 0]
    assert run(binary.Div, a=np.uint8([200]), b=np.uint8([3])).tolist() == [66]


def test_mod_takes_the_sign_of_the_divisor_or_with_fmod_of_the_dividend(run):
    a, b = i32(-7, 7, -7, 7), i32(3, -3, -3, 3)
    assert run(binary.Mod, a=a, b=b).tolist() == [2, -2, -1, 1]
    assert run(binary.Mod, a=a, b=b, fmod=True).tolist() == [-1, 1, -1, 1]
    assert run(binary.Mod, a=f32(-7.5, 7.5), b=f32(2, -2), fmod=True).tolist() == [-1.5, 1.5]


def test_cast_of_floats_to_int8_keeps_low_bits_and_gives_0_for_what_is_no_number(run):
    x = f32(300, NAN, INF, -INF, 50, -50, -1.9, 1e30)
    assert run(unary.Cast, x=x, to="i8").tolist() == [44, 0, 0, 0, 50, -50, -1, 0]


def test_cast_of_large_floats_to_64_bits(run):
    x = np.array([2.0**63, 2.0**64 - 2048, -1.0, 9.5])
    assert run(unary.Cast, x=x, to="ui64").tolist() == [2**63, 2**64 - 2048, 2**64 - 1, 9]
    assert run(unary.Cast, x=x, to="i64").tolist() == [0, 0, -1, 9]


def test_cast_to_float16_rounds_to_even_and_overflows_to_infinity(run):
    y = run(unary.Cast, x=f32(65504, 65519.99, 65520, 1e-8, 2049, -1e6), to="f16")
    assert y.tolist() == [65504, 65504, INF, 0, 2048, -INF]


def test_cast_to_bfloat16(run):
    y = run(unary.Cast, x=f32(1.00390625, 1.01171875, 3.4e38, NAN), to="bf16").astype(F32)
    np.testing.assert_array_equal(y, f32(1, 1.015625, INF, NAN))


def test_cast_to_bool_is_true_for_nan_and_false_for_minus_zero(run):
    assert run(unary.Cast, x=f32(NAN, -0.0, 0.5), to="i1").tolist() == [True, False, True]


def test_cast_to_float8_saturates_only_when_asked(run):
    x = f32(1000, -1000, INF, NAN, 1.0625)
    sat = run(unary.Cast, x=x, to="f8E4M3FN").astype(F32)
    np.testing.assert_array_equal(sat, f32(448, -448, 448, NAN, 1))
    raw = run(unary.Cast, x=x, to="f8E4M3FN", saturate=False).astype(F32)
    np.testing.assert_array_equal(raw, f32(NAN, NAN, NAN, NAN, 1))
    raw = run(unary.Cast, x=f32(1e6, INF), to="f8E5M2", saturate=False).astype(F32)
    np.testing.assert_array_equal(raw, f32(INF, INF))


def test_cast_between_integers_wraps(run):
    assert run(unary.Cast, x=i32(300, -1, 128), to="ui8").tolist() == [44, 255, 128]
    assert run(unary.Cast, x=i32(7, 8, -9, 16), to="i4").astype(int).tolist() == [7, -8, 7, 0]
    assert run(unary.Cast, x=i32(7, 8, -1, 16), to="ui4").astype(int).tolist() == [7, 8, 15, 0]


def test_doubles_are_rounded_to_bfloat16_once():
    value = np.array([1 + 2.0**-8 + 2.0**-40, 1 + 2.0**-8, -(1 + 2.0**-8 + 2.0**-40)])
    y = rounded(value, np.dtype(ml_dtypes.bfloat16)).astype(np.float64)
    assert y.tolist() == [1.0078125, 1.0, -1.0078125]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, F32, np.float64])
def test_relu_maximum_and_minimum_keep_nan(run, dtype):
    x = np.array([NAN, -1, 2], dtype)
    zero = np.zeros(3, dtype)
    for y in (
        run(unary.Relu, x=x),
        run(binary.Maximum, a=x, b=zero),
        run(binary.Maximum, a=zero, b=x),
    ):
        np.testing.assert_array_equal(y.astype(F32), f32(NAN, 0, 2))
    np.testing.assert_array_equal(run(binary.Minimum, a=zero, b=x).astype(F32), f32(NAN, -1, 0))


def test_clip_keeps_nan_and_the_upper_bound_wins(run):
    x = f32(NAN, -5, 5, 0.5)
    np.testing.assert_array_equal(
        run(ternary.Clip, x=x, low=np.array(0, F32), high=np.array(1, F32)), f32(NAN, 0, 1, 0.5)
    )
    np.testing.assert_array_equal(
        run(ternary.Clip, x=x, high=np.array(1, F32)), f32(NAN, -5, 1, 0.5)
    )
    np.testing.assert_array_equal(
        run(ternary.Clip, x=f32(0, 9), low=np.array(3, F32), high=np.array(1, F32)), f32(1, 1)
    )


def test_float16_products_are_rounded_to_float16(run):
    y = run(binary.Mul, a=np.float16([3.021, 6.277]), b=np.float16([1.001, 3.3]))
    assert y.astype(np.float64).tolist() == [3.025390625, 20.71875]


@pytest.mark.parametrize(
    ("cls", "attributes", "x", "expected"),
    [
        (unary.Abs, {}, [-2, 3], [2, 3]),
        (unary.Neg, {}, [-2, 3], [2, -3]),
        (unary.Sign, {}, [-2, 0, 3], [-1, 0, 1]),
        (unary.Exp, {}, [0, 1, 200, -200], [1, math.e, INF, 0]),
        (unary.Log, {}, [1, 0, -1], [0, -INF, NAN]),
        (unary.Sqrt, {}, [4, -1, INF], [2, NAN, INF]),
        (unary.Rsqrt, {}, [4, 0], [0.5, INF]),
        (unary.Reciprocal, {}, [4, 0, -0.0], [0.25, INF, -INF]),
        (unary.Sin, {}, [0, math.pi / 6], [0, 0.5]),
        (unary.Cos, {}, [0, math.pi / 3], [1, 0.5]),
        (unary.Tan, {}, [0, math.pi / 4], [0, 1]),
        (unary.Asin, {}, [0.5, 2], [math.pi / 6, NAN]),
        (unary.Acos, {}, [0.5, 2], [math.pi / 3, NAN]),
        (unary.Atan, {}, [1, INF], [math.pi / 4, math.pi / 2]),
        (unary.Sinh, {}, [1], [1.1752012]),
        (unary.Cosh, {}, [1], [1.5430806]),
        (unary.Tanh, {}, [1, 50, -50], [0.7615942, 1, -1]),
        (unary.Asinh, {}, [1.1752012], [1]),
        (unary.Acosh, {}, [1.5430806, 0], [1, NAN]),
        (unary.Atanh, {}, [0.7615942, 1], [1, INF]),
        (unary.Erf, {}, [0.5, INF, -INF, NAN], [0.5204999, 1, -1, NAN]),
        (unary.Sigmoid, {}, [0, 1, -200, 200], [0.5, 0.7310586, 0, 1]),
        (unary.HardSigmoid, {}, [0, 10, -10], [0.5, 1, 0]),
        (unary.HardSwish, {}, [-4, 1, 4], [0, 2 / 3, 4]),
        (unary.LeakyRelu, {"alpha": 0.1}, [-1, 2, NAN], [-0.1, 2, NAN]),
        (unary.Elu, {"alpha": 2.0}, [-1, 2], [-1.2642411, 2]),
        (unary.Celu, {"alpha": 2.0}, [-1, 2], [-0.7869387, 2]),
        (unary.Selu, {}, [-1, 1], [-1.1113307, 1.050701]),
        (unary.Gelu, {}, [1, -1], [0.8413447, -0.15865525]),
        (unary.Gelu, {"approximate": "tanh"}, [1], [0.841192]),
        (unary.Softplus, {}, [0, 1000, -1000], [0.6931472, 1000, 0]),
        (unary.Softsign, {}, [1, -3], [0.5, -0.75]),
        (unary.Mish, {}, [1, 1000], [0.8650984, 1000]),
        (unary.Swish, {"alpha": 2.0}, [1], [0.8807971]),
        (unary.ThresholdedRelu, {"alpha": 2.0}, [1, 2, 3, NAN], [0, 0, 3, NAN]),
        (unary.Shrink, {"bias": 1.5, "lambd": 1.5}, [-2, -1, 2], [-0.5, 0, 0.5]),
        (unary.Floor, {}, [1.5, -1.5], [1, -2]),
        (unary.Ceil, {}, [1.5, -1.5], [2, -1]),
        (unary.IsNan, {}, [NAN, 1], [1, 0]),
        (unary.IsInf, {}, [INF, -INF, 1], [1, 1, 0]),
        (unary.IsInf, {"negative": False}, [INF, -INF], [1, 0]),
    ],
    ids=lambda value: value.NAME if isinstance(value, type) else None,
)
def test_functions_have_their_values(run, cls, attributes, x, expected):
    y = run(cls, x=f32(*x), **attributes)
    np.testing.assert_allclose(y.astype(F32), f32(*expected), rtol=2e-7)


@pytest.mark.parametrize(
    ("cls", "a", "b", "expected"),
    [
        (binary.Add, [1, 2], [10, 20], [11, 22]),
        (binary.Sub, [1, 2], [10, 20], [-9, -18]),
        (binary.Div, [1, -1, 0], [0, 0, 0], [INF, -INF, NAN]),
        (binary.Mod, [-7.5, 7.5, -3, 1], [2, 2, INF, 0], [0.5, 1.5, INF, NAN]),
        (binary.Pow, [2, 4, -8], [10, -0.5, 1 / 3], [1024, 0.5, NAN]),
        (binary.PRelu, [-2, 3], [0.5, 0.5], [-1, 3]),
        (binary.Equal, [1, NAN], [1, NAN], [1, 0]),
        (binary.Less, [1, 2, NAN], [2, 2, 2], [1, 0, 0]),
        (binary.LessEqual, [1, 2, NAN], [1, 1, 2], [1, 0, 0]),
        (binary.Greater, [1, 3, NAN], [2, 2, 2], [0, 1, 0]),
        (binary.GreaterEqual, [1, 2, NAN], [2, 2, 2], [0, 1, 0]),
    ],
    ids=lambda value: value.NAME if isinstance(value, type) else None,
)
def test_functions_of_two_operands_have_their_values(run, cls, a, b, expected):
    np.testing.assert_allclose(run(cls, a=f32(*a), b=f32(*b)).astype(F32), f32(*expected))


def test_integer_powers(run):
    assert run(binary.Pow, a=i32(2, -3, 2, 1, -1, 0), b=i32(10, 3, -1, -5, -3, -1)).tolist() == [
        1024,
        -27,
        0,
        1,
        -1,
        0,
    ]
    assert run(binary.Pow, a=i32(2, 9), b=f32(3, 0.5)).tolist() == [8, 3]
    assert run(binary.Pow, a=f32(2, 3), b=np.int64([3, -1])).tolist() == [8, F32(1 / 3)]


def test_logic_and_bits(run):
    t, f = np.array([True, True, False]), np.array([True, False, False])
    assert run(binary.And, a=t, b=f).tolist() == [True, False, False]
    assert run(binary.Or, a=t, b=f).tolist() == [True, True, False]
    assert run(binary.Xor, a=t, b=f).tolist() == [False, True, False]
    assert run(unary.Not, x=t).tolist() == [False, False, True]
    a, b = np.uint8([0b1100]), np.uint8([0b1010])
    assert run(binary.BitwiseAnd, a=a, b=b).tolist() == [0b1000]
    assert run(binary.BitwiseOr, a=a, b=b).tolist() == [0b1110]
    assert run(binary.BitwiseXor, a=a, b=b).tolist() == [0b0110]
    assert run(unary.BitwiseNot, x=a).tolist() == [0b11110011]
    assert run(binary.BitShift, a=np.uint8([129, 129]), b=np.uint8([1, 8]), left=True).tolist() == [
        2,
        0,
    ]
    assert run(
        binary.BitShift, a=np.uint8([129, 129]), b=np.uint8([1, 200]), left=False
    ).tolist() == [64, 0]


def test_operands_broadcast(run):
    y = run(binary.Add, a=f32(1, 2), b=f32(10, 20, 30).reshape(3, 1))
    assert y.tolist() == [[11, 12], [21, 22], [31, 32]]
    y = run(ternary.Where, condition=np.array([[True], [False]]), a=f32(1, 2), b=np.array(0, F32))
    assert y.tolist() == [[1, 2], [0, 0]]


def test_operands_that_do_not_fit_are_refused_with_the_node(build):
    with pytest.raises(
        CompileError, match=r"XC2005 .*sizes 2 and 3 do not broadcast, at node 'Add_3'"
    ):
        build.make(binary.Add, "Add_3", a=f32(1, 2), b=f32(1, 2, 3))
    with pytest.raises(CompileError, match="XC2002 operands have the dtypes f32 and i32"):
        build.make(binary.Add, a=f32(1), b=i32(1))
    with pytest.raises(CompileError, match=r"XC2002 nn.exp takes float elements, not i32"):
        build.make(unary.Exp, x=i32(1))
    with pytest.raises(CompileError, match=r"XC2002 nn.and takes bool elements"):
        build.make(binary.And, a=i32(1), b=i32(1))
    with pytest.raises(CompileError, match="XC2007"):
        build.make(unary.Gelu, x=f32(1), approximate="fast")
    with pytest.raises(CompileError, match="XC2007"):
        build.make(unary.Cast, x=f32(1), to="f7")
