"""The default pipelines: what they are, and that any pass may be taken away."""

import numpy as np
import pytest

from tests.e2e.networks import residual_network
from xcompile import passes as _passes
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import Pipeline, parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import PIPELINES, default_pipeline
from xcompile.compiler.target.registry import targets
from xcompile.dialects.kernel_interpreter import interpret_kernels
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx

assert _passes.PASSES  # importing them registers them

GOLDEN = {
    "cpu": """
        nn-fold-constants nn-canonicalize cse nn-sink-transposes nn-decompose-einsum nn-fuse-gelu nn-fuse-hard-swish
        nn-fuse-softmax
        nn-decompose-attention nn-fuse-attention nn-fuse-layer-norm nn-fuse-rms-norm nn-fuse-pad
        nn-fuse-channel-shuffle nn-pool-to-mean nn-conv-bias
        nn-fold-batch-norm fixpoint{max=4}(nn-conv-bias,nn-fold-scale) nn-decompose-batch-norm
        nn-decompose-instance-norm nn-decompose-group-norm nn-decompose-mean-variance-norm nn-decompose-lp-norm
        nn-decompose-hardmax nn-decompose-lrn nn-project-recurrent-inputs nn-split-reduction nn-rows-to-images
        nn-fold-constants
        nn-shuffle-quantized-transpose nn-move-quantize nn-fold-constants nn-tabulate-bytes nn-lower-quantized
        nn-fuse-pad nn-match-signs
        nn-expand-zero-points
        nn-widen-integer-products nn-fuse-blocked-weights
        nn-decompose-quantize nn-fold-constants nn-canonicalize cse dce
        nn-pack-tables nn-decompose-split nn-shuffle-conv-transpose nn-assign-layout nn-choose-winograd
        nn-repeat-widening kernel-form
    """,
}
CPU_ONLY = ("nn-pack-tables", "nn-shuffle-conv-transpose", "nn-choose-winograd")
"""Passes for kernels that only CPUs have."""
NAMES = sorted({name for name in GOLDEN["cpu"].split() if "(" not in name} | {"nn-fold-scale"})
REQUIRED = {"kernel-form"}
"""The one pass that is no choice: it leads from graph to kernels."""


def pipeline(text: str, edits: str = "") -> Pipeline:
    made = parse_pipeline(text, PIPELINES)
    return made.edited(edits, PIPELINES) if edits else made


@pytest.mark.parametrize("name", ["cpu", *(n for n in targets() if n != "cpu")])
def test_a_target_has_this_list_of_passes(name: str) -> None:
    text = str(pipeline(default_pipeline(targets()[name])))
    left_out = CPU_ONLY if name == "cuda" else ()
    assert text == ",".join(each for each in GOLDEN["cpu"].split() if each not in left_out)


@pytest.mark.parametrize("name", NAMES)
def test_removing_a_pass_removes_nothing_else(name: str) -> None:
    before = str(pipeline("@cpu"))
    after = str(pipeline("@cpu", f"-{name}"))
    kept = [each for each in before.replace("(", ",(,").replace(")", ",),").split(",") if each]
    left = [each for each in after.replace("(", ",(,").replace(")", ",),").split(",") if each]
    assert left == [each for each in kept if each != name]


@pytest.mark.parametrize("name", NAMES)
def test_inserting_a_pass_changes_no_other(name: str) -> None:
    inserted = "nn-assign-layout{block=77}"
    after = str(pipeline("@cpu", f"+after({name}):{inserted}"))
    assert after.replace(f",{inserted}", "") == str(pipeline("@cpu"))
    assert inserted in after


IMAGE = np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)
MODEL = residual_network()


@pytest.fixture(scope="module")
def wanted() -> np.ndarray:
    module = import_onnx(MODEL)
    with module.context, ir.Location.unknown():
        return interpret(module, [IMAGE])[0]


@pytest.mark.parametrize("name", sorted(set(NAMES) - REQUIRED))
def test_a_model_computes_the_same_without_any_one_pass(name: str, wanted: np.ndarray) -> None:
    module = import_onnx(MODEL)
    with module.context, ir.Location.unknown():
        refine_types(module, module.input_shapes())
        run_pipeline(module, pipeline("@cpu", f"-{name}"), PassContext(targets()["x86-avx2"]))
        found = interpret_kernels(module, [IMAGE])[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
