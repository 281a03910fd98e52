"""Mistakes of those who call the Python API: each is an error with a code."""

import subprocess
import sys

import numpy as np
import pytest

import xcompile
from tests.unit.frontends.onnx_models import identity_model


@pytest.fixture(scope="module")
def model():
    return xcompile.compile(identity_model(("N", 2)), options={"jobs": 1})


@pytest.mark.parametrize("source", [None, 5, [], np.zeros(3)])
def test_something_that_is_no_model_is_refused(source):
    with pytest.raises(xcompile.CompileError, match="XC1001 a model is a path, bytes or"):
        xcompile.compile(source)


@pytest.mark.parametrize("source", [None, 5, []])
def test_something_that_is_no_library_is_refused(source):
    with pytest.raises(xcompile.RuntimeModelError, match="XC7002"):
        xcompile.load(source)


@pytest.mark.parametrize("prefix", ["", "1x", "a b", "xc_", "__x", "a" * 65, "a;b", "é"])
def test_a_prefix_that_cannot_start_names_of_c_is_refused(prefix):
    with pytest.raises(xcompile.CompileError, match="XC6005 the prefix"):
        xcompile.compile(identity_model(), prefix=prefix)


def test_a_pass_that_is_to_explain_itself_exists():
    with pytest.raises(xcompile.CompileError, match="XC3001 there is no pass 'nn-fold-scales'"):
        xcompile.compile(identity_model(), explain=["nn-fold-scales"])


def test_more_threads_than_a_model_can_use_are_refused_before_anything_is_compiled():
    with pytest.raises(xcompile.CompileError, match=r"XC6005 .*from 1 to 256"):
        xcompile.compile(b"", threads=257)


def test_inputs_can_be_given_by_keyword(model):
    np.testing.assert_array_equal(model(x=np.ones((3, 2), np.float32)), np.ones((3, 2)))


def test_an_exporter_that_raises_anything_is_named(model):
    class Broken:
        def __array__(self, *_, **__):
            raise KeyError("boom")

    with pytest.raises(xcompile.RuntimeModelError, match="XC5001 input 'x': Broken cannot be"):
        model(Broken())


def test_an_output_under_a_mask_is_refused(model):
    x = np.ones((1, 2), np.float32)
    with pytest.raises(xcompile.RuntimeModelError, match=r"XC5005.*MaskedArray"):
        model.run([x], [np.ma.masked_array(np.empty((1, 2), np.float32), True)])


def test_something_that_is_no_arena_is_refused(model):
    with pytest.raises(xcompile.RuntimeModelError, match="XC5007"):
        model.run([np.ones((1, 2), np.float32)], arena=1000)


@pytest.mark.parametrize("shape", ["ab", None, (2.5, 2)])
def test_something_that_is_no_shape_is_refused(model, shape):
    with pytest.raises(xcompile.RuntimeModelError, match="XC5003 a shape is a sequence"):
        model.executable.required_bytes([shape])


def test_the_package_is_a_command():
    made = subprocess.run(
        [sys.executable, "-m", "xcompile", "--version"], capture_output=True, text=True, check=True
    )
    assert made.stdout == f"xcompile {xcompile.__version__}\n"
