"""The default pipeline: what it is, and that each of its passes may be left out by name."""

import numpy as np
import pytest

import xcompile
from tests.e2e.networks import residual_network
from tests.numerics.test_levels import attention_block, attention_inputs, images
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.pipeline import Fixpoint, parse_pipeline
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.support.options import Options
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx


def removable():
    names = []
    for each in parse_pipeline("@cpu", PIPELINES):
        names += [p.NAME for p in (each.passes if isinstance(each, Fixpoint) else (each,))]
    return [
        n for n in dict.fromkeys(names) if n != "kernel-form"
    ]  # which makes the kernels themselves


@pytest.fixture(scope="module")
def pool():
    with worker_pool(Options()) as started:
        yield started


@pytest.fixture(scope="module")
def wanted():
    found = []
    for model, inputs in (
        (residual_network(), images(2, 0)),
        (attention_block(), attention_inputs(2, 9)),
    ):
        module = import_onnx(model)
        with module.context, ir.Location.unknown():
            found.append((model, inputs, interpret(module, inputs)[0]))
    return found


@pytest.mark.parametrize("name", removable())
def test_a_pass_may_be_left_out_and_the_result_stays(name, pool, wanted):
    for model, inputs, expected in wanted:
        compiled = xcompile.compile(model, target="x86-avx2", passes=f"-{name}", pool=pool)
        assert name not in compiled.artifact.manifest.provenance["pipeline"].replace(
            "{", ","
        ).split(",")
        found = next(iter(compiled.run(inputs).values()))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_without_fusion_every_op_is_a_kernel_and_the_result_stays(pool, wanted):
    for model, inputs, expected in wanted:
        fused = xcompile.compile(model, target="x86-avx2", pool=pool)
        single = xcompile.compile(
            model, target="x86-avx2", passes="kernel-form{fuse=false}", pool=pool
        )
        assert len(single.artifact.program.launches) > len(fused.artifact.program.launches)
        found = next(iter(single.run(inputs).values()))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_memory_that_is_never_used_twice_gives_the_same_bits(pool, wanted, monkeypatch):
    from xcompile.compiler.codegen.program import memory, storage

    def apart(lives):
        at, offsets = 0, []
        for life in lives:
            offsets.append(at)
            at = at + (life.size + 63) // 64 * 64
        return storage.Layout(offsets, at)

    larger = []
    for model, inputs, _ in wanted:
        shared = xcompile.compile(model, target="x86-avx2", pool=pool, options={"cache": None})
        with monkeypatch.context() as patch:
            patch.setattr(memory, "place", apart)
            alone = xcompile.compile(model, target="x86-avx2", pool=pool, options={"cache": None})
        sizes = [np.shape(x) for x in inputs]
        needed = [m.executable.required_bytes(sizes) for m in (shared, alone)]
        larger.append(needed[1] > needed[0])
        for a, b in zip(shared.run(inputs).values(), alone.run(inputs).values(), strict=True):
            np.testing.assert_array_equal(a, b)
    assert any(larger)
