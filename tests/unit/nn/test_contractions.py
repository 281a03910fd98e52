"""Convolutions and matrix products: values from the ONNX text and from cases seen in the field."""

import numpy as np
import pytest
from onnx import helper

from tests.unit.frontends.onnx_models import model
from tests.unit.nn.onnx_node import arange, f32, run
from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.importer import import_onnx


def naive_conv(x, w, *, strides, pads, dilations, groups):
    """Convolution in 2-D by its definition."""
    n, _, height, width = x.shape
    top, left, bottom, right = pads
    m, per_group, kh, kw = w.shape
    rows = (height + top + bottom - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    columns = (width + left + right - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    y = np.zeros((n, m, rows, columns))
    for b, o, r, c in np.ndindex(*y.shape):
        for i, u, v in np.ndindex(per_group, kh, kw):
            at = r * strides[0] + u * dilations[0] - top, c * strides[1] + v * dilations[1] - left
            if 0 <= at[0] < height and 0 <= at[1] < width:
                channel = o // (m // groups) * per_group + i
                y[b, o, r, c] += x[b, channel, *at] * w[o, i, u, v]
    return y


class TestConv:
    def test_asymmetric_pads_with_dilation_and_stride(self):
        x, w = f32([[[1, 2, 3, 4, 5, 6]]]), f32([[[1, 10, 100]]])
        y = run("Conv", x, w, pads=[2, 0], dilations=[2], strides=[2])
        np.testing.assert_array_equal(y, [[[310, 531]]])

    def test_negative_pads_crop(self):
        x, w = f32([[[1, 2, 3, 4]]]), f32([[[1, 10]]])
        np.testing.assert_array_equal(run("Conv", x, w, pads=[-1, 0]), [[[32, 43]]])
        np.testing.assert_array_equal(run("Conv", x, w, pads=[0, -1]), [[[21, 32]]])
        np.testing.assert_array_equal(run("Conv", x, w, pads=[-1, 1]), [[[32, 43, 4]]])

    @pytest.mark.parametrize("groups", [1, 2, 4])
    @pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
    @pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 2, 1), (2, 2, 2, 2)])
    @pytest.mark.parametrize("dilations", [(1, 1), (2, 1)])
    def test_every_combination_of_attributes_is_the_definition(
        self, groups, strides, pads, dilations
    ):
        generator = np.random.default_rng(1)
        x = generator.standard_normal((2, 4, 7, 6)).astype(np.float32)
        w = generator.standard_normal((8, 4 // groups, 3, 2)).astype(np.float32)
        b = generator.standard_normal(8).astype(np.float32)
        window = {"strides": strides, "pads": pads, "dilations": dilations}
        y = run("Conv", x, w, b, group=groups, **{k: list(v) for k, v in window.items()})
        expected = naive_conv(x, w, groups=groups, **window) + b.reshape(-1, 1, 1)
        np.testing.assert_allclose(y, expected, 1e-6, 1e-6)

    @pytest.mark.parametrize("dynamic", [True, False])
    @pytest.mark.parametrize(
        ("auto_pad", "expected"),
        [
            ("SAME_UPPER", [12, 34, 50]),
            ("SAME_LOWER", [1, 23, 45]),
            ("VALID", [12, 34]),
        ],
    )
    def test_same_puts_the_odd_pad_at_the_end_or_the_begin(self, auto_pad, expected, dynamic):
        x = f32([[[1, 2, 3, 4, 5]]])
        y = run("Conv", x, f32([[[10, 1]]]), auto_pad=auto_pad, strides=[2], dynamic=dynamic)
        np.testing.assert_array_equal(y, [[expected]])

    def test_one_and_three_spatial_axes(self):
        x3, w3 = arange(1, 1, 2, 3, 4), np.ones((1, 1, 2, 2, 2), np.float32)
        y = run("Conv", x3, w3)
        np.testing.assert_array_equal(y, [[[[[68, 76, 84], [100, 108, 116]]]]])

    def test_fp16_sums_are_not_rounded_on_the_way(self):
        x = np.full((1, 4096, 1), 1, np.float16)
        w = np.full((1, 4096, 1), 1, np.float16)
        assert run("Conv", x, w)[0, 0, 0] == 4096

    def test_channels_that_do_not_fit_are_refused(self):
        with pytest.raises(CompileError) as caught:
            run("Conv", arange(1, 3, 4), arange(2, 2, 1), dynamic=False)
        assert (caught.value.code, caught.value.node) == ("XC2004", "node")

    def test_no_batch_gives_no_results(self):
        assert run("Conv", arange(0, 2, 4), arange(3, 2, 2)).shape == (0, 3, 3)


class TestConvTranspose:
    def test_stride_spreads_and_taps_overlap(self):
        y = run("ConvTranspose", f32([[[1, 2]]]), f32([[[1, 10, 100]]]), strides=[2])
        np.testing.assert_array_equal(y, [[[1, 10, 102, 20, 200]]])

    def test_is_the_transpose_of_the_convolution(self):
        generator = np.random.default_rng(2)
        x = generator.standard_normal((1, 4, 5, 4)).astype(np.float32)
        w = generator.standard_normal((6, 2, 3, 3)).astype(np.float32)
        window = {"strides": [2, 1], "pads": [1, 1, 1, 0], "dilations": [1, 2], "group": 2}
        y = run("Conv", x, w, **window)
        g = generator.standard_normal(y.shape).astype(np.float32)
        back = run("ConvTranspose", g, w, output_padding=[0, 0], **window)
        np.testing.assert_allclose((y * g).sum(), (x * back).sum(), 1e-5)

    def test_output_shape_larger_than_natural_is_filled_with_the_bias(self):
        y = run(
            "ConvTranspose",
            f32([[[1, 2]]]),
            f32([[[1]]]),
            f32([7]),
            output_shape=[4],
            dynamic=False,
        )
        np.testing.assert_array_equal(y, [[[7, 8, 9, 7]]])

    def test_same_gives_size_times_stride(self):
        for auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            window = {"strides": [2], "auto_pad": auto_pad}
            y = run("ConvTranspose", arange(1, 1, 5), arange(1, 1, 3), constants=(1,), **window)
            assert y.shape == (1, 1, 10)

    def test_groups_and_bias(self):
        y = run(
            "ConvTranspose", f32([[[1], [2]]]), f32([[[1, 3]], [[5, 7]]]), f32([10, 20]), group=2
        )
        np.testing.assert_array_equal(y, [[[11, 13], [30, 34]]])


class TestMatMul:
    @pytest.mark.parametrize(
        ("a", "b"),
        [
            ((3,), (3,)),
            ((2, 3), (3,)),
            ((3,), (3, 2)),
            ((4, 1, 2, 3), (5, 3, 2)),
            ((0, 3), (3, 2)),
            ((2, 0), (0, 3)),
        ],
    )
    def test_shapes_broadcast_as_in_numpy(self, a, b):
        x, y = arange(*a), arange(*b)
        result = run("MatMul", x, y)
        assert result.shape == np.matmul(x, y).shape
        np.testing.assert_array_equal(result, np.matmul(x, y))

    def test_integers_wrap(self):
        x = np.array([[2**31 - 1, 1]], np.int32)
        assert run("MatMul", x, x.T.copy()).tolist() == [[2]]

    def test_inner_sizes_must_agree(self):
        with pytest.raises(CompileError) as caught:
            run("MatMul", arange(2, 3), arange(4, 2), dynamic=False)
        assert caught.value.code == "XC2004"


class TestGemm:
    def test_both_transposed_with_alpha_and_beta(self):
        c = f32([[2], [4]])
        y = run("Gemm", arange(3, 2), arange(4, 3), c, transA=1, transB=1, alpha=2.0, beta=0.5)
        np.testing.assert_array_equal(y, [[21, 57, 93, 129], [28, 82, 136, 190]])

    @pytest.mark.parametrize("constants", [(), (1, 2)])
    def test_column_bias_of_a_square_product(self, constants):
        x, bias = f32([[1, 2], [3, 4]]), f32([[10], [20]])
        y = run("Gemm", x, np.eye(2, dtype=np.float32), bias, constants=constants)
        np.testing.assert_array_equal(y, [[11, 12], [23, 24]])

    def test_bias_that_enlarges_the_result(self):
        y = run("Gemm", np.eye(3, dtype=np.float32), arange(3, 1) * 10, arange(1, 4))
        np.testing.assert_array_equal(y, [[j + 10 * i for j in range(4)] for i in range(3)])

    def test_nothing_to_sum_leaves_the_bias(self):
        y = run("Gemm", arange(2, 0), arange(0, 3), f32([1, 2, 3]), beta=2.0)
        np.testing.assert_array_equal(y, [[2, 4, 6], [2, 4, 6]])

    def test_beta_of_zero_ignores_the_bias_even_nan(self):
        y = run("Gemm", f32([[1]]), f32([[2]]), f32([[np.nan]]), beta=0.0)
        np.testing.assert_array_equal(y, [[2]])

    def test_integers(self):
        x = np.array([[3]], np.int32)
        assert run("Gemm", x, x, x, alpha=2.0).tolist() == [[21]]


class TestEinsum:
    @pytest.mark.parametrize(
        ("equation", "shapes"),
        [
            ("ij,jk->ik", [(2, 3), (3, 4)]),
            ("ji,jk->ik", [(3, 2), (3, 4)]),
            ("ij,kj->ik", [(2, 3), (4, 3)]),
            ("bij,bkj->bik", [(5, 2, 3), (5, 4, 3)]),
            ("ij,jk->ki", [(2, 3), (3, 4)]),
            ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
            ("bqhd,bkhd->bhqk", [(2, 3, 2, 4), (2, 5, 2, 4)]),
            ("...ij,...jk->...ik", [(2, 3, 4), (4, 5)]),
            ("... i i -> ... i", [(2, 3, 3)]),
            ("ii", [(3, 3)]),
            ("ba", [(2, 3)]),
            ("i,j,k->kij", [(2,), (3,), (4,)]),
            ("ij->", [(2, 3)]),
            ("a,a", [(3,), (3,)]),
            ("bhwc,hkc->bhwk", [(2, 3, 4, 5), (3, 6, 5)]),
            ("abcd,cdef->abef", [(2, 3, 4, 5), (4, 5, 2, 3)]),
            ("ab,cd->acbd", [(2, 3), (4, 5)]),
            ("abc,cd,de->abe", [(2, 3, 4), (4, 5), (5, 2)]),
            ("abz,bc->ac", [(2, 3, 4), (3, 5)]),
            ("ab,b->a", [(2, 3), (3,)]),
            ("b,ab->ab", [(3,), (2, 3)]),
            ("bij,bjk->bik", [(1, 2, 3), (5, 3, 4)]),
            ("ij,jk->ik", [(0, 3), (3, 4)]),
            ("ij,jk->ik", [(2, 0), (0, 4)]),
            ("abij,abjk->ik", [(2, 3, 2, 2), (2, 3, 2, 2)]),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("dynamic", [True, False])
    def test_equations_mean_what_numpy_says(self, equation, shapes, dynamic):
        operands = [arange(*s) + 1 for s in shapes]
        y = run("Einsum", *operands, equation=equation, dynamic=dynamic)
        expected = np.einsum(equation.replace(" ", ""), *operands)
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, 1e-6)

    @pytest.mark.parametrize(
        ("equation", "ops"),
        [
            ("ij,jk->ik", ["nn.matmul"]),
            ("bqd,bkd->bqk", ["nn.matmul"]),
            ("bqhd,bkhd->bhqk", ["nn.transpose", "nn.transpose", "nn.matmul"]),
            ("ij->j", ["nn.reduce_sum"]),
            ("ii->i", ["nn.einsum"]),
        ],
    )
    def test_equations_become_matrix_products_where_they_are_some(self, equation, ops):
        terms = equation.split("->")[0].split(",")
        names = [f"x{i}" for i in range(len(terms))]
        node = helper.make_node("Einsum", names, ["y"], equation=equation)
        shapes = {n: [None] * len(t) for n, t in zip(names, terms, strict=True)}
        module = import_onnx(model([node], shapes, ["y"]))
        found = [op.operation.name for op in module.main.regions[0].blocks[0].operations]
        assert found == [*ops, "func.return"]

    @pytest.mark.parametrize(
        "equation", ["ij,jk->iz", "ij,j->ii", "i,jk->ij", "ijk,jk->i", "ij;jk", "ij,jk,kl", "i..j,jk", "1j,jk"]
    )  # fmt: skip
    def test_equations_that_are_none_are_refused(self, equation):
        with pytest.raises(CompileError) as caught:
            run("Einsum", arange(2, 3), arange(3, 4), equation=equation)
        assert caught.value.code in ("XC2003", "XC2007")
        assert caught.value.node == "node"
