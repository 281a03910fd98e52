"""ONNX nodes as AArch64 code in qemu: a model of many kinds of them always, the official suite with `-m full`."""

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network
from tests.e2e.onnx_compiled import LEDGER, wrong
from tests.e2e.onnx_node_cases import NodeCase, node_cases
from tests.e2e.onnx_reference import difference, read_ledger, short
from tests.foreign.harness import machine_of
from tests.foreign.models import run_compiled
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.registry import targets
from xcompile.frontends.onnx.backend import specialized

SHAPE = (5, 7, 9)


def many_kinds_of_nodes() -> onnx.ModelProto:
    """Nodes of elementwise, movement, row, scan, scatter, sort and recurrent kernels that all read x."""
    n = Network()

    def integers(*values: object) -> str:
        return n.constant(np.array(values, np.int64))

    steps, positive = n("Transpose", "x", perm=[1, 0, 2]), n("Abs", "x")
    image, wide = n("Unsqueeze", "x", integers(0)), n("Mul", "x", n.constant(np.float32(1e5)))
    lstm = (n.weight(2, 80, 9), n.weight(2, 80, 20), n.weight(2, 160))
    gru = (n.weight(1, 39, 9), n.weight(1, 39, 13))
    pads, scales = integers(0, 2, 1, 0, 3, 2), n.constant(np.float32([1, 1, 2, 3]))
    floats = [
        *n("LSTM", steps, *lstm, outputs=3, hidden_size=20, direction="bidirectional"),
        *n("GRU", steps, *gru, outputs=2, hidden_size=13, linear_before_reset=1),
        *(n(op, "x") for op in ("Erf", "Sin", "Tanh", "Exp", "Mish", "Atan", "Round", "Trilu")),
        n("Log", positive),
        n("Pow", positive, "x"),
        n("Mod", "x", n.weight(9), fmod=1),
        n("Softmax", "x", axis=1),
        n("LogSoftmax", "x", axis=2),
        n("LayerNormalization", "x", n.weight(9)),
        n("ReduceLogSumExp", "x", integers(1)),
        n("CumSum", "x", n.constant(np.int64(1)), reverse=1),
        n("ScatterElements", "x", integers([[2, 0, 1]]), n.weight(1, 1, 3), axis=1),
        n("ScatterND", "x", integers([1], [3]), n.weight(2, 7, 9), reduction="add"),
        n("GatherND", "x", integers([2, 0], [1, 1])),
        n("TopK", "x", integers(3), outputs=2)[0],
        n("Resize", image, "", scales, mode="cubic"),
        n("ConvTranspose", image, n.weight(5, 6, 3, 3), strides=[2, 2]),
        n("Pad", "x", pads, mode="reflect"),
        n("Cast", n("Cast", "x", to=10), to=1),
        n("Where", n("Greater", "x", n.weight(9)), "x", n.weight(1)),
        n("Einsum", "x", n.weight(9, 4), equation="abc,cd->dab"),
    ]
    places = [n("ArgMax", "x", axis=1), n("NonZero", n("Relu", "x"))]
    numbers = [n("Cast", wide, to=6), n("QuantizeLinear", "x", n.constant(np.float32(0.02)))]
    outputs = dict.fromkeys(floats, ("FLOAT", None))
    outputs |= dict.fromkeys(places, ("INT64", None))
    outputs |= dict(zip(numbers, (("INT32", None), ("UINT8", None)), strict=True))
    return n.model({"x": ("FLOAT", SHAPE)}, outputs, opset=18)


def test_many_kinds_of_nodes_give_the_bits_of_x86() -> None:
    """But for sums of products, which are blocked by what the registers hold."""
    model = many_kinds_of_nodes()
    (products,) = (node.output[0] for node in model.graph.node if node.op_type == "ConvTranspose")
    feeds = {"x": np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)}
    here = xcompile.compile(model, "x86-avx2", pool=shared_pool()).run(feeds)
    there = run_compiled(xcompile.compile(model, "arm-neon", pool=shared_pool()), feeds)
    assert list(there) == list(here)
    np.testing.assert_allclose(there[products], here[products], rtol=2e-6, atol=2e-6)
    for name in here.keys() - {products}:
        assert there[name].tobytes() == here[name].tobytes(), name


def compiled_case(case: NodeCase) -> CompiledModel:
    """The case for NEON, with those of its inputs as constants that a compiled model must know.

    Raises:
        CompileError: it is not supported.
    """
    refusal: CompileError | None = None
    for model in specialized(case.model, [np.asarray(x) for x in case.data[0][0]]):
        try:
            return xcompile.compile(model, "arm-neon", threads=1, pool=shared_pool())
        except CompileError as error:
            refusal = error
    assert refusal is not None
    raise refusal


def failure(case: NodeCase) -> str | None:
    """Why a case is not right; None when it is."""
    names = [info.name for info in case.model.graph.input]
    inputs, expected = case.data[0]
    try:
        results = run_compiled(
            compiled_case(case), dict(zip(names, map(np.asarray, inputs), strict=True))
        )
    except CompileError as error:
        return short(error)
    pairs = zip(results.values(), expected, strict=True)
    problems = (difference(actual, np.asarray(wanted), case) for actual, wanted in pairs)
    return next((problem for problem in problems if problem), None)


@pytest.mark.full
@pytest.mark.parametrize("part", range(20))
def test_all_node_cases_with_arrays_are_right(part: int) -> None:
    machine_of(targets()["arm-neon"])
    ledger = read_ledger(LEDGER)
    cases = [
        case
        for case in node_cases()[part::20]
        if case.name not in ledger
        and all(
            isinstance(x, np.ndarray | np.generic) for x in (*case.data[0][0], *case.data[0][1])
        )
    ]
    found = {case.name: failure(case) for case in cases}
    assert wrong({name: why for name, why in found.items() if why}) == {}
    assert sum(why is None for why in found.values()) > 0.95 * len(cases)
