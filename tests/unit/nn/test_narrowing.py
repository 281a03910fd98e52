"""Which ops are narrow: the fewest casts of all choices, and of these the one with the most narrow ops."""

import itertools

import numpy as np
import pytest

from tests.property.random_narrow import Graph
from xcompile import passes as _passes
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.passes.common.narrowing import WIDE, Flow, count_casts, narrowed

assert _passes.PASSES


def random_flows(seed: int) -> tuple[list[Flow], set[int], set[int], int]:
    """A graph of up to 9 ops, each of which reads values of earlier ones and of the outside."""
    random = np.random.default_rng(seed)
    count = int(random.integers(2, 10))
    readers: dict[object, list[object]] = {WIDE: [], **{op: [] for op in range(count)}}
    for op in range(count):
        for maker in random.choice([WIDE, *range(op)], size=2, replace=True):
            readers[maker if maker == WIDE else int(maker)].append(op)
    for op in range(count):
        if not readers[op] or random.random() < 0.2:
            readers[op].append(WIDE)
    flows = [Flow(maker, tuple(dict.fromkeys(found))) for maker, found in readers.items() if found]
    kinds = random.choice(["narrow", "wide", "free"], count, p=[0.3, 0.2, 0.5])
    narrow = {op for op in range(count) if kinds[op] == "narrow"}
    wide = {op for op in range(count) if kinds[op] == "wide"}
    return flows, narrow, wide, count


@pytest.mark.parametrize("seed", range(150))
def test_no_other_choice_has_fewer_casts_or_as_few_and_more_narrow_ops(seed: int) -> None:
    flows, narrow, wide, count = random_flows(seed)
    free = sorted(set(range(count)) - narrow - wide)
    choices = [
        narrow | set(chosen)
        for size in range(len(free) + 1)
        for chosen in itertools.combinations(free, size)
    ]
    best = min(choices, key=lambda choice: (count_casts(flows, choice), -len(choice)))
    found = narrowed(flows, narrow, wide)
    assert count_casts(flows, found) == count_casts(flows, best)
    assert found == best


def test_a_value_with_many_readers_is_cast_once() -> None:
    flows = [Flow(WIDE, (0, 1, 2)), Flow(0, (WIDE,)), Flow(1, (WIDE,)), Flow(2, (WIDE,))]
    assert narrowed(flows, {0, 1}, {2}) == {0, 1}
    assert count_casts(flows, {0, 1}) == 3


def casts(model: Graph, inputs: dict[str, tuple[int, ...]], *outputs: str) -> list[str]:
    """What is cast to, in order, when a model is narrowed."""
    module = import_onnx(model.model(inputs, *outputs))
    with module.context, ir.Location.unknown():
        refine_types(module, module.input_shapes())
        passes = parse_pipeline("@clean,nn-narrow-floats,nn-canonicalize,cse,dce", PIPELINES)
        run_pipeline(module, passes, PassContext(targets()["x86-avx2"]))
        block = module.main.regions[0].blocks[0]
        found = [o.operation for o in block.operations if o.operation.name == "nn.cast"]
        return [ir.StringAttr(o.attributes["to"]).value for o in found]


def test_a_residual_network_has_a_cast_at_each_end() -> None:
    g = Graph(0)
    x = g("Relu", g("Conv", "x", g.constant(g.whole(8, 3, 3, 3)), pads=[1, 1, 1, 1]))
    for _ in range(3):
        y = g("Relu", g("Conv", x, g.constant(g.whole(8, 8, 3, 3)), pads=[1, 1, 1, 1]))
        y = g("Conv", y, g.constant(g.whole(8, 8, 3, 3)), pads=[1, 1, 1, 1])
        x = g("Relu", g("Add", x, y))
    x = g("Flatten", g("GlobalAveragePool", x))
    assert casts(g, {"x": (1, 3, 8, 8)}, g("MatMul", x, g.constant(g.whole(8, 10)))) == [
        "bf16",
        "f32",
    ]


def test_a_transformer_layer_has_a_cast_at_each_end() -> None:
    g = Graph(0)

    def dense(x: str, rows: int, columns: int) -> str:
        return g(
            "Add", g("MatMul", x, g.constant(g.whole(rows, columns))), g.constant(g.whole(columns))
        )

    def heads(x: str) -> str:
        shaped = g("Reshape", dense(x, 16, 16), g.constant(np.int64([1, 6, 2, 8])))
        return g("Transpose", shaped, perm=[0, 2, 1, 3])

    def norm(x: str) -> str:
        scale, bias = (g.constant(g.whole(16)) for _ in range(2))
        return g("LayerNormalization", x, scale, bias)

    q, k, v = heads("x"), heads("x"), heads("x")
    scores = g("Softmax", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])))
    mixed = g("Transpose", g("MatMul", scores, v), perm=[0, 2, 1, 3])
    mixed = dense(g("Reshape", mixed, g.constant(np.int64([1, 6, 16]))), 16, 16)
    x = norm(g("Add", "x", mixed))
    y = dense(g("Tanh", dense(x, 16, 32)), 32, 16)
    assert casts(g, {"x": (1, 6, 16)}, norm(g("Add", x, y))) == ["bf16", "f32"]
