"""The passes on quantized models, one by one: what the model computes before and after, by the reference."""

import numpy as np
import pytest

from tests.property.random_qdq import model
from xcompile import passes
from xcompile.compiler.ir.instruments import Verify
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

assert passes.PASSES

STEPS = (
    ("nn-fold-constants,nn-canonicalize,cse,nn-pool-to-mean", True),
    ("nn-move-quantize", True),
    ("nn-fold-constants", True),
    ("nn-lower-quantized", False),
    ("nn-match-signs", True),
    ("nn-expand-zero-points", True),
    ("nn-fold-constants,cse,dce", True),
    ("nn-widen-integer-products", True),
    ("nn-decompose-quantize", True),
)
"""Passes, and whether they give the same to the bit; else an element may be one step off."""


def check(seed: int, target: str) -> set[str]:
    """Run the passes one after the other; the ops that there were at any time."""
    drawn = model(seed)
    module = import_onnx(drawn.proto)
    found: set[str] = set()
    with module.context, ir.Location.unknown():
        before = interpret(module, [drawn.x])[0]
        for text, exact in STEPS:
            state = PassContext(targets()[target], instruments=[Verify(each=True)])
            run_pipeline(module, parse_pipeline(text, {}), state)
            after = interpret(module, [drawn.x])[0]
            steps = np.rint((after.astype(np.float64) - before) / drawn.scale)
            assert np.abs(steps).max() <= (0 if exact else 1), text
            if exact:
                np.testing.assert_array_equal(after, before, err_msg=text)
            before = after
            found |= {o.operation.name for o in module.main.regions[0].blocks[0].operations}
    return found


@pytest.mark.parametrize("target", ["x86-avx2", "arm-dotprod"])
@pytest.mark.parametrize("seed", range(6))
def test_each_pass_leaves_what_a_quantized_model_computes(seed: int, target: str) -> None:
    assert "nn.conv_integer" in check(seed, target)


@pytest.mark.full
@pytest.mark.parametrize("target", ["x86-avx2", "arm-dotprod"])
@pytest.mark.parametrize("seed", range(6, 100))
def test_each_pass_leaves_what_many_quantized_models_compute(seed: int, target: str) -> None:
    check(seed, target)
