"""References of ops that read between elements, where no case of the ONNX suite runs them."""

import numpy as np

from tests.unit.nn.onnx_node import arange, f32, run


def test_cells_of_a_region_overlap_where_its_size_is_no_multiple():
    rois = f32([[0, 0, 0, 2, 3]])  # three columns, four rows
    y = run("MaxRoiPool", arange(1, 1, 4, 4), rois, pooled_shape=[2, 2])
    assert y.reshape(-1).tolist() == [5, 6, 13, 14]


def test_corners_are_scaled_and_rounded_away_from_0():
    rois = f32([[0, 1, 1, 5, 5]])  # at half size 0.5 and 2.5: 1 and 3
    y = run("MaxRoiPool", arange(1, 1, 4, 4), rois, pooled_shape=[1, 1], spatial_scale=0.5)
    assert y.reshape(-1).tolist() == [15]


def test_a_cell_outside_the_image_is_0():
    y = run("MaxRoiPool", -arange(1, 2, 2, 2), f32([[0, 5, 5, 6, 6]]), pooled_shape=[1, 1])
    np.testing.assert_array_equal(y.reshape(-1), [0, 0])
