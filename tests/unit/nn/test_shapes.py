"""Shape inference over functions with sizes that are symbols."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.nn.conftest import Builder
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.support.dims import evaluate, symbol
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn import (
    binary,
    counted,
    gather,
    generate,
    reshape,
    sizes,
    slicing,
    ternary,
    unary,
)
from xcompile.dialects.nn.shapes import refine_types

n, m = symbol("n"), symbol("m")


def i64(*values):
    return np.array(values, np.int64)


def test_shape_arithmetic_of_a_reshape_is_followed(build):
    x = build.argument((None, 12, None))
    shape = build.make(sizes.ShapeOf, x=x).y
    batch = build.make(gather.Gather, x=shape, indices=np.array(0)).y
    batch = build.make(reshape.Unsqueeze, x=batch, axes=(0,)).y
    heads = build.make(
        binary.Div, a=build.make(gather.Gather, x=shape, indices=i64(1)).y, b=i64(3)
    ).y
    wanted = build.make(slicing.Concat, xs=[batch, heads, i64(3), i64(-1)], axis=0).y
    y = build.make(reshape.Reshape, x=x, shape=wanted).y
    assert str(y.type) == "tensor<?x4x3x?xf32>"
    analysis = build.shapes((n, 12, m))
    assert analysis.content(wanted) == (n, 4, 3, -1)
    assert analysis.shape(y) == (n, 4, 3, m)
    assert analysis.constraints == []


def test_a_shape_of_386_divided_by_3_ends_a_slice_at_128(build):
    x = build.argument((386,))
    end = build.make(binary.Div, a=build.make(sizes.ShapeOf, x=x).y, b=i64(3)).y
    y = build.make(slicing.Slice, x=x, starts=i64(0), ends=end).y
    assert build.shapes().shape(y) == (128,)


def test_expanding_with_where_equal_minus_one_is_followed(build):
    x, z = build.argument((1, 4)), build.argument((None, 4))
    wanted = build.make(sizes.ShapeOf, x=z).y
    ones = build.make(
        generate.ConstantOfShape, shape=i64(2), value=ir.Attribute.parse("dense<1> : tensor<1xi64>")
    ).y
    mask = build.make(binary.Equal, a=wanted, b=i64(-1)).y
    chosen = build.make(ternary.Where, condition=mask, a=ones, b=wanted).y
    y = build.make(reshape.Expand, x=x, shape=chosen).y
    analysis = build.shapes((1, 4), (n, 4))
    assert analysis.content(mask) == (0, 0)
    assert analysis.shape(y) == (n, 4)


def test_sizes_scaled_in_floating_point_are_followed_while_whole(build):
    x = build.argument((None, 8))
    shape = build.make(unary.Cast, x=build.make(sizes.ShapeOf, x=x).y, to="f32").y
    twice = build.make(binary.Mul, a=shape, b=np.float32([2, 2])).y
    back = build.make(unary.Cast, x=build.make(unary.Floor, x=twice).y, to="i64").y
    half = build.make(binary.Div, a=shape, b=np.float32([2, 2])).y
    analysis = build.shapes((n, 8))
    assert analysis.content(back) == (2 * n, 16)
    assert analysis.content(half) is None


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(0, 5, 1), (1, 2**63 - 1, 1), (-2, 2**63 - 1, 1), (0, -1, 1), (3, -2, 2), (-5, -2, 3),
     (-1, -(2**63), -1), (5, 0, -2), (2**31 - 1, 1, -3), (-3, 0, -1), (8, 2**63 - 1, 1), (-4, 3, 1)],
)  # fmt: skip
def test_inferred_slice_lengths_are_what_the_reference_gives(build, start, end, step):
    x = build.argument((None,))
    op = build.make(slicing.Slice, x=x, starts=i64(start), ends=i64(end), steps=i64(step))
    (length,) = build.shapes((n,)).shape(op.y)
    for size in range(10):
        got = op.reference(np.arange(size), i64(start), i64(end), None, i64(step))
        assert evaluate(length, {"n": size}) == got.size, size


def test_slices_by_computed_sizes(build):
    x = build.argument((None,))
    shape = build.make(sizes.ShapeOf, x=x).y
    less = build.make(binary.Sub, a=shape, b=i64(1)).y
    y = build.make(slicing.Slice, x=x, starts=i64(0), ends=less).y
    analysis = build.shapes((n,))
    assert evaluate(analysis.shape(y)[0], {"n": 7}) == 6
    ((left, right, text),) = analysis.constraints
    assert "must not be negative" in text
    assert evaluate(left, {"n": 1}) == evaluate(right, {"n": 1})
    assert evaluate(left, {"n": 0}) != evaluate(right, {"n": 0})


def test_two_symbols_that_broadcast_become_a_check_with_the_node(build):
    x, z = build.argument((None, 3)), build.argument((None, 1))
    y = build.make(binary.Add, "Add_7", a=x, b=z).y
    analysis = build.shapes((n, 3), (m, 1))
    assert evaluate(analysis.shape(y)[0], {"n": 1, "m": 0}) == 0
    ((left, right, text),) = analysis.constraints
    assert text == "axis 0 of nn.add: n and m must be equal or one of them 1 (node 'Add_7')"

    def holds(first, second):
        env = {"n": first, "m": second}
        return evaluate(left, env) == evaluate(right, env)

    assert [holds(*p) for p in ((4, 4), (4, 1), (1, 4), (0, 1), (4, 3), (0, 2))] == [True] * 4 + [
        False
    ] * 2


def test_a_symbol_that_meets_a_constant_takes_it_and_is_checked(build):
    x, z = build.argument((None,)), build.argument((7,))
    y = build.make(binary.Add, a=x, b=z).y
    joined = build.make(
        slicing.Concat, xs=[build.make(reshape.Unsqueeze, x=v, axes=(0,)).y for v in (x, z)], axis=0
    ).y
    analysis = build.shapes((n,), (7,))
    assert analysis.shape(y) == (7,)
    assert analysis.shape(joined) == (2, 7)
    assert len(analysis.constraints) == 2


def test_numbers_that_a_run_reads_are_data_symbols_and_sizes_made_of_them_have_names(build):
    x, count = build.argument((None,)), build.argument((), "i64")
    first, second = (build.make(counted.NonZero, x=x, count=count).y for _ in range(2))
    analysis = build.shapes((symbol("nonzero_0"),), ())
    assert [str(analysis.shape(v)[1]) for v in (first, second)] == ["nonzero_1", "nonzero_1"]
    assert {n: (r.value, r.index) for n, r in analysis.readings.items()} == {"~data_0": (count, 0)}
    assert {n: str(d) for n, d in analysis.definitions.items()} == {"nonzero_1": '"~data_0"'}
    assert [(str(a), b) for a, b, _ in analysis.late_constraints] == [('min("~data_0", 0)', 0)]
    assert analysis.constraints == []


def test_sizes_are_followed_to_the_tensor_that_is_read(build):
    x, given = build.argument((None, 3)), build.argument((1,), "i64")
    known = build.make(sizes.ShapeOf, x=x, start=0, end=1).y
    shape = build.make(slicing.Concat, xs=[known, given], axis=0).y
    y = build.make(reshape.Expand, x=build.argument((1, 1)), shape=shape).y
    analysis = build.shapes((symbol("n"), 3), (1,), (1, 1))
    assert str(analysis.shape(y)[0]) == "n"
    assert [(r.value, r.index) for r in analysis.readings.values()] == [(given, 0)]


def test_arguments_without_given_shapes_have_symbols_of_their_own(build):
    x = build.argument((None, 3, None))
    assert [str(d) for d in build.shapes().shape(x)] == ["arg0_0", "3", "arg0_1"]


def test_values_made_after_the_analysis_are_inferred_on_demand(build):
    x = build.argument((None, 3))
    analysis = build.shapes((n, 3))
    with ir.InsertionPoint(build.block.operations[0]), ir.Location.unknown():
        y = reshape.Transpose.create(x=unary.Relu.create(x=x).y, perm=(1, 0)).y
    assert analysis.shape(y) == (3, n)


def test_what_is_inferred_is_written_into_types(build):
    x = build.argument((None, 3))
    y = build.make(reshape.Transpose, x=build.make(unary.Relu, x=x).y, perm=(1, 0)).y
    build.shapes()
    build.block.operations[2].operation.erase()
    from xcompile.compiler.ir.mlir import func

    with ir.InsertionPoint(build.block), ir.Location.unknown():
        func.ReturnOp([y])
    refine_types(build.function, [(5, 3)])
    assert str(y.type) == "tensor<3x5xf32>"
    assert "(%arg0: tensor<5x3xf32>) -> tensor<3x5xf32>" in str(build.function)
    assert build.module.operation.verify()


def test_a_stated_size_that_contradicts_the_inferred_one_is_an_error(build):
    x = build.argument((2, 3))
    op = build.make(unary.Relu, "Relu_0", x=x)
    op.y.set_type(ir.Type.parse("tensor<2x4xf32>"))
    with pytest.raises(CompileError, match=r"XC2004 .* at node 'Relu_0'"):
        build.shapes()


def test_an_expression_that_grows_too_large_is_an_error_that_names_the_node(build):
    parts = [build.argument((None,)) for _ in range(150)]
    build.make(slicing.Concat, "Concat_5", xs=parts, axis=0)
    with pytest.raises(CompileError, match=r"XC2008 .*at node 'Concat_5'"):
        build.shapes(*[(symbol(f"a_rather_long_name_of_a_size_{i}"),) for i in range(150)])


def test_contents_that_wrap_or_round_in_their_type_are_not_followed(build):
    wrapped = build.make(binary.Add, a=np.uint8([255, 1]), b=np.uint8([1, 1])).y
    exact = build.make(binary.Add, a=np.uint8([254, 1]), b=np.uint8([1, 1])).y
    rounded = build.make(binary.Add, a=np.float16([2048]), b=np.float16([1])).y
    shape = build.make(sizes.ShapeOf, x=build.argument((None,))).y
    narrow = build.make(unary.Cast, x=shape, to="i16").y
    wide = build.make(unary.Cast, x=shape, to="i32").y
    analysis = build.shapes((n,))
    contents = [analysis.content(v) for v in (wrapped, exact, rounded, narrow, wide)]
    assert contents == [None, (255, 2), None, None, (n,)]


def test_sizes_that_no_tensor_has_are_refused_with_the_node(build):
    with pytest.raises(CompileError, match=r"XC2008 .* at node 'Tile_1'"):
        build.make(slicing.Tile, "Tile_1", x=np.zeros(2), repeats=i64(2**62))
    with pytest.raises(CompileError, match=r"XC2008 .* at node 'OneHot_1'"):
        build.make(gather.OneHot, "OneHot_1", indices=i64(0), depth=i64(-3), values=i64(0, 1))


def test_an_argument_shape_that_contradicts_the_type_is_refused(build):
    build.argument((2, 3))
    with pytest.raises(CompileError, match="XC2004"):
        build.shapes((2, 4))


@settings(max_examples=150, deadline=None)
@given(
    start=st.integers(-12, 12), end=st.integers(-12, 12), step=st.integers(-4, 4).filter(bool), size=st.integers(0, 9)
)  # fmt: skip
def test_inferred_lengths_of_any_slice_are_those_of_the_reference(start, end, step, size):
    with context():
        build = Builder()
        op = build.make(
            slicing.Slice,
            x=build.argument((None,)),
            starts=i64(start),
            ends=i64(end),
            steps=i64(step),
        )
        (length,) = build.shapes((n,)).shape(op.y)
        got = op.reference(np.arange(size), i64(start), i64(end), None, i64(step))
        assert evaluate(length, {"n": size}) == got.size


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_reshapes_of_symbols_infer_what_numpy_gives(axes, random):
    actual = [size for size, _ in axes]
    shape = [symbol(f"d{i}") if dynamic else size for i, (size, dynamic) in enumerate(axes)]
    cut = sorted(random.sample(range(len(axes) + 1), k=min(2, len(axes) + 1)))
    wanted = np.array(
        [0] * cut[0] + [-1] + ([] if cut[1] == len(axes) else [np.prod(actual[cut[1] :])]), np.int64
    )
    with context():
        build = Builder()
        x = build.argument(tuple(d if isinstance(d, int) else None for d in shape))
        op = build.make(reshape.Reshape, x=x, shape=wanted)
        analysis = build.shapes(tuple(shape))
        env = {f"d{i}": size for i, size in enumerate(actual)}
        found = [evaluate(d, env) for d in analysis.shape(op.y)]
        assert found == list(op.reference(np.zeros(actual), wanted).shape)
        assert all(evaluate(a, env) == evaluate(b, env) for a, b, _ in analysis.constraints)


def test_a_reshape_to_a_scalar_needs_one_element(build):
    scalar = build.make(reshape.Reshape, x=build.argument((None,)), shape=np.zeros(0, np.int64)).y
    assert str(scalar.type) == "tensor<f32>"
    ((left, right, _),) = build.shapes((n,)).constraints
    assert {left, right} == {n, 1}


def test_a_reshape_of_three_elements_to_a_scalar_is_refused(build):
    with pytest.raises(CompileError, match="XC2004 elements of the shape"):
        build.make(reshape.Reshape, x=build.argument((3,)), shape=np.zeros(0, np.int64))
