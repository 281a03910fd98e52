"""The passes in examples/ do what they say, twice nothing more, and quickly."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.numerics.graphs import Graph
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.instruments import Verify
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import PASS_REGISTRY, PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.support.plugins import load_plugin
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.binary import Minimum
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.norm import BatchNorm
from xcompile.dialects.nn.unary import Relu

EXAMPLES = Path(__file__).parents[2] / "examples" / "passes"
PASSES = {"bn-fold": "bn_fold", "relu6-detect": "relu6_detect", "dead-op": "dead_op"}


@pytest.fixture(autouse=True)
def loaded() -> Iterator[None]:
    for file in PASSES.values():
        load_plugin(EXAMPLES / f"{file}.py")
    with context():
        yield


def build(blocks: int) -> Module:
    """Blocks of convolution, batch normalization, ReLU6 and an op that nobody uses."""
    random = np.random.default_rng(1)
    g = Graph((1, 2, 3, 3))
    x = g.inputs[0]
    w = g.const(random.standard_normal((2, 2, 1, 1)))
    one, six = g.const(np.ones(2)), g.const(6)
    for _ in range(blocks):
        y = g.make(Conv, x=x, w=w, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1))
        y = g.make(BatchNorm, x=y, scale=one, bias=one, mean=one, variance=one)
        x = g.make(Minimum, a=g.make(Relu, x=y), b=six)
        g.make(Relu, x=x)
    return g.done(x)


def test_the_pass_of_the_page_is_a_whole_file(tmp_path: Path) -> None:
    page = (EXAMPLES.parents[1] / "docs" / "writing_a_pass.md").read_text(encoding="utf-8")
    file = tmp_path / "relu6_as_clip.py"
    file.write_text(page.split("```python\n")[1].split("```")[0], encoding="utf-8")
    load_plugin(file)
    module = build(2)
    run(module, "relu6-as-clip")
    assert (count(module, "clip"), count(module, "minimum")) == (2, 0)


def run(module: Module, pipeline: str) -> None:
    state = PassContext(targets()["x86-avx2"], instruments=[Verify(each=True)])
    run_pipeline(module, parse_pipeline(pipeline, {}), state)


def count(module: Module, name: str) -> int:
    return module.text().count(f'"nn.{name}"(')


@pytest.mark.parametrize(
    ("name", "gone", "left"),
    [("bn-fold", "batch_norm", 0), ("relu6-detect", "minimum", 0), ("dead-op", "relu", 3)],
)
def test_an_example_keeps_what_the_model_computes(name: str, gone: str, left: int) -> None:
    module = build(3)
    x = np.random.default_rng(2).standard_normal((1, 2, 3, 3)).astype(np.float32)
    before = interpret(module, [x])[0]
    run(module, name)
    assert count(module, gone) == left
    np.testing.assert_allclose(interpret(module, [x])[0], before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", PASSES)
def test_a_second_run_changes_nothing(name: str) -> None:
    module = build(3)
    run(module, name)
    once = module.text()
    run(module, name)
    assert module.text() == once


@pytest.mark.parametrize("name", PASSES)
def test_a_thousand_ops_take_less_than_a_second(name: str) -> None:
    module = build(200)
    started = time.process_time()
    run_pipeline(module, parse_pipeline(name, {}), PassContext(targets()["x86-avx2"]))
    assert time.process_time() - started < 1


def test_an_example_is_inserted_and_others_removed_by_name() -> None:
    edits = "+after(nn-canonicalize):relu6-detect{limit=1};-nn-fuse-gelu"
    made = parse_pipeline("@graph", PIPELINES).edited(edits, PIPELINES)
    assert "nn-canonicalize,relu6-detect{limit=1.0},cse" in str(made)
    assert "nn-fuse-gelu" not in str(made)


@pytest.mark.parametrize("file", PASSES.values())
def test_an_example_is_short(file: str) -> None:
    code = [line for line in (EXAMPLES / f"{file}.py").read_text().splitlines() if line.strip()]
    start = next(i for i, line in enumerate(code) if line.startswith(("class", "@")))
    assert len(code) - start <= 30


def test_the_examples_are_registered_by_loading() -> None:
    assert set(PASSES) <= set(PASS_REGISTRY.names())
