"""Sizes of inputs that contradict each other, overflow, or leave nothing for a window."""

import numpy as np
import onnx
import pytest

import xcompile
from tests.unit.frontends.onnx_models import model
from xcompile.compiler.worker.pool import WorkerPool

node = onnx.helper.make_node


@pytest.fixture(scope="module")
def pool():
    with WorkerPool(1) as workers:
        yield workers


def floats(*shape):
    return np.ones(shape, np.float32)


@pytest.fixture(scope="module")
def product(pool):
    nodes = [node("MatMul", ["a", "b"], ["y"])]
    return xcompile.compile(model(nodes, {"a": ["M", "K"], "b": ["K", "N"]}, ["y"]), pool=pool)


def test_a_symbol_has_one_size_in_all_inputs(product):
    assert product(floats(3, 5), floats(5, 4)).shape == (3, 4)
    with pytest.raises(xcompile.RuntimeModelError, match="XC5004 axis 0 of the input 'b'"):
        product(floats(3, 5), floats(4, 4))


def test_a_symbol_has_one_size_within_an_input(pool):
    square = model([node("MatMul", ["x", "x"], ["y"])], {"x": ["N", "N"]}, ["y"])
    compiled = xcompile.compile(square, pool=pool)
    assert compiled(floats(2, 2))[0, 0] == 2
    with pytest.raises(xcompile.RuntimeModelError, match="XC5004 axis 1 of the input 'x'"):
        compiled(floats(2, 3))


def test_a_saved_library_checks_repeated_sizes_too(product, tmp_path):
    product.save(tmp_path / "m.so")
    loaded = xcompile.load(tmp_path / "m.so")
    with pytest.raises(xcompile.RuntimeModelError, match="XC5004 axis 0 of the input 'b'"):
        loaded.run([floats(3, 5), floats(4, 4)])


def test_the_bytes_of_an_intermediate_tensor_do_not_wrap_around(pool):
    """2^16 to the power of four elements: 0 bytes modulo 2^64."""
    nodes = [
        node("Mul", ["a", "b"], ["ab"]),
        node("Mul", ["c", "d"], ["cd"]),
        node("Mul", ["ab", "cd"], ["abcd"]),
        node("CumSum", ["abcd", "axis"], ["sums"]),
        node("ReduceSum", ["sums"], ["y"], keepdims=0),
    ]
    inputs = {"a": ["M", 1, 1, 1], "b": ["K", 1, 1], "c": ["N", 1], "d": ["L"]}
    compiled = xcompile.compile(model(nodes, inputs, ["y"], {"axis": np.array(0)}), pool=pool)
    assert compiled(floats(1, 1, 1, 1), floats(1, 1, 1), floats(1, 1), floats(3)) == 3
    n = 1 << 16
    with pytest.raises(xcompile.RuntimeModelError, match="XC5004 the sizes are too large"):
        compiled(floats(n, 1, 1, 1), floats(n, 1, 1), floats(n, 1), floats(n))


def test_two_negative_sizes_do_not_make_a_positive_product(pool):
    weights = {"w": floats(1, 1, 5, 5)}
    nodes = [node("Conv", ["x", "w"], ["t"]), node("Flatten", ["t"], ["y"])]
    compiled = xcompile.compile(model(nodes, {"x": [1, 1, "H", "W"]}, ["y"], weights), pool=pool)
    assert compiled(floats(1, 1, 5, 5)).tolist() == [[25]]
    with pytest.raises(xcompile.RuntimeModelError, match=r"negative size, H - 4 \(node 'Conv_0'\)"):
        compiled(floats(1, 1, 3, 3))
