"""Data movement: stated values, index checks, refused attributes."""

import numpy as np
import pytest

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn import counted, gather, generate, reshape, scatter, sizes, slicing

TEN = np.arange(10, dtype=np.float32)
LEAST, MOST = -(2**63), 2**63 - 1


def i64(*values):
    return np.array(values, np.int64)


def one_slice(run, start, end, step):
    return run(
        slicing.Slice, x=TEN, starts=i64(start), ends=i64(end), axes=i64(0), steps=i64(step)
    ).tolist()


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (9, 0, -1, [9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (9, 2, -1, [9, 8, 7, 6, 5, 4, 3]),
        (9, 0, -3, [9, 6, 3]),
        (-1, LEAST, -1, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (-1, MOST, -1, []),
        (0, 5, -1, []),
        (20, -20, -1, [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]),
        (0, MOST, 2**62, [0]),
        (-1, LEAST, -(2**62), [9]),
        (2, 7, 2, [2, 4, 6]),
        (-3, MOST, 1, [7, 8, 9]),
        (-20, 3, 1, [0, 1, 2]),
        (5, 2, 1, []),
        (15, 20, 1, []),
        (-20, LEAST, -1, [0]),
    ],
)
def test_slices_clamp_as_the_text_of_onnx_says(run, start, end, step, expected):
    assert one_slice(run, start, end, step) == expected


def test_slices_of_empty_axes_are_empty(run):
    for step in (1, -1):
        y = run(
            slicing.Slice,
            x=np.zeros((0, 2)),
            starts=i64(-1),
            ends=i64(LEAST if step < 0 else MOST),
            steps=i64(step),
            axes=i64(0),
        )
        assert y.shape == (0, 2)


def test_slices_default_to_the_first_axes_and_steps_of_one(run):
    x = np.arange(24).reshape(2, 3, 4)
    assert (
        run(slicing.Slice, x=x, starts=i64(1, 0), ends=i64(2, 2)).tolist() == x[1:2, 0:2].tolist()
    )
    assert (
        run(slicing.Slice, x=x, starts=i64(1), ends=i64(-1), axes=i64(-1)).tolist()
        == x[..., 1:-1].tolist()
    )


def test_negative_pads_crop_first(run):
    x = np.arange(4, dtype=np.float32)
    assert run(slicing.Pad, x=x, pads=i64(-1, 1)).tolist() == [1, 2, 3, 0]
    assert run(slicing.Pad, x=x, pads=i64(-1, 2), mode="reflect").tolist() == [1, 2, 3, 2, 1]
    y = run(slicing.Pad, x=np.ones((1, 1, 4, 4)), pads=i64(0, 0, 4, 1, 0, 0, -4, -1))
    assert y.shape == (1, 1, 4, 4)
    assert not y.any()


def test_pad_modes(run):
    x = np.array([[1, 2, 3]], np.int32)
    assert run(
        slicing.Pad, x=x, pads=i64(2, 1), axes=i64(-1), value=np.array(9, np.int32)
    ).tolist() == [[9, 9, 1, 2, 3, 9]]
    assert run(slicing.Pad, x=x, pads=i64(0, 2, 0, 1), mode="edge").tolist() == [[1, 1, 1, 2, 3, 3]]
    assert run(slicing.Pad, x=x, pads=i64(0, 2, 0, 1), mode="reflect").tolist() == [
        [3, 2, 1, 2, 3, 2]
    ]
    assert run(slicing.Pad, x=x, pads=i64(0, 2, 0, 1), mode="wrap").tolist() == [[2, 3, 1, 2, 3, 1]]


def test_reshape_copies_zeros_and_solves_for_minus_one(run):
    x = np.zeros((2, 3, 4))
    assert run(reshape.Reshape, x=x, shape=i64(0, -1)).shape == (2, 12)
    assert run(reshape.Reshape, x=x, shape=i64(0, 0, 2, -1)).shape == (2, 3, 2, 2)
    assert run(reshape.Reshape, x=np.zeros((0, 3)), shape=i64(3, 0), allow_zero=True).shape == (
        3,
        0,
    )
    assert run(reshape.Reshape, x=np.zeros(1), shape=i64()).shape == ()


@pytest.mark.parametrize("shape", [(5, 5), (-1, -1), (7, -1), (-2, 12), (0, 0, 0, 0)])
def test_reshapes_that_do_not_fit_are_refused(build, shape):
    with pytest.raises(CompileError, match="at node 'R'"):
        build.make(reshape.Reshape, "R", x=np.zeros((2, 3, 4)), shape=i64(*shape))


def test_reshape_to_minus_one_beside_zero_is_refused(build):
    with pytest.raises(CompileError, match="XC2007"):
        build.make(reshape.Reshape, x=np.zeros((0, 3)), shape=i64(0, -1))


def test_shapes_are_changed_without_moving_elements(run):
    x = np.arange(6.0).reshape(1, 2, 3)
    assert run(reshape.Flatten, x=x, axis=2).shape == (2, 3)
    assert run(reshape.Flatten, x=x, axis=0).shape == (1, 6)
    assert run(reshape.Flatten, x=x, axis=-1).shape == (2, 3)
    assert run(reshape.Squeeze, x=x).shape == run(reshape.Squeeze, x=x, axes=(-3,)).shape == (2, 3)
    assert run(reshape.Unsqueeze, x=x, axes=(-1, 0)).shape == (1, 1, 2, 3, 1)
    assert run(reshape.Transpose, x=x, perm=(2, 0, 1)).tolist() == x.transpose(2, 0, 1).tolist()
    assert run(reshape.Expand, x=np.ones((3, 1)), shape=i64(2, 1, 4)).shape == (2, 3, 4)


def test_wrong_axes_are_refused(build):
    x = np.zeros((2, 3))
    for cls, fields in (
        (reshape.Flatten, {"axis": 3}),
        (reshape.Squeeze, {"axes": (0,)}),
        (reshape.Unsqueeze, {"axes": (0, 0)}),
        (reshape.Transpose, {"perm": (0, 0)}),
        (slicing.Split, {"axis": 2}),
        (gather.Gather, {"axis": -3, "indices": i64(0)}),
    ):
        with pytest.raises(CompileError, match="XC200"):
            build.make(cls, x=x, **fields)


def test_operands_that_say_sizes_and_places_must_be_integers_of_the_right_rank(build):
    x = np.zeros((2, 3))
    for cls, fields in (
        (reshape.Reshape, {"shape": np.zeros((1, 2), np.int64)}),
        (reshape.Expand, {"shape": np.float32([2, 3])}),
        (slicing.Slice, {"starts": i64(0), "ends": np.array(1)}),
        (slicing.Pad, {"pads": np.float32([0, 0, 0, 0])}),
        (slicing.Tile, {"repeats": np.array(2)}),
        (slicing.Split, {"lengths": np.array(2)}),
        (generate.Trilu, {"k": i64(1)}),
        (generate.CumSum, {"axis": i64(1)}),
        (generate.EyeLike, {"dtype": "f7"}),
    ):
        with pytest.raises(CompileError, match=r"XC200[237]"):
            build.make(cls, x=x, **fields)


def test_blocks_and_channels_are_exchanged(run):
    x = np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1)
    assert run(reshape.DepthToSpace, x=x, block=2).tolist() == [
        [[[0, 2], [4, 6]], [[1, 3], [5, 7]]]
    ]
    assert run(reshape.DepthToSpace, x=x, block=2, mode="CRD").tolist() == [
        [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    ]
    y = run(reshape.SpaceToDepth, x=np.arange(8).reshape(1, 2, 2, 2), block=2)
    assert y.reshape(-1).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
    y = run(reshape.SpaceToDepth, x=np.arange(8).reshape(1, 2, 2, 2), block=2, mode="CRD")
    assert y.reshape(-1).tolist() == [0, 1, 2, 3, 4, 5, 6, 7]


def test_concat_and_split(run):
    a, b = np.zeros((2, 1)), np.ones((2, 2))
    assert run(slicing.Concat, xs=[a, b], axis=-1).tolist() == [[0, 1, 1], [0, 1, 1]]
    parts = run(slicing.Split, results=3, x=np.arange(7))
    assert [p.tolist() for p in parts] == [[0, 1, 2], [3, 4, 5], [6]]
    parts = run(slicing.Split, results=2, x=np.arange(7), lengths=i64(0, 7))
    assert [p.tolist() for p in parts] == [[], [0, 1, 2, 3, 4, 5, 6]]


def test_tile(run):
    assert run(slicing.Tile, x=np.array([[1, 2]]), repeats=i64(2, 2)).tolist() == [[1, 2, 1, 2]] * 2


def test_gathers(run):
    x = np.array([[1, 2], [3, 4]], np.float32)
    assert run(gather.Gather, x=x, indices=np.array([[-1]]), axis=1).tolist() == [[[2]], [[4]]]
    assert run(gather.Gather, x=x, indices=np.array(1)).tolist() == [3, 4]
    assert run(
        gather.GatherElements, x=x, indices=np.array([[0, 0], [1, -2]]), axis=1
    ).tolist() == [[1, 1], [4, 3]]
    assert run(gather.GatherND, x=x, indices=np.array([[0, 0], [1, -1]])).tolist() == [1, 4]
    cube = np.arange(8).reshape(2, 2, 2)
    assert run(gather.GatherND, x=cube, indices=np.array([[1], [0]]), batch_dims=1).tolist() == [
        [2, 3],
        [4, 5],
    ]


def test_scatters(run):
    x = np.zeros((3, 3), np.float32)
    y = run(
        scatter.ScatterElements,
        x=x,
        indices=np.array([[1, 0, 2]]),
        updates=np.array([[1, 2, 3]], np.float32),
    )
    assert y.tolist() == [[0, 2, 0], [1, 0, 0], [0, 0, 3]]
    y = run(
        scatter.ScatterND,
        x=np.arange(4),
        indices=np.array([[1], [1]]),
        updates=i64(10, 20),
        reduction="add",
    )
    assert y.tolist() == [0, 31, 2, 3]
    for reduction, expected in (("mul", 6), ("max", 3), ("min", 2)):
        y = run(
            scatter.ScatterND,
            x=i64(2),
            indices=np.array([[0]]),
            updates=i64(3),
            reduction=reduction,
        )
        assert y.tolist() == [expected]


@pytest.mark.parametrize("index", [2, -3, 2**40, -(2**40)])
def test_indices_out_of_range_are_an_error(run, index):
    x, at = np.zeros((2, 2)), np.array([[index]])
    for cls, fields in (
        (gather.Gather, {"indices": at}),
        (gather.GatherElements, {"indices": at}),
        (gather.GatherND, {"indices": at}),
        (scatter.ScatterElements, {"indices": at, "updates": np.ones((1, 1))}),
        (scatter.ScatterND, {"indices": at, "updates": np.ones((1, 2))}),
    ):
        with pytest.raises(IndexError, match="out of range"):
            run(cls, x=x, **fields)


def test_index_0_into_an_empty_axis_is_an_error(run):
    with pytest.raises(CompileError, match="XC2004 axis 0 of size 0 is indexed"):
        run(gather.Gather, x=np.zeros((0, 2)), indices=i64(0))


def test_one_hot_ignores_indices_out_of_range(run):
    y = run(gather.OneHot, indices=i64(1, -1, 3, -4), depth=np.array(3), values=np.float32([2, 5]))
    assert y.tolist() == [[2, 5, 2], [2, 2, 5], [2, 2, 2], [2, 2, 2]]
    y = run(gather.OneHot, indices=i64(0), depth=i64(2), values=i64(0, 1), axis=0)
    assert y.tolist() == [[1], [0]]


def test_sizes_that_depend_on_data(run):
    x = np.array([[1, 0], [0, 2]])
    one, two = np.array(1), np.array(2)
    assert run(counted.NonZero, x=x, count=two).tolist() == [[0, 1], [0, 1]]
    second = {"condition": np.array([False, True]), "count": one}
    assert run(counted.Compress, x=x, axis=1, **second).tolist() == [[0], [2]]
    assert run(counted.Compress, x=x, condition=np.array([True]), count=one).tolist() == [1]
    count, inverse, first, counts, _ = run(
        counted.FindUnique, x=np.float32([3, 1, 3]), ascending=False
    )
    assert (count, inverse.tolist(), first[:2].tolist(), counts[:2].tolist()) == (
        2, [0, 1, 0], [0, 1], [2, 1]
    )  # fmt: skip
    count, inverse, *_ = run(counted.FindUnique, x=np.array([[1, 0], [1, 0], [0, 0]]), axis=0)
    assert (count, inverse.tolist()) == (2, [1, 1, 0])
    assert run(counted.Leading, x=x[0], count=one).tolist() == [1]
    with pytest.raises(ValueError, match="2 elements, and the count says 1"):
        run(counted.NonZero, x=x, count=one)


def test_reverse_sequence(run):
    x = np.arange(6).reshape(2, 3)
    y = run(gather.ReverseSequence, x=x, lengths=i64(2, 1), batch_axis=0, time_axis=1)
    assert y.tolist() == [[1, 0, 2], [3, 4, 5]]


def test_filled_tensors(run):
    value = ir.Attribute.parse("dense<7> : tensor<1xi32>")
    assert run(generate.ConstantOfShape, shape=i64(2), value=value).tolist() == [7, 7]
    huge = run(generate.ConstantOfShape, shape=i64(16384, 16384), value=value)
    assert huge.strides == (0, 0)
    assert run(generate.EyeLike, x=np.zeros((2, 3)), dtype="f32", k=1).tolist() == [
        [0, 1, 0],
        [0, 0, 1],
    ]
    x = np.ones((2, 2), np.int32)
    assert run(generate.Trilu, x=x).tolist() == [[1, 1], [0, 1]]
    assert run(generate.Trilu, x=x, k=np.array(-1), upper=False).tolist() == [[0, 0], [1, 0]]


def test_cumulative_sums(run):
    x, axis = np.float32([1, 2, 3]), np.array(-1)
    assert run(generate.CumSum, x=x, axis=axis).tolist() == [1, 3, 6]
    assert run(generate.CumSum, x=x, axis=axis, exclusive=True).tolist() == [0, 1, 3]
    assert run(generate.CumSum, x=x, axis=axis, reverse=True).tolist() == [6, 5, 3]
    assert run(generate.CumSum, x=x, axis=axis, reverse=True, exclusive=True).tolist() == [5, 3, 0]
    with pytest.raises(CompileError, match="XC2006"):
        run(generate.CumSum, x=x, axis=np.array(1))


def numbers(run, start, limit, delta):
    """The range as its two ops make it."""
    bounds = dict(zip(("start", "limit", "delta"), (start, limit, delta), strict=True))
    count = run(counted.RangeCount, **bounds)
    return run(sizes.Range, **bounds, count=count)


def test_ranges(run):
    whole = [np.array(v) for v in (3, 9, 10, 4, 1, -2)]
    three, nine, ten, four, one, back = whole
    assert numbers(run, three, nine, three).tolist() == [3, 6]
    assert numbers(run, ten, four, back).tolist() == [10, 8, 6]
    assert numbers(run, one, one, one).tolist() == []
    y = numbers(run, np.float32(0), np.float32(1), np.float32(0.3))
    np.testing.assert_allclose(y, np.float32([0, 0.3, 0.6, 0.9]), rtol=1e-6)
    with pytest.raises((CompileError, ValueError), match=r"delta|size -1"):
        numbers(run, one, one, np.array(0))


def test_shape_and_size(run):
    x = np.zeros((2, 3, 4))
    assert run(sizes.ShapeOf, x=x).tolist() == [2, 3, 4]
    assert run(sizes.ShapeOf, x=x, start=-2, end=-1).tolist() == [3]
    assert run(sizes.ShapeOf, x=x, start=2, end=1).tolist() == []
    assert run(sizes.Size, x=x).tolist() == 24
