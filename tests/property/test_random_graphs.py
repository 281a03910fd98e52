"""Random models: compiled once, run at several sizes, compared with the reference interpreter."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from onnx import helper

from tests.e2e.compiled_node import shared_pool
from tests.property.random_graphs import Model, models
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.codegen.cpu.pull import PULLS
from xcompile.compiler.ir.context import new_context
from xcompile.compiler.numerics.tolerance import tolerance
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.frontends.onnx.registry import load_converters

SIZES = ((1, 1), (2, 5), (5, 3))
"""What n and m are."""


def problems(model: Model, load: Sequence[Path] = ()) -> list[str]:
    """How the compiled model differs from the reference, and from itself on more threads.

    Args:
        model: the model.
        load: plug-ins for the compiler, which then gets workers of its own.
    """
    load_converters()
    reference = import_onnx(model.proto, context=new_context())
    pool = None if load else shared_pool()
    artifact = compile_model(model.proto, pool=pool, threads=3, load=load).artifact
    alone, shared = (artifact.load(threads=n, poison=True) for n in (1, 3))
    found: list[str] = []
    for n, m in SIZES:
        x = model.data(n, m)
        wanted = interpret(reference, [x])
        results = alone.run([x])
        for (name, y), again, w in zip(
            results.items(), shared.run([x]).values(), wanted, strict=True
        ):
            if y.shape != w.shape or y.dtype != w.dtype:
                found.append(f"{name} at {n}, {m}: {y.dtype}{y.shape} for {w.dtype}{w.shape}")
                continue
            if y.tobytes() != again.tobytes():
                found.append(f"{name} at {n}, {m}: other bits on three threads")
            allowed = tolerance(y.dtype, model.length) * max(1.0, np.abs(w).max(initial=0))
            error = np.abs(y.astype(np.float64) - w).max(initial=0)
            if not error <= allowed:
                found.append(f"{name} at {n}, {m}: error {error:.3g} of {allowed:.3g}")
    return found


@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(models())
def test_compiled_models_agree_with_the_reference(model):
    assert problems(model) == []


@pytest.mark.full
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(models())
def test_many_compiled_models_agree_with_the_reference(model):
    assert problems(model) == []


_PLANT = """
from xcompile.compiler.codegen.cpu import families, pull

assert families.FAMILIES  # all element functions are registered
_right = pull.PULLS["{name}"]


def _wrong(p, op, at):
    return p.b.binary("arith.mulf", _right(p, op, at), p.b.float_constant({factor}, "f32", p.lanes), p.lanes)


pull.PULLS["{name}"] = _wrong
"""


@pytest.mark.parametrize(("op", "factor", "seen"), [("Tanh", 1.001, True), ("Tanh", 1.0, False)])
def test_the_comparison_sees_an_element_function_that_is_wrong_by_a_thousandth(
    tmp_path, monkeypatch, op, factor, seen
):
    name = f"nn.{op.lower()}"
    monkeypatch.setitem(PULLS, name, PULLS[name])
    plant = tmp_path / "plant.py"
    plant.write_text(_PLANT.format(name=name, factor=factor))
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"])],
        "planted",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 19])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 20)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    assert bool(problems(Model(proto, ("n", 19), 1), [plant])) is seen
