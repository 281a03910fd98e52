"""Real models of 8-bit integers beside onnxruntime, step by step: every step starts from what onnxruntime found.

Followed from end to end such models amplify rounding: onnxruntime with its optimizations and without them differs in
a quarter of the integers. So the tensors between steps are cut: each is an output, compared, and an input, given.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from bench import corpus
from bench.entries import QUANTIZED
from xcompile.compiler.api import compile as compile_model

pytestmark = pytest.mark.full


def session(model, optimized):
    """A session of exact products; `optimized` with all of onnxruntime's fusions."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options)


def run(model, feeds, optimized):
    """All outputs by name."""
    opened = session(model, optimized)
    return dict(zip([o.name for o in opened.get_outputs()], opened.run(None, feeds), strict=True))


def exposed(model, names):
    """The model with more outputs."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for name in names:
        changed.graph.output.append(onnx.ValueInfoProto(name=name))
    return changed


def cut(model, values):
    """The model reading these tensors from inputs of their own, `…_given`, and what to give there."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for node in changed.graph.node:
        for i, name in enumerate(node.input):
            if name in values:
                node.input[i] = f"{name}_given"
    feeds = {f"{name}_given": array for name, array in values.items()}
    for name, array in feeds.items():
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        changed.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
    return changed, feeds


def outputs_of(model, *ops):
    return [name for node in model.graph.node if node.op_type in ops for name in node.output]


def test_every_quantized_tensor_is_that_of_onnxruntime_or_a_step_beside_it():
    model = onnx.load(corpus.model("smart-turn"))
    feeds = QUANTIZED["smart-turn"](1)
    names = outputs_of(model, "QuantizeLinear")
    assert len(names) == 78
    shown = exposed(model, names)
    found = run(shown, feeds, optimized=True)
    forced, given = cut(shown, {name: found[name] for name in names})
    got = compile_model(forced, threads=2).run({**feeds, **given})
    for name in names:
        steps = np.abs(got[name].astype(np.int64) - found[name])
        assert steps.max() <= 1, name
        assert np.count_nonzero(steps) <= 0.001 * steps.size, name


@pytest.mark.parametrize("name", ["ddddocr-old", "t5-encoder", "t5-decoder"])
def test_every_integer_product_is_that_of_onnxruntime(name):
    model = onnx.load(corpus.model(name))
    feeds = QUANTIZED[name](1)
    inner = outputs_of(model, "DynamicQuantizeLinear")
    sums = outputs_of(model, "ConvInteger", "MatMulInteger")
    assert len(inner) > 60
    assert len(sums) > 20
    shown = exposed(model, [*inner, *sums])
    found = run(shown, feeds, optimized=False)
    forced, given = cut(shown, {name: found[name] for name in inner})
    got = compile_model(forced, threads=2).run({**feeds, **given})
    for each in sums:
        np.testing.assert_array_equal(got[each], found[each], err_msg=each)
