"""Constants: every dtype survives, inline or as a weight, also through text."""

import numpy as np
import pytest

from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.weights import WeightStore
from xcompile.dialects.nn.const import Const


@pytest.fixture(autouse=True)
def _module():
    with context():
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            yield module


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (0,), (0, 3), (70,), (9, 9)])
def test_every_dtype_and_shape_survives_the_ir_and_its_text(dtype, shape, _module):
    weights = WeightStore()
    array = (np.arange(np.prod(shape, dtype=int)) % 7).reshape(shape).astype(DTYPES[dtype])
    const = Const.from_array(array, weights)
    const.verify()
    again = Const.from_array(array, weights)
    assert str(again.value) == str(const.value)
    parsed = ir.Module.parse(str(_module))
    for read in (const, view(parsed.body.operations[0])):
        back = read.array(weights)
        assert back.dtype == array.dtype and back.shape == shape and bits(back) == bits(array)
        assert not back.flags.writeable


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "f8E4M3FN", "f8E5M2"])
def test_special_values_survive(dtype):
    numbers = [0.0, -0.0, float("nan"), 0.1, -3.5]
    numbers += [] if dtype == "f8E4M3FN" else [float("inf"), -float("inf")]
    array = np.array(numbers, np.float64).astype(DTYPES[dtype])
    back = Const.from_array(array, WeightStore()).array(WeightStore())
    assert np.signbit(back[1]) and not np.signbit(back[0])
    np.testing.assert_array_equal(back.astype(np.float64), array.astype(np.float64))


def test_extreme_integers_survive():
    for dtype in (np.int8, np.int64, np.uint8, np.uint64, np.int32):
        array = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 1], dtype)
        assert (
            Const.from_array(array, WeightStore()).array(WeightStore()).tolist() == array.tolist()
        )


def test_a_splat_of_any_size_stays_inline_and_is_not_expanded():
    weights = WeightStore()
    const = Const.from_array(np.broadcast_to(np.float32(2.5), (1000, 1000, 1000)[:2]), weights)
    assert const.splat and len(weights) == 0
    assert const.array(weights).strides == (0, 0)


def test_zeros_of_both_signs_are_no_splat():
    const = Const.from_array(np.array([0.0, -0.0], np.float32), WeightStore())
    assert not const.splat
    assert np.signbit(const.array(WeightStore())).tolist() == [False, True]


def test_many_elements_are_a_weight_and_equal_ones_are_kept_once():
    weights = WeightStore()
    first, second = (Const.from_array(np.arange(65, dtype=np.int32), weights) for _ in range(2))
    assert len(weights) == 1 and first.value == second.value
    assert str(first.value).startswith('#nn.weight<"')


def test_big_endian_arrays_are_read_by_value():
    const = Const.from_array(np.arange(3, dtype=">i4"), WeightStore())
    assert const.array(WeightStore()).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", ["f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "bf16", "f16"])
def test_random_bits_of_small_floats_survive(dtype):
    rng = np.random.default_rng(0)
    for _ in range(8):
        array = rng.integers(0, 256, 64 * DTYPES[dtype].itemsize, np.uint8).view(DTYPES[dtype])
        back = Const.from_array(array, WeightStore()).array(WeightStore())
        np.testing.assert_array_equal(back.astype(np.float32), array.astype(np.float32))
