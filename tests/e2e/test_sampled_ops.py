"""Ops that read between elements, transforms of signals, and determinants, compiled."""

import numpy as np
import pytest

import xcompile
from tests.e2e.compiled_node import run

ROW = np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)


def grid(*xs):
    """Places along a row."""
    return np.array([[x, 0] for x in xs], np.float32).reshape(1, 1, -1, 2)


class TestGridSample:
    @pytest.mark.parametrize(
        ("padding", "wanted"),
        [("zeros", [0, 0, 1.5, 1.5, 0]), ("border", [0, 0, 1.5, 3, 3]), ("reflection", [1, 0, 1.5, 3, 2])],
    )  # fmt: skip
    def test_what_lies_outside(self, padding, wanted):
        places = grid(-1.75, -1, 0, 1, 1.75)
        y = run("GridSample", ROW, places, opset=20, padding_mode=padding)
        assert y.reshape(-1).tolist() == pytest.approx(wanted)

    def test_corners_may_be_the_centers_of_the_outer_elements(self):
        y = run("GridSample", ROW, grid(-1, 0, 1), opset=20, align_corners=1)
        assert y.reshape(-1).tolist() == pytest.approx([0, 1.5, 3])

    def test_nearest_takes_the_even_of_two_neighbours(self):
        y = run("GridSample", ROW, grid(-0.5, 0, 0.5), opset=20, mode="nearest")
        assert y.reshape(-1).tolist() == [0, 2, 2]

    def test_old_names_of_modes(self):
        y = run("GridSample", ROW, grid(0.25), opset=16, mode="bicubic", align_corners=1)
        assert y.reshape(-1).tolist() == pytest.approx([1.875], abs=0.06)

    def test_a_volume(self):
        x = np.arange(8, dtype=np.float64).reshape(1, 1, 2, 2, 2)
        y = run("GridSample", x, np.zeros((1, 1, 1, 1, 3), np.float64), opset=20)
        assert y.reshape(-1).tolist() == [3.5]


class TestRegions:
    def test_the_maximum_over_whole_elements_of_cells(self):
        x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
        rois = np.array([[0, 0, 0, 3, 3], [0, 2, 2, 9, 9]], np.float32)
        y = run("MaxRoiPool", x, rois, pooled_shape=[2, 2])
        assert y.reshape(2, 4).tolist() == [[5, 7, 13, 15], [15, 0, 0, 0]]

    def test_the_mean_of_samples_between_elements(self):
        x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
        rois, batches = np.array([[0, 0, 4, 4]], np.float32), np.array([0])
        y = run("RoiAlign", x, rois, batches, opset=16, output_height=2, output_width=2)
        assert y.reshape(-1).tolist() == pytest.approx([2.5, 4.5, 10.5, 12.5])


def test_a_deformable_convolution_without_offsets_is_a_convolution():
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
    w, still = np.ones((1, 1, 2, 2), np.float32), np.zeros((1, 8, 2, 2), np.float32)
    assert run("DeformConv", x, w, still, opset=19).reshape(-1).tolist() == [8, 12, 20, 24]


def test_offsets_move_taps_between_elements():
    x, w = ROW, np.ones((1, 1, 1, 1), np.float32)
    offset = np.zeros((1, 2, 1, 4), np.float32)
    offset[0, 1] = [0.5, -0.25, 1, 0.5]
    y = run("DeformConv", x, w, offset, opset=19)
    assert y.reshape(-1).tolist() == [0.5, 0.75, 3, 1.5]


class TestDeterminant:
    def test_rows_are_swapped_where_the_pivot_is_0(self):
        x = np.array([[[0, 2], [3, 4]], [[1, 2], [2, 4]]], np.float32)
        assert run_static("Det", x).tolist() == [-6, 0]

    def test_one_matrix_gives_a_scalar(self):
        assert run_static("Det", np.diag([2.0, 3, 4])).tolist() == pytest.approx(24)


def run_static(op, *operands, constants=()):
    """An op whose operands must have known sizes; those at the positions `constants` are constants."""
    from onnx import helper

    from tests.e2e.compiled_node import compiled

    named = {f"x{i}": x for i, x in enumerate(operands)}
    node = helper.make_node(op, list(named), ["y"])
    fixed = {f"x{i}": named.pop(f"x{i}") for i in constants}
    inputs = {n: (x.dtype, x.shape) for n, x in named.items()}
    model = compiled([node], inputs, ["y"], fixed)
    return model.executable.run(list(named.values()))["y"]


class TestTransforms:
    signal = np.array([1, 2, 0, 5, 3, 1], np.float32)

    def test_one_sided_and_back(self):
        x = self.signal.reshape(1, 6, 1)
        half = run("DFT", x, opset=17, onesided=1)
        want = np.fft.rfft(self.signal)
        np.testing.assert_allclose(half[0, :, 0] + 1j * half[0, :, 1], want, rtol=1e-6)
        back = run("DFT", half, opset=17, onesided=1, inverse=1)
        np.testing.assert_allclose(back.reshape(-1), self.signal, rtol=1e-6, atol=1e-6)

    def test_a_signal_is_cut_or_filled_to_the_length(self):
        x = self.signal.reshape(1, 6, 1)
        for length in (4, 8):
            y = run("DFT", x, np.array(length), opset=17, constants=[1])
            want = np.fft.fft(self.signal, length)
            np.testing.assert_allclose(y[0, :, 0] + 1j * y[0, :, 1], want, rtol=1e-6, atol=1e-6)

    def test_frames_are_weighted_by_the_window(self):
        window = np.array([1, 0.5], np.float32)
        y = run_static("STFT", self.signal.reshape(1, 6, 1), np.array(2), window, constants=[1])
        assert y.shape == (1, 3, 2, 2)
        assert y[0, :, 0, 0].tolist() == [2, 2.5, 3.5]  # a frame's sum at frequency 0

    def test_one_side_needs_a_signal_that_is_known_to_be_real(self):
        with pytest.raises(xcompile.CompileError, match="XC2010 whether the signal is complex"):
            x, window = self.signal.reshape(1, 6, 1), np.ones(2, np.float32)
            run("STFT", x, np.array(2), window, constants=[1])


def test_the_overlap_of_blocks_is_summed():
    x = np.ones((1, 4, 2), np.float32)
    y = run("Col2Im", x, np.array([2, 3]), np.array([2, 2]), opset=18, constants=[1, 2])
    assert y.tolist() == [[[[1, 2, 1], [1, 2, 1]]]]


def test_a_circular_cache_wraps_around():
    cache, update = np.zeros((2, 3, 1), np.float32), np.ones((2, 2, 1), np.float32)
    where = np.array([2, 0])
    y = run("TensorScatter", cache, update, where, opset=24, mode="circular")
    assert y.reshape(2, 3).tolist() == [[1, 0, 1], [1, 1, 0]]
