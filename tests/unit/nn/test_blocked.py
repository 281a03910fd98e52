"""Products with weights in blocks: values stated by hand, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.blocked import MatMulBlocked

A = np.array([[1, 2, 3]], np.float32)
WEIGHTS = np.array([[1, -8], [7, 0], [2, 3]]).astype(ml_dtypes.int4)
SCALES = np.array([[1, 0.5], [10, 100]], np.float32)


def product(run, a, b, scale, zero_point=None, **fields):
    return run(MatMulBlocked, a=a, b=b, scale=scale, zero_point=zero_point, **fields)


def test_each_block_of_a_column_has_a_scale(run):
    """1·1 + 2·7 + 3·20 and 1·(-4) + 2·0 + 3·300, in blocks of two."""
    np.testing.assert_array_equal(product(run, A, WEIGHTS, SCALES, block=2), [[75, 896]])
    turned = product(run, A, WEIGHTS.T.copy(), SCALES.T.copy(), transpose_b=True, block=2)
    np.testing.assert_array_equal(turned, [[75, 896]])


def test_zero_points_are_subtracted_first(run):
    zeros = np.array([[1, -8], [2, 2]]).astype(ml_dtypes.int4)
    got = product(run, A, WEIGHTS, SCALES, zeros, block=2)
    np.testing.assert_array_equal(got, [[12, 308]])


@pytest.mark.parametrize(
    ("a", "scale", "fields", "message"),
    [
        (A, SCALES[:1], {"block": 2}, "sizes of scales and blocks"),
        (A, SCALES, {"block": 0}, "the block size is 0"),
        (A.astype(np.float64), SCALES, {"block": 2}, "is of f32, not f64"),
        (A, SCALES.astype(np.float64), {"block": 2}, "f32 or f16, not f64"),
        (A, SCALES[0], {"block": 2}, "are a matrix"),
        (A.T.copy(), SCALES, {"block": 2, "transpose_a": True}, "not transposed"),
    ],
)
def test_what_fits_no_product_is_refused(run, a, scale, fields, message):
    with pytest.raises(CompileError, match=message):
        product(run, a, WEIGHTS, scale, **fields)
