"""Real models: as near to onnxruntime as it is to itself, for all sizes and threads, and the comparison sees planted
errors.

Needs the corpus (python -m bench.corpus); runs in the full tier.
"""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import xcompile
from bench import corpus, inputs
from tests.e2e.networks import reference

pytestmark = pytest.mark.full


def image(name):
    return lambda size: {name: inputs.smooth_images((1, 3, 224, 224), size)}


def tokens(size):
    batch, length = {1: (1, 128), 2: (2, 17), 3: (3, 40)}[size]
    ids = inputs.token_ids((batch, length), 30000, size).astype(np.int64)
    mask = np.ones((batch, length), np.int64)
    mask[-1, length // 2 :] = 0
    return {"input_ids": ids, "attention_mask": mask}


MODELS = {"squeezenet": image("data_0"), "resnet50": image("gpu_0/data_0"), "minilm": tokens}


def with_logits(model):
    """The model with what its last Softmax reads as an output too, if it ends in one."""
    outputs = {o.name for o in model.graph.output}
    for node in model.graph.node:
        if node.op_type == "Softmax" and outputs & set(node.output):
            model.graph.output.append(
                onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None)
            )
    return model


def optimized(model, feeds):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def distance(found, wanted):
    """The largest error over the largest value, for each floating output."""
    return [
        float(np.abs(f.astype(np.float64) - w).max() / max(np.abs(w).max(), 1e-30))
        for f, w in zip(found, wanted, strict=True)
        if w.dtype.kind == "f"
    ]


def agrees(found, wanted, own):
    """Whether errors are at most 4 times onnxruntime's own, or 1e-5."""
    return all(
        error <= max(4 * noise, 1e-5)
        for error, noise in zip(distance(found, wanted), own, strict=True)
    )


@pytest.fixture(scope="module", params=list(MODELS))
def case(request):
    model = with_logits(onnx.load(corpus.model(request.param)))
    return MODELS[request.param], model, xcompile.compile(model)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_model_agrees_at_three_sizes_with_one_artifact(case, size):
    make, model, compiled = case
    feeds = make(size)
    wanted = reference(model, feeds)
    own = distance(optimized(model, feeds), wanted)
    assert agrees(list(compiled.run(feeds).values()), wanted, own)


def test_results_are_the_same_bits_for_1_2_and_7_threads(case):
    make, _, compiled = case
    feeds = make(1)
    found = [list(compiled.artifact.load(threads=t).run(feeds).values()) for t in (1, 2, 7)]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("place", ["early", "middle", "late"])
def test_the_comparison_sees_one_percent_in_one_weight(case, place):
    make, model, compiled = case
    feeds = make(1)
    wanted = reference(model, feeds)
    own = distance(optimized(model, feeds), wanted)
    planted = onnx.ModelProto()
    planted.CopyFrom(model)
    read = {
        name
        for node in planted.graph.node
        if node.op_type in ("Conv", "MatMul", "Gemm")
        for name in node.input
    }
    order = [name for node in planted.graph.node for name in node.input]
    weights = [i for i in planted.graph.initializer if i.name in read and len(i.dims) >= 2]
    weights.sort(key=lambda i: order.index(i.name))
    chosen = weights[{"early": 0, "middle": len(weights) // 2, "late": len(weights) - 1}[place]]
    array = numpy_helper.to_array(chosen) * np.float32(1.01)
    chosen.CopyFrom(numpy_helper.from_array(array, chosen.name))
    changed = reference(planted, feeds)
    assert not agrees(list(compiled.run(feeds).values()), changed, own)
    assert agrees(list(compiled.run(feeds).values()), wanted, own)


def test_a_poisoned_arena_changes_nothing(case):
    make, _, compiled = case
    feeds = make(1)
    for a, b in zip(
        compiled.artifact.load(poison=True).run(feeds).values(),
        compiled.run(feeds).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["squeezenet", "resnet50"])
def test_convolutions_need_at_most_two_layout_conversions(name):
    compiled = xcompile.compile(corpus.model(name))
    families = [compiled.artifact.kernels[s.symbol].family for s in compiled.artifact.program.steps]
    assert families.count("map") <= 2


@pytest.mark.parametrize("name", ["squeezenet", "resnet50"])
def test_the_arena_is_close_to_what_is_live_at_once(name):
    from bench.memory import kernel_level, live_bound

    compiled = xcompile.compile(corpus.model(name))
    assert compiled.artifact.program.arena <= 1.15 * live_bound(kernel_level(corpus.model(name)))


def test_ending_elementwise_ops_leave_no_kernels_of_their_own():
    compiled = xcompile.compile(corpus.model("resnet50"))
    families = [compiled.artifact.kernels[s.symbol].family for s in compiled.artifact.program.steps]
    assert not {"map", "fallback"} & set(families)


def test_sharing_memory_saves_four_fifths_of_resnet50():
    from bench.memory import bytes_of, kernel_level
    from xcompile.compiler.ir.op import view
    from xcompile.dialects.kernel import Launch

    module = kernel_level(corpus.model("resnet50"))
    launches = [view(o) for o in module.main.regions[0].blocks[0].operations]
    alone = sum(bytes_of(r) for op in launches if isinstance(op, Launch) for r in op.results)
    assert alone >= 5 * xcompile.compile(corpus.model("resnet50")).artifact.program.arena


@pytest.mark.parametrize("name", list(MODELS))
def test_models_compiled_for_1_2_and_7_threads_give_the_same_bits(name):
    feeds = MODELS[name](1)
    found = [
        list(xcompile.compile(corpus.model(name), threads=t).run(feeds).values()) for t in (1, 2, 7)
    ]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
