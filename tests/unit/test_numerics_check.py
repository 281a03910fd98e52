"""Checking passes by numbers finds the pass that changes what a model computes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from tests.numerics.graphs import Graph
from xcompile import passes
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import Pass, PassContext, PatternPass
from xcompile.compiler.ir.pipeline import Pipeline, parse_pipeline
from xcompile.compiler.ir.rewrite import Pattern, Rewriter
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.numerics import check_numerics, sample_inputs
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.binary import Add, Mul
from xcompile.dialects.nn.unary import Abs, Neg, Relu

assert passes.PASSES


class ReluToAbs(Pattern[Relu]):
    def rewrite(self, op: Relu, rewriter: Rewriter) -> None:
        rewriter.replace(op, rewriter.create(Abs, x=op.x))


@dataclass(frozen=True)
class Wrong(PatternPass):
    NAME: ClassVar[str] = "wrong"
    PATTERNS: ClassVar = (ReluToAbs,)


@pytest.fixture(autouse=True)
def mlir() -> Iterator[None]:
    with context():
        yield


def model() -> Module:
    g = Graph((None, 8))
    x = g.make(Mul, a=g.inputs[0], b=np.float32(1))
    x = g.make(Relu, x=g.make(Neg, x=x))
    return g.done(g.make(Add, a=x, b=g.inputs[0]))


def run(module: Module, *chosen: Pass) -> None:
    state = PassContext(targets()["x86-avx2"], instruments=[check_numerics(module)])
    run_pipeline(module, Pipeline(chosen), state)


def test_a_pass_that_changes_the_results_is_named() -> None:
    canonicalize = parse_pipeline("nn-canonicalize", {}).passes
    with pytest.raises(CompileError, match=r"XC3008 .*output 0 differs by .*, in pass 'wrong'"):
        run(model(), *canonicalize, Wrong())


def test_the_whole_pipeline_passes_down_to_kernels() -> None:
    run(model(), *parse_pipeline("@cpu", PIPELINES).passes)


def test_samples_fit_the_model() -> None:
    (x,) = sample_inputs(model(), sizes={"arg0_0": 5})
    assert x.shape == (5, 8)
    assert x.dtype == np.float32
    (x,) = sample_inputs(model())
    assert x.shape == (3, 8)


def test_infinities_and_nan_must_stay_where_they_are() -> None:
    g = Graph((3,))
    module = g.done(g.make(Relu, x=g.inputs[0]))
    x = np.array([np.nan, np.inf, -1], np.float32)
    check = check_numerics(module, [x])
    expected = [np.array([np.nan, np.inf, 0], np.float32)]
    assert check.evaluate(module) is not None
    assert check.difference(expected, expected) is None
    moved = [np.array([np.inf, np.nan, 0], np.float32)]
    assert check.difference(moved, expected) is not None
