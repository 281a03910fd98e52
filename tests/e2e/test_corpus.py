"""Real models: as near to their computation in float64 as onnxruntime is to itself, for all sizes and threads, and the
comparison sees planted errors.

Needs the corpus (python -m bench.corpus); runs in the full tier.
"""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import xcompile
from bench import corpus
from bench.entries import ENTRIES
from tests.e2e.float64 import graphs, reference64
from tests.e2e.networks import reference

pytestmark = pytest.mark.full

WEIGHTED = ("Conv", "ConvTranspose", "MatMul", "Gemm", "LSTM", "GRU")
ONE_SIZE = ("ddddocr-det", "mlsd", *corpus.TOPOLOGIES)
"""Models whose inputs have one shape; their sizes 1, 2 and 3 are other values."""


def with_logits(model):
    """The model with what its last Softmax and Sigmoid nodes read as outputs too."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    producers = {name: node for node in model.graph.node for name in node.output}
    pending, seen = [o.name for o in model.graph.output], set()
    while pending:
        node = producers.get(pending.pop())
        if node is None or node.op_type in WEIGHTED or node.output[0] in seen:
            continue
        seen.add(node.output[0])
        pending += node.input
        if node.op_type in ("Softmax", "Sigmoid"):
            info = helper.make_tensor_value_info(node.input[0], TensorProto.FLOAT, None)
            changed.graph.output.append(info)
    return changed


def optimized(model, feeds):
    import onnxruntime

    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)


def distance(found, wanted):
    """The largest error over the largest value, for each output; of integers, whether they differ."""
    for f, w in zip(found, wanted, strict=True):
        assert f.shape == w.shape
    return [
        float(np.abs(f.astype(np.float64) - w).max() / max(np.abs(w).max(), 1e-30))
        if w.dtype.kind == "f"
        else float(not np.array_equal(f, w))
        for f, w in zip(found, wanted, strict=True)
    ]


def agrees(found, wanted, own):
    """Whether errors are at most 4 times onnxruntime's own, or 1e-5."""
    return all(
        error <= max(4 * noise, 1e-5)
        for error, noise in zip(distance(found, wanted), own, strict=True)
    )


def weights_in_order(graph):
    """The messages of the matrices and filters of a graph, as they are first read."""
    tensors = {i.name: i for i in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            tensors[node.output[0]] = node.attribute[0].t
    read = [n for node in graph.node if node.op_type in WEIGHTED for n in node.input]
    chosen = dict.fromkeys(n for n in read if n in tensors and len(tensors[n].dims) >= 2)
    return [tensors[name] for name in chosen]


@pytest.fixture(scope="module", params=list(ENTRIES))
def case(request):
    model = with_logits(onnx.load(corpus.model(request.param)))
    return ENTRIES[request.param], model, xcompile.compile(model)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_model_agrees_at_three_sizes_with_one_artifact(case, size):
    make, model, compiled = case
    feeds = make(size)
    wanted, plain = reference64(model, feeds), reference(model, feeds)
    assert max(distance(plain, wanted)) < 1e-3
    own = distance(optimized(model, feeds), plain)
    assert agrees(list(compiled.run(feeds).values()), wanted, own)


@pytest.mark.parametrize("name", ENTRIES)
def test_inputs_have_three_sizes_where_the_model_allows(name):
    shapes = {tuple(x.shape for x in ENTRIES[name](size).values()) for size in (1, 2, 3)}
    assert len(shapes) == (1 if name in ONE_SIZE else 3)


def test_plcmos_takes_one_recording_where_the_model_states_it():
    """A Squeeze without axes gives its output another rank then."""
    model = onnx.load(corpus.model("plcmos"))
    for info in model.graph.input:
        info.type.tensor_type.shape.dim[0].dim_value = 1
    feeds = {name: array[:1] for name, array in ENTRIES["plcmos"](1).items()}
    own = distance(optimized(model, feeds), reference(model, feeds))
    found = list(xcompile.compile(model).run(feeds).values())
    assert [y.shape for y in found] == [()]
    assert agrees(found, reference64(model, feeds), own)


def test_a_model_without_further_outputs_gives_the_same(case, request):
    make, model, compiled = case
    name = request.node.callspec.params["case"]
    feeds = make(1)
    own = distance(optimized(model, feeds), reference(model, feeds))
    alone = list(xcompile.compile(corpus.model(name)).run(feeds).values())
    assert agrees(alone, list(compiled.run(feeds).values())[: len(alone)], own[: len(alone)])


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
    feeds = make(2)
    own = distance(optimized(model, feeds), reference(model, feeds))
    planted = onnx.ModelProto()
    planted.CopyFrom(model)
    weighted = [w for graph in graphs(planted.graph) if (w := weights_in_order(graph))]
    assert weighted
    for weights in weighted:  # one in each branch, whichever is taken
        position = {"early": 0, "middle": len(weights) // 2, "late": len(weights) - 1}[place]
        array = numpy_helper.to_array(weights[position]) * np.float32(1.01)
        weights[position].CopyFrom(numpy_helper.from_array(array, weights[position].name))
    found = list(compiled.run(feeds).values())
    assert not agrees(found, reference64(planted, feeds), own)
    assert agrees(found, reference64(model, feeds), own)


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
    families = [
        compiled.artifact.kernels[s.symbol].family for s in compiled.artifact.program.launches
    ]
    assert families.count("map") <= 2


@pytest.mark.parametrize("name", ["squeezenet", "resnet50"])
def test_the_arena_is_close_to_what_is_live_at_once(name):
    from bench.memory import kernel_level, live_bound

    compiled = xcompile.compile(corpus.model(name))
    assert compiled.artifact.program.arena <= 1.10 * live_bound(kernel_level(corpus.model(name)))


def test_ending_elementwise_ops_leave_no_kernels_of_their_own():
    compiled = xcompile.compile(corpus.model("resnet50"))
    families = [
        compiled.artifact.kernels[s.symbol].family for s in compiled.artifact.program.launches
    ]
    assert not {"map", "fallback"} & set(families)


def test_sharing_memory_saves_four_fifths_of_resnet50():
    from bench.memory import bytes_of, kernel_level
    from xcompile.compiler.ir.op import view
    from xcompile.dialects.kernel import Launch

    module = kernel_level(corpus.model("resnet50"))
    launches = [view(o) for o in module.main.regions[0].blocks[0].operations]
    alone = sum(bytes_of(r) for op in launches if isinstance(op, Launch) for r in op.results)
    assert alone >= 5 * xcompile.compile(corpus.model("resnet50")).artifact.program.arena


@pytest.mark.parametrize("name", ["squeezenet", "resnet50", "minilm", "ddddocr-rec"])
def test_models_compiled_for_1_2_and_7_threads_give_the_same_bits(name):
    feeds = ENTRIES[name](1)
    found = [
        list(xcompile.compile(corpus.model(name), threads=t).run(feeds).values()) for t in (1, 2, 7)
    ]
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
