"""Resizing: values from the ONNX text and from cases seen in the field."""

import numpy as np
import pytest

from tests.unit.nn.onnx_node import arange, f32, run
from xcompile.compiler.support.errors import CompileError


def scaled(x, scales, *, constants=(2,), opset=19, **attributes):
    """Resize by scales."""
    return run("Resize", x, None, f32(scales), opset=opset, constants=constants, **attributes)


def sized(x, sizes, *, constants=(3,), opset=19, **attributes):
    """Resize to sizes."""
    inputs = (x, None, None, np.array(sizes))
    return run("Resize", *inputs, opset=opset, constants=constants, **attributes)


LINE = f32([0, 1, 2, 3])


@pytest.mark.parametrize("constants", [(), (2,)])
class TestNearest:
    def test_half_pixel_rounds_halves_down(self, constants):
        y = scaled(arange(3, 3), [1.5, 1.5], constants=constants)
        assert y.tolist() == [[0, 0, 1, 2], [0, 0, 1, 2], [3, 3, 4, 5], [6, 6, 7, 8]]

    def test_axes_of_scale_1_are_not_mixed(self, constants):
        attributes = {
            "coordinate_transformation_mode": "tf_half_pixel_for_nn",
            "nearest_mode": "ceil",
        }
        y = run(
            "Resize",
            arange(2, 2, 1, 2),
            f32([]),
            f32([1, 1, 1, 3]),
            opset=11,
            constants=constants,
            **attributes,
        )
        assert y.reshape(4, 6).tolist() == [[1] * 6, [3] * 6, [5] * 6, [7] * 6]

    @pytest.mark.parametrize(
        ("rule", "expected"),
        [
            ("floor", [0, 0, 1, 1, 2, 2, 3, 3]),
            ("ceil", [0, 1, 1, 2, 2, 3, 3, 3]),
            ("round_prefer_floor", [0, 0, 1, 1, 2, 2, 3, 3]),
            ("round_prefer_ceil", [0, 1, 1, 2, 2, 3, 3, 3]),
        ],
    )
    def test_rules_at_halves(self, rule, expected, constants):
        attributes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": rule}
        assert scaled(LINE, [2], constants=constants, **attributes).tolist() == expected


class TestLinear:
    @pytest.mark.parametrize(
        ("coordinates", "expected"),
        [
            ("align_corners", np.arange(8) * 3 / 7),
            ("asymmetric", [0, 0.5, 1, 1.5, 2, 2.5, 3, 3]),
            ("half_pixel", [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]),
            ("pytorch_half_pixel", [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]),
            ("half_pixel_symmetric", [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3]),
        ],
    )
    def test_coordinates(self, coordinates, expected):
        y = scaled(LINE, [2], mode="linear", coordinate_transformation_mode=coordinates)
        np.testing.assert_allclose(y, expected, 1e-6, 1e-6)

    def test_one_pixel_spreads(self):
        y = sized(np.ones((1, 1, 1, 1), np.float32), [1, 2, 2, 1], mode="linear")
        np.testing.assert_array_equal(y, np.ones((1, 2, 2, 1)))

    def test_size_1_of_pytorch_half_pixel_is_the_first_pixel(self):
        y = sized(LINE, [1], mode="linear", coordinate_transformation_mode="pytorch_half_pixel")
        assert y.tolist() == [0]

    def test_antialias_averages_when_shrinking(self):
        y = scaled(f32([0, 0, 8, 0]), [0.5], mode="linear", antialias=1)
        np.testing.assert_allclose(y, [1, 3], 1e-6)

    def test_excluded_places_outside_have_no_weight(self):
        y = scaled(f32([4, 8]), [2], mode="linear", exclude_outside=1)
        np.testing.assert_allclose(y, [4, 5, 7, 8], 1e-6)


class TestCubic:
    def test_weights_at_quarters(self):
        y = scaled(f32([0, 0, 64, 0, 0, 0]), [2], mode="cubic")
        half = [-2.25, -6.75, 16.75, 56.25]
        np.testing.assert_allclose(y[1:9], half + half[::-1], 1e-6)

    def test_constant_stays(self):
        for exclude in (0, 1):
            y = scaled(
                np.full((3, 3), 5, np.float32), [2.3, 0.7], mode="cubic", exclude_outside=exclude
            )
            np.testing.assert_allclose(y, np.full((6, 2), 5), 1e-6)


class TestSizes:
    @pytest.mark.parametrize("dynamic", [True, False])
    @pytest.mark.parametrize(
        ("size", "scale", "expected"), [(10, 0.7, 7), (3, 1 / 3, 1), (100, 1.1, 110), (5, 1.3, 6), (7, 0.5, 3)]
    )  # fmt: skip
    def test_scale_is_the_fraction_that_was_meant(self, size, scale, expected, dynamic):
        assert scaled(arange(size), [scale], dynamic=dynamic).shape == (expected,)

    def test_keeping_the_aspect_ratio(self):
        x = arange(1, 1, 4, 6)
        for policy, expected in (("not_larger", (1, 1, 2, 3)), ("not_smaller", (1, 1, 8, 12))):
            y = sized(x, [8, 3], axes=[2, 3], keep_aspect_ratio_policy=policy)
            assert y.shape == expected

    def test_axes_may_come_in_any_order(self):
        assert sized(arange(2, 3), [6, 4], axes=[1, 0]).shape == (4, 6)

    @pytest.mark.parametrize("constants", [(), (1, 2)])
    def test_cropped_region_outside_is_extrapolated(self, constants):
        region, scales = f32([0.0, 2.0]), f32([1])
        attributes = {
            "coordinate_transformation_mode": "tf_crop_and_resize",
            "extrapolation_value": -1.0,
        }
        y = run(
            "Resize", f32([0, 1, 2]), region, scales, opset=19, mode="linear", constants=constants, dynamic=False,
            **attributes,
        )  # fmt: skip
        np.testing.assert_allclose(y, [0, 0.8, 1.6, -1, -1, -1], 1e-6)

    @pytest.mark.parametrize("scales", [[0], [-1], [np.nan], [np.inf], [2, 2]])
    def test_bad_scales_are_refused(self, scales):
        for constants in ((), (2,)):
            with pytest.raises(CompileError) as caught:
                scaled(LINE, scales, constants=constants)
            assert caught.value.node == "node"

    def test_neither_sizes_nor_scales_is_refused(self):
        with pytest.raises(CompileError) as caught:
            run("Resize", LINE, None, f32([]), opset=11, dynamic=False)
        assert caught.value.code == "XC1011"

    def test_hostile_size_is_refused_at_import(self):
        with pytest.raises(CompileError) as caught:
            sized(arange(4, 4), [2**40, 2**40], dynamic=False)
        assert (caught.value.code, caught.value.node) == ("XC2008", "node")


class TestUpsample:
    @pytest.mark.parametrize("opset", [7, 9])
    def test_is_asymmetric(self, opset):
        if opset == 7:
            y = run(
                "Upsample", arange(1, 1, 1, 2), opset=7, scales=[1.0, 1.0, 1.0, 2.0], mode="linear"
            )
        else:
            y = run("Upsample", arange(1, 1, 1, 2), f32([1, 1, 1, 2]), opset=9, mode="linear")
        assert y.tolist() == [[[[0, 0.5, 1, 1]]]]
