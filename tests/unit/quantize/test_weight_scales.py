"""Scales of float16 in nn-quantize-weights: where they hold all scales of a constant, and only there."""

import numpy as np
import pytest

from xcompile import passes as _passes
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.rewrite import walk
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.ir.text import parse_module
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.quantize import Dequantize

assert _passes.PASSES  # importing them registers them

RANDOM = np.random.default_rng(5).uniform(-1, 1, (64, 16)).astype(np.float32)


def quantized(weights: np.ndarray, options: str) -> tuple[np.ndarray, np.ndarray]:
    """The scales, and what became of the weights."""
    rows = ", ".join(str([float(v) for v in row]) for row in weights)
    text = f"""
        func.func @main(%x: tensor<?x64xf32>) -> tensor<?x16xf32> {{
          %w = "nn.const"() {{value = dense<[{rows}]> : tensor<64x16xf32>}} : () -> tensor<64x16xf32>
          %0 = "nn.matmul"(%x, %w) : (tensor<?x64xf32>, tensor<64x16xf32>) -> tensor<?x16xf32>
          return %0 : tensor<?x16xf32>
        }}"""
    passes = parse_pipeline(f"nn-quantize-weights{{scale=f16 {options}}}", PIPELINES)
    with context():
        module = parse_module(text)
        run_pipeline(module, passes, PassContext(targets()["x86-avx2"]))
        (op,) = [v for each in walk(module) if isinstance(v := view(each), Dequantize)]
        scales = const_of(op.scale)
        assert scales is not None
        made = interpret(module, [np.eye(64, dtype=np.float32)])[0]
        return np.array(scales.array(module.weights)), made


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    ("size", "kind"), [(1e8, "f4"), (1e5, "f2"), (1.0, "f2"), (1e-4, "f4"), (0.0, "f2")]
)
def test_a_channel_that_float16_has_no_scale_for_keeps_them_in_float32(
    bits: int, size: float, kind: str
) -> None:
    weights = RANDOM * np.array([1, size, *[1] * 14], np.float32)
    scales, got = quantized(weights, f"bits={bits}")
    assert scales.dtype == kind
    steps = 0.7 / 127 if bits == 8 else 1.2 / 7
    assert (np.abs(got - weights).max(axis=0) <= steps * np.abs(weights).max(axis=0)).all()


def test_codes_are_those_of_the_scales_that_are_stored() -> None:
    scales, got = quantized(RANDOM, "bits=8 refine=false")
    assert scales.dtype == np.float16
    assert (np.abs(got - RANDOM) <= 0.5001 * scales.astype(np.float32)).all()
