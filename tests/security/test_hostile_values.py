"""Constants, counts and indices far outside of what a tensor has."""

import numpy as np
import onnx
import pytest

import xcompile
from tests.unit.frontends.onnx_models import model
from xcompile.compiler.worker.pool import WorkerPool

node = onnx.helper.make_node
INT64 = onnx.TensorProto.INT64
GREATEST, LEAST = 2**63 - 1, -(2**63)


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(1) as workers:
        yield workers


def i64(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize("size", [10, "N"])
@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (0, GREATEST, 2**62, [0]),
        (9, LEAST, -(2**62), [9]),
        (GREATEST, LEAST, LEAST, [9]),
        (LEAST, GREATEST, 1, list(range(10))),
        (-1, GREATEST, -1, []),
    ],
)
def test_slices_to_the_ends_of_int64(pool, size, start, end, step, expected):
    constants = {"s": i64(start), "e": i64(end), "a": i64(0), "t": i64(step)}
    made = model([node("Slice", ["x", "s", "e", "a", "t"], ["y"])], {"x": [size]}, ["y"], constants)
    y = xcompile.compile(made, pool=pool)(np.arange(10, dtype=np.float32))
    assert y.tolist() == expected


@pytest.mark.parametrize("op", ["Gather", "GatherND"])
def test_an_index_into_an_empty_axis_is_refused(pool, op):
    kinds = {"i": INT64}
    inputs = {"x": ["N", 4], "i": ["K", 1]}
    made = model([node(op, ["x", "i"], ["y"])], inputs, ["y"], dtypes=kinds)
    compiled = xcompile.compile(made, pool=pool)
    empty = np.empty((0, 4), np.float32)
    with pytest.raises(xcompile.RuntimeModelError, match="XC5004 axis 0 of size N is indexed"):
        compiled(empty, i64(0).reshape(1, 1))
    assert compiled(empty, np.empty((0, 1), np.int64)).shape[0] == 0


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_an_empty_axis_has_no_elements_to_be_padded_with(pool, mode):
    pads = {"p": i64(1, 1)}
    made = model([node("Pad", ["x", "p"], ["y"], mode=mode)], {"x": ["N"]}, ["y"], pads, opset=19)
    compiled = xcompile.compile(made, pool=pool)
    assert compiled(np.array([7], np.float32)).tolist() == [7, 7, 7]
    with pytest.raises(xcompile.RuntimeModelError, match="XC5004 axis 0, of which N elements"):
        compiled(np.empty(0, np.float32))


def test_an_output_that_no_memory_holds_is_refused(pool):
    pads = {"p": i64(2**40, 0)}
    made = model([node("Pad", ["x", "p"], ["y"])], {"x": [4]}, ["y"], pads)
    compiled = xcompile.compile(made, pool=pool)
    with pytest.raises(xcompile.RuntimeModelError, match="XC5007 output 'y': there is no memory"):
        compiled(np.ones(4, np.float32))


def test_a_size_that_is_beyond_64_bits_for_every_input_is_refused(pool):
    nodes = [node("Concat", ["x", "x"], ["v0"], axis=0)]
    nodes += [node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(70)]
    made = model(nodes, {"x": ["N", 3]}, ["v70"])
    with pytest.raises(xcompile.CompileError, match="XC2008 "):
        xcompile.compile(made, pool=pool)


def test_300_operands_of_dynamic_sizes_are_concatenated(pool):
    names = [f"x{i}" for i in range(300)]
    made = model([node("Concat", names, ["y"], axis=0)], {n: [f"n{n}", 2] for n in names}, ["y"])
    parts = [np.full((i % 3, 2), i, np.float32) for i in range(300)]
    y = xcompile.compile(made, pool=pool)(*parts)
    np.testing.assert_array_equal(y, np.concatenate(parts))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({f"x{i}": [1] for i in range(4097)}, "4097 inputs or outputs; there may be 4096"),
        ({"x0": [1] * 65}, "65 axes of an input; there may be 64"),
        ({"x0": [1], "x" * 65537: [1]}, "65537 characters in a name; there may be 65536"),
    ],
)
def test_a_signature_that_the_runtime_could_not_describe_is_refused(inputs, message):
    made = model([node("Relu", ["x0"], ["y"])], inputs, ["y"])
    with pytest.raises(xcompile.CompileError, match=f"XC1013 {message}"):
        xcompile.compile(made)


def test_a_library_does_not_take_the_place_of_a_device(pool, tmp_path):
    made = model([node("Relu", ["x"], ["y"])], {"x": [1]}, ["y"])
    compiled = xcompile.compile(made, pool=pool)
    for path in ("/dev/full", tmp_path):
        with pytest.raises(xcompile.CompileError, match=r"XC7001 .*: it is not a regular file"):
            compiled.save(path)
