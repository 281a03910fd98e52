"""Mistakes of those who call the Python API: each is an error with a code."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest

import xcompile
from tests.unit.frontends.onnx_models import identity_model
from xcompile.runtime.arena import Arena


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


X = np.ones((1, 2), np.float32)
KINDS = {
    "options=5": (lambda m: compiled(options=5), "XC6005 options are values by name, not int"),
    "options=['jobs']": (lambda m: compiled(options=["jobs"]), "XC6005 options are values by"),
    "options={5: 1}": (lambda m: compiled(options={5: 1}), "XC6004 no option '5'"),
    "progress=5": (lambda m: compiled(progress=5), "XC6005 progress is called; int cannot be"),
    "pool=5": (lambda m: compiled(pool=5), "XC6005 a pool is a WorkerPool, not int"),
    "load=5": (lambda m: compiled(load=5), "XC3009 paths of Python files are expected, not int"),
    "load=[5]": (lambda m: compiled(load=[5]), "XC3009 paths of Python files are expected, not int"),
    "load=b''": (lambda m: compiled(load=b"x.py"), "XC3009 paths of Python files are expected, not by"),
    "explain=5": (lambda m: compiled(explain=5), "XC3001 names of passes are expected, not int"),
    "explain=[5]": (lambda m: compiled(explain=[5]), "XC3001 names of passes are expected, not int"),
    "prefix=5": (lambda m: compiled(prefix=5), "XC6005 the prefix '5'"),
    "threads=2.5": (lambda m: compiled(threads=2.5), "XC6005 option 'threads': '2.5'"),
    "target=None": (lambda m: compiled(target=None), "XC6001 a target is a name or a Target"),
    "passes=5": (lambda m: compiled(passes=5), "XC3002 a pipeline and its edits are text"),
    "pipeline=5": (lambda m: compiled(pipeline=5), "XC3002 a pipeline and its edits are text"),
    "fallback=5": (lambda m: compiled(fallback=5), "XC6005 the fallback is '5'"),
    "run(5)": (lambda m: m.run(5), "XC5001 expected a mapping by name or a list, got int"),
    "outputs=5": (lambda m: m.run([X], 5), "XC5001 expected a mapping by name or a list, got int"),
    "save(5)": (lambda m: m.save(5), "XC7001 a library is written to a path, not int"),
    "required_bytes(5)": (lambda m: m.executable.required_bytes(5), "XC5001 expected a mapping"),
    "output_shapes(5)": (lambda m: m.executable.output_shapes(5), "XC5001 expected a mapping"),
    "load threads": (lambda m: loaded(m, threads="2"), "XC5006 threads is '2'; expected 1 to 256"),
    "load pool": (lambda m: loaded(m, pool=5), "XC5006 a Pool is expected, not int"),
    "Arena('x')": (lambda m: Arena("x"), "XC5007 an arena has a number of bytes, not 'x'"),
    "Arena(2.5)": (lambda m: Arena(2.5), "XC5007 an arena has a number of bytes, not 2.5"),
    "Arena(-1)": (lambda m: Arena(-1), "XC5007 an arena has a number of bytes, not -1"),
    "diff inputs": (lambda m: xcompile.diff(identity_model(), 5), "XC6005 inputs are arrays by name"),
    "diff progress": (lambda m: xcompile.diff(identity_model(), progress=5), "XC6005 progress is"),
    "diff against": (lambda m: xcompile.diff(identity_model(), against=5), "XC6006 nothing is called '5'"),
    "profile inputs": (lambda m: xcompile.profile(identity_model(), 5), "XC5001 expected a mapping"),
    "repeats=0": (lambda m: xcompile.profile(identity_model(), [X], repeats=0), "XC6005 repeats is 0"),
}  # fmt: skip


def compiled(**arguments):
    return xcompile.compile(identity_model(), **{"target": "cpu", **arguments})


def loaded(model, **arguments):
    """The model as a loaded library."""
    executable = model.executable
    return type(executable)(executable.entry, executable.manifest, b"", **arguments)


@pytest.mark.parametrize("name", KINDS)
def test_an_argument_of_the_wrong_kind_is_an_error_with_a_code(model, name):
    call, message = KINDS[name]
    with pytest.raises((xcompile.CompileError, xcompile.RuntimeModelError)) as caught:
        call(model)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("what", ["input", "output"])
def test_an_input_or_output_in_the_arena_is_refused(model, what):
    arena = Arena(1 << 16)
    inside = arena.array[:8].view(np.float32).reshape(1, 2)
    given, made = (inside, None) if what == "input" else (X, {"y": inside})
    with pytest.raises(xcompile.RuntimeModelError, match=f"XC5007 {what} '.' lies in the arena"):
        model.run([given], made, arena=arena)
    assert model.run([X], arena=arena)["y"].tolist() == [[1, 1]]


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy])
def test_a_model_that_is_pickled_says_what_to_do_instead(model, copied):
    with pytest.raises(TypeError, match=r"cannot be pickled: save it, and xcompile\.load"):
        copied(model)
    with pytest.raises(TypeError, match="cannot be pickled: load its library"):
        copied(model.executable)
