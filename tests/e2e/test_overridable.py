"""Initializers that are inputs too: constants, unless it is said that runs may replace them."""

import numpy as np
import onnx
import pytest
from onnx import helper

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.unit.frontends.onnx_models import FLOAT
from xcompile.compiler.diff.api import diff
from xcompile.runtime import library
from xcompile.runtime.abi import Manifest

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SCALE = np.float32([1, 2, 3])


def scaled(ir_version=10, scale_dims=(3,)):
    """y = x·scale + shift; scale and shift are inputs with initializers, fixed is an initializer only."""
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["shifted"]),
        helper.make_node("Add", ["shifted", "fixed"], ["y"]),
    ]
    shapes = {"scale": scale_dims, "x": ["n", 3], "shift": [1]}
    inputs = [helper.make_tensor_value_info(n, FLOAT, s) for n, s in shapes.items()]
    fixed = {"scale": SCALE, "shift": np.float32([10]), "fixed": np.float32([0.5])}
    graph = helper.make_graph(
        nodes, "g", inputs, [helper.make_tensor_value_info("y", FLOAT, None)],
        [onnx.numpy_helper.from_array(a, n) for n, a in fixed.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)


def compiled(model=None, overridable=("scale", "shift"), **arguments):
    options = {"verify-each": True}
    return xcompile.compile(
        model or scaled(), pool=shared_pool(), options=options, overridable=overridable, **arguments
    )


def test_they_are_constants_by_default():
    made = compiled(overridable=())
    assert [spec.name for spec in made.inputs] == ["x"]
    np.testing.assert_array_equal(made(X), X * SCALE + 10.5)


@pytest.mark.parametrize("ir_version", [3, 4, 10])
def test_a_run_may_replace_them_and_leave_them_out(ir_version):
    made = compiled(scaled(ir_version))
    assert [spec.name for spec in made.inputs] == ["x", "scale", "shift"]
    other, shift = np.float32([0, -1, 1]), np.float32([7])
    for _ in range(2):
        np.testing.assert_array_equal(made(X), X * SCALE + 10.5)
        np.testing.assert_array_equal(made(X, other), X * other + 10.5)
        np.testing.assert_array_equal(made(X, other, shift), X * other + 7.5)
        np.testing.assert_array_equal(made.run({"shift": shift, "x": X})["y"], X * SCALE + 7.5)
        np.testing.assert_array_equal(made(x=X, scale=other), X * other + 10.5)


def test_one_of_them_may_be_named_alone():
    made = compiled(overridable="shift")
    assert [spec.name for spec in made.inputs] == ["x", "shift"]
    np.testing.assert_array_equal(made(X, np.float32([1])), X * SCALE + 1.5)


def test_sizes_of_defaults_count_where_they_are_left_out():
    made = compiled(scaled(scale_dims=("k",)))
    executable = made.executable
    assert executable.output_shapes({"x": (4, 3)}) == {"y": (4, 3)}
    assert executable.required_bytes([(4, 3)]) == executable.required_bytes([(4, 3), (3,), (1,)])
    np.testing.assert_array_equal(made(X, np.float32([5])), X * 5 + 10.5)
    with pytest.raises(xcompile.RuntimeModelError, match="XC5004"):
        made(X, np.float32([5, 6]))


def test_what_has_no_default_is_still_needed():
    made = compiled()
    for given in ({"scale": SCALE}, {}, {"x": X, "fixed": X}):
        with pytest.raises(xcompile.RuntimeModelError, match="XC5001"):
            made.run(given)
    with pytest.raises(xcompile.RuntimeModelError, match="XC5001 0 inputs"):
        made()
    with pytest.raises(xcompile.RuntimeModelError, match="XC5001 4 inputs"):
        made(X, SCALE, SCALE, SCALE)


def test_a_saved_library_has_the_defaults(tmp_path):
    made = compiled()
    made.save(tmp_path / "m.so")
    loaded = library.load(tmp_path / "m.so")
    assert loaded.manifest.defaults == made.artifact.manifest.defaults
    np.testing.assert_array_equal(loaded.run([X])["y"], X * SCALE + 10.5)
    np.testing.assert_array_equal(loaded.run({"x": X, "scale": X[0]})["y"], X * X[0] + 10.5)


def test_plugins_and_caches_keep_them(tmp_path):
    plugin = tmp_path / "plugin.py"
    plugin.write_text("")
    options = {"cache": tmp_path}
    for load in ((), (), plugin):
        made = xcompile.compile(scaled(), load=load, options=options, overridable=["shift"])
        np.testing.assert_array_equal(made(X, np.float32([1])), X * SCALE + 1.5)
        np.testing.assert_array_equal(made(X), X * SCALE + 10.5)
    assert len(xcompile.compile(scaled(), options=options).inputs) == 1


@pytest.mark.parametrize("name", ["x", "fixed", "scaled", "nobody"])
def test_only_an_input_with_an_initializer_can_be_named(name):
    with pytest.raises(xcompile.CompileError, match=f"XC6005 '{name}' is no input with an init"):
        compiled(overridable=[name])
    with pytest.raises(xcompile.CompileError, match="XC6005 names of inputs are expected"):
        compiled(overridable=[1])


def test_a_fallback_is_refused():
    with pytest.raises(xcompile.CompileError, match=r"XC6005 .*do not go together"):
        compiled(fallback="onnxruntime")


def test_diff_compares_on_the_defaults():
    report = diff(scaled(scale_dims=("k",)), pool=shared_pool(), overridable=["scale"])
    assert report.good


@pytest.mark.parametrize(
    ("old", "new"),
    [('"offset":0', '"offset":1'), ('"offset":0', '"offset":1048576'), ('"shape":[3]', '"shape":[1048576]'),
     ('"input":"scale"', '"input":"x"'), ('"input":"scale"', '"name":"scale"'), ('"shape":[3]', '"shape":[-3]')],
)  # fmt: skip
def test_a_forged_default_is_refused(old, new):
    text = compiled().artifact.manifest.to_json()
    offset = text.replace('"offset":64', '"offset":0')
    assert old in offset
    with pytest.raises(xcompile.RuntimeModelError, match="XC7002"):
        Manifest.from_json(offset.replace(old, new))
