"""Checking passes by numbers finds the pass that changes what a model computes, and where it does."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from onnx import helper

from tests.e2e.networks import Network, residual_network
from tests.numerics.graphs import Graph
from xcompile import passes
from xcompile.compiler.driver import plan_module
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.passes import PASS_REGISTRY, Pass, PassContext, PatternPass
from xcompile.compiler.ir.pipeline import Pipeline, parse_pipeline
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.numerics import recording
from xcompile.compiler.numerics.check import VerifyNumerics
from xcompile.compiler.numerics.compare import Allowed, metrics, mismatch
from xcompile.compiler.numerics.samples import sample_inputs
from xcompile.compiler.numerics.tolerance import TOLERANCES, tolerance
from xcompile.compiler.opt import OptRequest
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.request import Request
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.options import Options
from xcompile.compiler.target.registry import targets
from xcompile.dialects.kernel import Func
from xcompile.dialects.nn.binary import Add, Mul, Sub
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.gather import Gather
from xcompile.dialects.nn.norm import LayerNorm
from xcompile.dialects.nn.relayout import Relayout
from xcompile.dialects.nn.unary import Abs, Cast, Neg, Relu
from xcompile.frontends.onnx.importer import import_onnx

assert passes.PASSES

TARGET = targets()["x86-avx2"]


class ReluToAbs(Pattern[Relu]):
    def rewrite(self, op: Relu, rewriter: Rewriter) -> None:
        rewriter.replace(op, rewriter.create(Abs, x=op.x))


class SwapSub(Pattern[Sub]):
    def rewrite(self, op: Sub, rewriter: Rewriter) -> None:
        if op.operation.attributes.__contains__("xc.swapped"):
            no_match("done")
        made = rewriter.create(Sub, a=op.b, b=op.a)
        made.operation.attributes["xc.swapped"] = ir.UnitAttr.get()
        rewriter.replace(op, made)


class DropBias(Pattern[Conv]):
    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        if op.bias is None:
            no_match("no bias")
        fields = op.attributes()
        rewriter.replace(op, rewriter.create(Conv, x=op.x, w=op.w, **fields))


class WrongEpsilon(Pattern[LayerNorm]):
    def rewrite(self, op: LayerNorm, rewriter: Rewriter) -> None:
        if op.epsilon > 0.005:
            no_match("done")
        fields = op.operand_fields() | op.attributes() | {"epsilon": 0.01}
        rewriter.replace(op, rewriter.create(LayerNorm, **fields))


def planted(*patterns: type[Pattern[Any]]) -> Pass:
    @dataclass(frozen=True)
    class Wrong(PatternPass):
        NAME: ClassVar[str] = "wrong"
        PATTERNS: ClassVar = patterns

    return Wrong()


@dataclass(frozen=True)
class LoseRelayout(Pass):
    """Reads a value in blocks as if it were twice itself: a wrong pass that is not made of patterns."""

    NAME: ClassVar[str] = "lose-relayout"

    def run(self, module: Module, context: PassContext) -> None:
        for operation in list(module.main.regions[0].blocks[0].operations):
            found = Relayout.of(operation)
            if found is not None:
                with ir.InsertionPoint(found.operation):
                    twice = Add.build(
                        {"a": found.x, "b": found.x}, [found.x.type], loc=found.location
                    )
                found.operation.operands[0] = twice.y
                return


@dataclass(frozen=True)
class SpoilKernel(Pass):
    """Exchanges the operands of the first subtraction inside a kernel."""

    NAME: ClassVar[str] = "spoil-kernel"

    def run(self, module: Module, context: PassContext) -> None:
        for operation in module.module.body.operations:
            func = Func.of(operation)
            for inner in func.ops if func else ():
                if inner.name == "nn.sub":
                    inner.operands[0], inner.operands[1] = inner.operands[1], inner.operands[0]
                    return


@pytest.fixture(autouse=True)
def mlir() -> Iterator[None]:
    with context():
        yield


def chain() -> Module:
    g = Graph((None, 8))
    x = g.make(Mul, a=g.inputs[0], b=np.float32(1))
    x = g.make(Relu, x=g.make(Neg, x=x))
    return g.done(g.make(Add, a=x, b=g.inputs[0]))


def run(module: Module, *chosen: Pass) -> VerifyNumerics:
    check = VerifyNumerics()
    run_pipeline(module, Pipeline(chosen), PassContext(TARGET, instruments=[check]))
    return check


def pipeline(text: str) -> tuple[Pass, ...]:
    return parse_pipeline(text, PIPELINES).passes


def fault(module: Module, *chosen: Pass) -> str:
    with pytest.raises(CompileError) as caught:
        run(module, *chosen)
    assert caught.value.code == "XC3008"
    return str(caught.value)


def network() -> Module:
    """Two branches: convolutions with biases, and a layer norm of a difference."""
    n = Network()
    conv = n("Conv", "x", n.weight(16, 16, 3, 3), n.weight(16), pads=[1, 1, 1, 1])
    relu = n("Relu", conv)
    second = n("Conv", relu, n.weight(16, 16, 1, 1), n.weight(16))
    difference = n("Sub", second, "x")
    norm = n("LayerNormalization", difference, n.weight(8), n.weight(8), axis=-1)
    y = n("Tanh", n("Sub", norm, relu))
    return import_onnx(
        n.model({"x": ("FLOAT", ["N", 16, 8, 8])}, {y: ("FLOAT", ["N", 16, 8, 8])}),
        context=ir.Context.current,
    )


def test_a_pass_that_changes_the_results_is_named() -> None:
    text = fault(chain(), *pipeline("nn-canonicalize"), planted(ReluToAbs))
    assert "(help: the fault is the pass's" in text
    assert "rewrites: ReluToAbs (1×), at node 'n2', in pass 'wrong'" in text


@pytest.mark.parametrize(
    ("pattern", "nodes"),
    [
        (SwapSub, "Sub_3"),
        (DropBias, "Conv_0"),
        (WrongEpsilon, "LayerNormalization_4"),
        (ReluToAbs, "Relu_1"),
    ],
)
def test_the_first_wrong_node_and_the_pattern_are_named(
    pattern: type[Pattern[Any]], nodes: str
) -> None:
    text = fault(network(), *pipeline("nn-canonicalize"), planted(pattern), *pipeline("cse"))
    assert f"{pattern.__name__} (" in text
    assert f"at node '{nodes}', in pass 'wrong'" in text


def test_a_wrong_pass_behind_fusions_and_layouts_is_named() -> None:
    text = fault(network(), *pipeline("@graph,nn-assign-layout"), LoseRelayout())
    assert "in pass 'lose-relayout'" in text


def test_a_wrong_pass_over_kernels_is_named() -> None:
    text = fault(network(), *pipeline("@cpu"), SpoilKernel())
    assert "Sub_" in text
    assert "in pass 'spoil-kernel'" in text


@pytest.mark.parametrize(
    "make", [network, lambda: import_onnx(residual_network(), context=ir.Context.current)]
)
def test_the_whole_pipeline_passes_down_to_kernels(make: Any) -> None:
    check = run(make(), *pipeline("@cpu"))
    assert check.recording is not None
    assert all(recorded.fault is None for recorded in check.recording.values.values())


def test_only_what_a_pass_changed_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[str] = []
    right = recording.execute

    def counting(operation: ir.Operation, *rest: Any) -> None:
        executed.append(operation.name)
        right(operation, *rest)

    monkeypatch.setattr(recording, "execute", counting)

    class AddToSub(Pattern[Add]):
        def rewrite(self, op: Add, rewriter: Rewriter) -> None:
            rewriter.replace(op, rewriter.create(Sub, a=op.a, b=rewriter.create(Neg, x=op.b).y))

    g = Graph((4, 8))
    x = g.make(Relu, x=g.make(Add, a=g.make(Abs, x=g.inputs[0]), b=g.inputs[0]))
    run(g.done(g.make(Relu, x=g.make(Abs, x=x))), planted(AddToSub))
    assert executed == ["nn.abs", "nn.add", "nn.relu", "nn.abs", "nn.relu", "nn.neg", "nn.sub"]


def test_what_is_compensated_inside_the_region_is_no_fault() -> None:
    class MoveNeg(Pattern[Abs]):
        """abs(x) -> abs(-x), the negation made in front of an op that stays."""

        def rewrite(self, op: Abs, rewriter: Rewriter) -> None:
            owner = view(op.x.owner)  # type: ignore[arg-type]
            if not isinstance(owner, Mul) or owner.operation.attributes.__contains__("xc.done"):
                no_match("done")
            negated = rewriter.create(Mul, a=owner.a, b=rewriter.create(Neg, x=owner.b).y)
            negated.operation.attributes["xc.done"] = ir.UnitAttr.get()
            rewriter.replace(op, rewriter.create(Abs, x=negated.y))

    g = Graph((4, 8))
    module = g.done(g.make(Abs, x=g.make(Mul, a=g.inputs[0], b=np.float32(2))))
    run(module, planted(MoveNeg))


def test_values_keep_the_names_of_the_model_as_long_as_they_exist() -> None:
    names: dict[str, Any] = {}

    def observe(name: str, node: str, value: Any) -> None:
        names[name] = value

    model = residual_network(batch=2)
    module = import_onnx(model, context=ir.Context.current, observe=observe)
    check = VerifyNumerics()
    check.start(module, {value: (name,) for name, value in names.items()})
    run_pipeline(module, Pipeline(pipeline("@cpu")), PassContext(TARGET, instruments=[check]))
    assert check.recording is not None
    kept = {n for recorded in check.recording.values.values() for n in recorded.names}
    assert {"v1_0", "v3_0", "v6_0", "v7_0", "v9_0"} <= kept  # what relu, add and pools give
    assert "v0_0" not in kept  # a convolution whose relu is fused


def test_the_option_makes_a_compile_check_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PASS_REGISTRY._entries, "wrong", type(planted(SwapSub)))
    request = Request(
        TARGET, passes="+before(nn-assign-layout):wrong", options=Options({"verify-numerics": True})
    )
    assert request.key() is None
    with pytest.raises(CompileError, match=r"XC3008 .* at node 'Sub_3', in pass 'wrong'"):
        plan_module(network(), request)


def test_samples_fit_the_model() -> None:
    (x,) = sample_inputs(chain(), sizes={"arg0_0": 5})
    assert x.shape == (5, 8)
    assert x.dtype == np.float32
    (x,) = sample_inputs(chain())
    assert x.shape == (3, 8)


def test_infinities_and_nan_must_stay_where_they_are() -> None:
    expected = np.array([np.nan, np.inf, 0], np.float32)
    assert mismatch(expected.copy(), expected, Allowed()) is None
    moved = np.array([np.inf, np.nan, 0], np.float32)
    assert mismatch(moved, expected, Allowed()) is not None
    assert metrics(moved, expected).max_abs == np.inf


def test_integers_must_be_equal_but_behind_a_jump() -> None:
    wanted = np.arange(2000)
    got = wanted.copy()
    got[7] += 1
    assert mismatch(got, wanted, Allowed()) is not None
    assert mismatch(got, wanted, Allowed(jumps=True)) is None
    assert mismatch(got + 1, wanted, Allowed(jumps=True)) is not None


def test_metrics_of_a_tensor_with_one_percent_noise() -> None:
    wanted = np.array([3.0, 4.0], np.float32)
    found = metrics(wanted * np.float32(1.01), wanted)
    np.testing.assert_allclose(
        [found.sqnr, found.cosine, found.max_abs, found.max_rel], [40, 1, 0.04, 0.01], rtol=1e-4
    )
    assert metrics(wanted, wanted).sqnr == np.inf
    assert metrics(np.zeros(2), np.zeros(2)).cosine == 1


def test_longer_sums_may_err_more_and_integers_not_at_all() -> None:
    for name, steps in TOLERANCES.items():
        errors = [error for _, error in steps]
        assert errors == sorted(errors), name
    assert tolerance(np.dtype(np.int8), 10**6) == 0
    assert tolerance(np.dtype(np.float32), 1) < tolerance(np.dtype(np.float32), 10**6) < 1e-3


def test_opt_checks_each_module_of_a_text() -> None:
    text = chain().text()
    request = OptRequest(
        f"{text}\n// -----\n{text}", "", "nn-canonicalize,cse", TARGET, verify_numerics=True
    )
    assert request.run().count("func.func @main") == 2


def strided() -> Module:
    """Needs images of at least 8×8."""
    n = Network()
    y = n("Conv", "x", n.weight(4, 3, 8, 8), strides=[4, 4])
    model = n.model({"x": ("FLOAT", ["N", 3, "H", "W"])}, {y: ("FLOAT", None)})
    return import_onnx(model, context=ir.Context.current)


def test_sizes_grow_until_the_model_runs() -> None:
    check = run(strided(), *pipeline("@graph"))
    assert check.recording is not None
    assert [x.shape for x in check.recording.inputs] == [(3, 3, 16, 16)]


def test_a_model_that_runs_on_no_samples_is_one_error() -> None:
    g = Graph((5,))
    indices = g.make(Cast, x=g.make(Mul, a=g.inputs[0], b=np.float32(99)), to="i64")
    module = g.done(g.make(Gather, x=g.const(np.arange(4)), indices=indices, axis=0))
    with pytest.raises(CompileError, match=r"XC2011 .* \(help: the model does not run on sample"):
        run(module, *pipeline("cse"))


def branches() -> Module:
    """Branches: a difference, and a relu."""
    sub = helper.make_node("Sub", ["h", "x"], ["t"], name="inner")
    relu = helper.make_node("Relu", ["h"], ["e"], name="other")
    then, other = (
        helper.make_graph([node], "branch", [], [helper.make_tensor_value_info(name, 1, None)])
        for node, name in ((sub, "t"), (relu, "e"))
    )
    nodes = [
        helper.make_node("Add", ["x", "x"], ["h"], name="twice"),
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0, name="sum"),
        helper.make_node("Greater", ["sum", "limit"], ["large"], name="large"),
        helper.make_node(
            "If", ["large"], ["z"], then_branch=then, else_branch=other, name="choice"
        ),
        helper.make_node("Tanh", ["z"], ["y"], name="last"),
    ]
    graph = helper.make_graph(
        nodes,
        "branches",
        [helper.make_tensor_value_info("x", 1, ["N", 4])],
        [helper.make_tensor_value_info("y", 1, None)],
        [helper.make_tensor("limit", 1, [], [-100.0])],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return import_onnx(model, context=ir.Context.current)


def test_branches_are_evaluated_as_a_whole() -> None:
    run(branches(), *pipeline("@graph"))
    text = fault(branches(), *pipeline("nn-canonicalize"), planted(SwapSub))
    assert "rewrites: SwapSub (1×), at node 'choice', in pass 'wrong'" in text


def test_errors_are_relative_to_a_floor_where_there_is_one() -> None:
    wanted = np.full(4, 1e-3, np.float32)
    got = wanted + np.float32(1e-7)
    assert mismatch(got, wanted, Allowed()) is not None
    assert mismatch(got, wanted, Allowed(floor=1.0)) is None
    assert mismatch(wanted * np.float32(1.05), wanted, Allowed(floor=1.0)) is not None
