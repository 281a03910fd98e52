"""Models with branches and loops give the same numbers after every pass."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.frontends.control_models import BOOL, CASES, INT64, Case, graph, loop, node
from tests.unit.frontends.onnx_models import model
from xcompile import passes as _passes
from xcompile.compiler.ir.instruments import Verify
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import Pipeline, parse_pipeline
from xcompile.compiler.ir.rewrite import walk
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.target.registry import targets
from xcompile.dialects.kernel_interpreter import interpret_kernels
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx

assert _passes.PASSES

CONTROL = ("nn.if", "nn.loop", "nn.yield", "nn.fail")

PASSES = "@graph,nn-assign-layout,nn-choose-winograd"


def image_network(in_loop: bool) -> Case:
    """Convolutions around and inside a branch or a loop that uses the image before it."""
    random = np.random.default_rng(0)
    constants = {
        name: random.standard_normal(shape).astype(np.float32) / 8
        for name, shape in {
            "w0": (16, 3, 3, 3), "w1": (16, 16, 3, 3), "w2": (16, 16, 1, 1), "w3": (16, 16, 3, 3),
            "b": (16,), "scale": (16,), "mean": (16,),
        }.items()
    }  # fmt: skip
    constants["var"] = np.abs(constants["mean"]) + 1
    same = {"pads": [1, 1, 1, 1]}
    inside = [
        node("Conv", ["p", "w1", "b"], ["t1"], **same),
        node("BatchNormalization", ["t1", "scale", "b", "mean", "var"], ["t2"]),
        node("Relu", ["t2"], ["t3"]),
        node("Add", ["t3", "h"], ["t4"]),
    ]
    before = [node("Conv", ["x", "w0"], ["h0"], **same), node("Relu", ["h0"], ["h"])]
    if in_loop:
        body = graph(inside, ["i", "go", "p"], ["go", "t4"])
        middle = [loop(body, ["y"], initial=["h"])]
    else:
        for each in inside:
            each.input[:] = ["h" if name == "p" else name for name in each.input]
        other = graph(
            [node("Conv", ["h", "w2"], ["e1"]), node("Add", ["e1", "h"], ["e2"])], [], ["e2"]
        )
        middle = [
            node("If", ["c"], ["y"], then_branch=graph(inside, [], ["t4"]), else_branch=other)
        ]
    after = [
        node("Conv", ["y", "w3"], ["z0"], **same),
        node("Add", ["z0", "h"], ["z1"]),
        node("MaxPool", ["z1"], ["z2"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Softmax", ["z2"], ["z"], axis=1),
    ]
    inputs = {"c": [], "n": [], "x": ["N", 3, 8, 8]}
    proto = model(
        [*before, *middle, *after], inputs, ["z"], constants, dtypes={"c": BOOL, "n": INT64}
    )
    x = random.standard_normal((2, 3, 8, 8)).astype(np.float32)
    calls = [([np.array(c), np.array(n), x], ()) for c, n in ((True, 2), (False, 0))]
    return Case(proto, calls)


def invariant() -> Case:
    """A loop with work that does not depend on the iteration, some of which may fail, and state that nobody needs."""
    body = graph(
        [
            node("Exp", ["x"], ["e"]),
            node("Gather", ["x", "k"], ["g"]),
            node("Mul", ["e", "w"], ["f"]),
            node("Add", ["a", "f"], ["a1"]),
            node("Add", ["a1", "g"], ["a2"]),
            node("Add", ["b", "g"], ["b2"]),
            node("Add", ["same", "a2"], ["used"]),
        ],
        ["i", "go", "a", "b", "same"],
        ["go", "a2", "b2", "same", "used", "b2"],
    )  # fmt: skip
    outputs = ["last", "unread", "unread2", "all", "unread3"]
    proto = model(
        [loop(body, outputs, initial=["x", "x", "x"])],
        {"n": [], "k": [], "x": ["N"]}, ["last", "all"], {"w": np.float32([2])}, dtypes={"n": INT64, "k": INT64},
    )  # fmt: skip
    x = np.array([0.5, -1, 2], np.float32)
    return Case(proto, [([np.array(3), np.array(1), x], ()), ([np.array(0), np.array(99), x], ())])


EXTRA: dict[str, Callable[[], Case]] = {
    "convolutions in a branch": lambda: image_network(False),
    "convolutions in a loop": lambda: image_network(True),
    "what does not change in a loop": invariant,
}


@pytest.mark.parametrize("name", [*CASES, *EXTRA])
def test_no_pass_changes_what_a_model_with_regions_computes(name: str) -> None:
    case = (CASES | EXTRA)[name]()
    module = import_onnx(case.model)
    wanted = [interpret(module, inputs) for inputs, _ in case.calls]
    with module.context, ir.Location.unknown():
        refine_types(module, module.input_shapes())
        context = PassContext(targets()["x86-avx2"], frozenset(), instruments=[Verify(each=True)])
        for each in parse_pipeline(PASSES, PIPELINES).passes:
            run_pipeline(module, Pipeline((each,)), context)
            for (inputs, _), expected in zip(case.calls, wanted, strict=True):
                for result, right in zip(interpret(module, inputs), expected, strict=True):
                    assert result.shape == right.shape, each
                    np.testing.assert_allclose(
                        result, right, rtol=1e-4, atol=1e-5, err_msg=str(each)
                    )


@pytest.mark.parametrize("fuse", ["true", "false"])
@pytest.mark.parametrize("name", [*CASES, *EXTRA])
def test_kernels_in_regions_compute_what_the_model_does(name: str, fuse: str) -> None:
    case = (CASES | EXTRA)[name]()
    wanted = [interpret(import_onnx(case.model), inputs) for inputs, _ in case.calls]
    formed = transformed(case, f"{PASSES},kernel-form{{fuse={fuse}}}")
    outside = [o for o in inside(formed) if not o.startswith(("kernel.", "nn.const", *CONTROL))]
    assert outside == []
    for (inputs, _), expected in zip(case.calls, wanted, strict=True):
        for result, right in zip(interpret_kernels(formed, inputs), expected, strict=True):
            assert result.shape == right.shape
            np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-5)


def transformed(case: Case, passes: str):
    module = import_onnx(case.model)
    with module.context, ir.Location.unknown():
        refine_types(module, module.input_shapes())
        context = PassContext(targets()["x86-avx2"], frozenset(), instruments=[Verify(each=True)])
        run_pipeline(module, parse_pipeline(passes, PIPELINES), context)
    return module


def inside(module) -> list[str]:
    """The names of ops in regions."""
    return [
        o.name
        for o in walk(module)
        if o.parent is not None and o.parent.name in ("nn.if", "nn.loop")
    ]


def test_convolutions_in_branches_have_blocked_layouts_and_are_marked_for_winograd() -> None:
    module = transformed(image_network(False), PASSES)
    convolutions = [o for o in walk(module) if o.name == "nn.conv"]
    assert len(convolutions) == 4
    for each in convolutions:
        assert "NCHW8c" in str(each.results[0].type)
    marked = [o for o in convolutions if "xc.winograd" in o.attributes]
    assert any(o.parent.name == "nn.if" for o in marked)


def test_a_captured_image_is_converted_once_at_most() -> None:
    module = transformed(image_network(False), PASSES)
    assert "nn.relayout" not in [
        o.name for o in walk(module) if o.name == "nn.relayout" and "NCHW8c" in str(o.results[0].type)
        and o.parent.name == "nn.if"
    ]  # fmt: skip


def test_what_does_not_change_leaves_the_loop_unless_it_may_fail() -> None:
    names = inside(transformed(invariant(), "@graph"))
    assert "nn.exp" not in names
    assert "nn.mul" not in names
    assert names.count("nn.gather") == 1
