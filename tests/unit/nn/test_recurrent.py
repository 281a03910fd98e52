"""Recurrent layers: against onnxruntime over their options, and values worked out by hand."""

import itertools

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from tests.unit.frontends.onnx_models import model
from tests.unit.nn.onnx_node import f32, run
from xcompile.compiler.support.errors import CompileError

STEPS, BATCH, INPUTS, HIDDEN = 5, 3, 2, 4
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def operands(op, directions, *, lengths, states, peephole=False):
    """Seeded inputs of a layer in ONNX's order."""
    generator = np.random.default_rng(3)
    rows = GATES[op] * HIDDEN

    def some(*shape):
        return generator.standard_normal(shape).astype(np.float32)

    found = [
        some(STEPS, BATCH, INPUTS),
        some(directions, rows, INPUTS),
        some(directions, rows, HIDDEN),
        some(directions, 2 * rows),
        np.array([5, 2, 4], np.int32) if lengths else None,
        some(directions, BATCH, HIDDEN) if states else None,
    ]
    if op == "LSTM":
        found.append(some(directions, BATCH, HIDDEN) if states else None)
        found.append(some(directions, 3 * HIDDEN) if peephole else None)
    return found


def onnxruntime_results(op, inputs, outputs, attributes):
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    given = {n: a for n, a in zip(names, inputs, strict=True) if n}
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in given.items()}
    node = helper.make_node(op, names, results, **attributes)
    proto = model([node], {n: a.shape for n, a in given.items()}, results, opset=14, dtypes=kinds)
    return onnxruntime.InferenceSession(proto.SerializeToString()).run(None, given)


CASES = [
    ("RNN", {}),
    ("RNN", {"activations": ["Relu"], "clip": 0.7}),
    ("GRU", {}),
    ("GRU", {"clip": 0.5}),
    ("GRU", {"linear_before_reset": 1}),
    ("GRU", {"activations": ["HardSigmoid", "Softsign"], "activation_alpha": [0.3], "activation_beta": [0.4]}),
    ("LSTM", {}),
    ("LSTM", {"input_forget": 1}),
    (
        "LSTM",
        {
            "activations": ["Sigmoid", "ScaledTanh", "LeakyRelu"],
            "activation_alpha": [1.5, 0.1],
            "activation_beta": [0.5],
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "attributes"), CASES)
def test_layers_agree_with_onnxruntime(op, attributes, direction):
    directions = 2 if direction == "bidirectional" else 1
    attributes = {"hidden_size": HIDDEN, "direction": direction, **attributes}
    for key in ("activations", "activation_alpha", "activation_beta"):
        if key in attributes:
            attributes[key] = attributes[key] * directions
    outputs = 3 if op == "LSTM" else 2
    for lengths, states in itertools.product((False, True), repeat=2):
        inputs = operands(op, directions, lengths=lengths, states=states, peephole=states)
        expected = onnxruntime_results(op, inputs, outputs, attributes)
        results = run(op, *inputs, opset=14, outputs=outputs, **attributes)
        for actual, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(actual, wanted, 1e-4, 1e-5)


def test_rnn_by_hand():
    x, w, r = f32([[[1]], [[2]]]), f32([[[10]]]), f32([[[1]]])
    y, last = run("RNN", x, w, r, opset=14, outputs=2, hidden_size=1, activations=["Relu"])
    assert (y.reshape(-1).tolist(), last.tolist()) == ([10, 30], [[[30]]])


def test_clip_bounds_the_input_of_every_activation_of_an_lstm():
    """The text says so; onnxruntime leaves the cell that goes into the output unclipped."""
    x, zero, bias = (
        np.zeros((6, 1, 1), np.float32),
        np.zeros((1, 4, 1), np.float32),
        np.zeros((1, 8), np.float32),
    )
    bias[0, :4] = 10
    _, h, c = run("LSTM", x, zero, zero, bias, opset=14, outputs=3, hidden_size=1, clip=0.5)
    gate, new = 1 / (1 + np.exp(-0.5)), np.tanh(0.5)
    cell = gate * new * sum(gate**i for i in range(6))
    assert cell > 0.5
    np.testing.assert_allclose([c.item(), h.item()], [cell, gate * new], 1e-6)


def test_reverse_direction_starts_at_the_end_of_its_sequence():
    x, w, r = f32([[[1], [1]], [[2], [2]], [[4], [4]]]), f32([[[1]]]), f32([[[10]]])
    attributes = {"hidden_size": 1, "activations": ["Relu"], "direction": "reverse"}
    lengths = np.array([3, 2], np.int32)
    y, last = run("RNN", x, w, r, None, lengths, opset=14, outputs=2, **attributes)
    assert y[:, 0, :, 0].T.tolist() == [[421, 42, 4], [21, 2, 0]]
    assert last.reshape(-1).tolist() == [421, 21]


def test_layout_1_has_the_batch_first():
    inputs = operands("LSTM", 1, lengths=False, states=True)
    attributes = {"hidden_size": HIDDEN, "outputs": 3, "opset": 14}
    expected = run("LSTM", *inputs, **attributes)
    swapped = [
        a.transpose(1, 0, 2) if i in (0, 5, 6) and a is not None else a
        for i, a in enumerate(inputs)
    ]
    y, h, c = run("LSTM", *swapped, layout=1, **attributes)
    np.testing.assert_array_equal(y.transpose(1, 2, 0, 3), expected[0])
    np.testing.assert_array_equal(h.transpose(1, 0, 2), expected[1])
    np.testing.assert_array_equal(c.transpose(1, 0, 2), expected[2])


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"hidden_size": 0}, "XC2007"),
        ({"hidden_size": 5}, "XC2004"),
        ({"direction": "sideways"}, "XC2007"),
        ({"activations": ["Sigmoid"]}, "XC2007"),
        ({"activations": ["Sigmoid", "Tanh", "Nope"]}, "XC2007"),
        ({"direction": "bidirectional"}, "XC2007"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(attributes, code):
    inputs = operands("LSTM", 1, lengths=False, states=False)
    with pytest.raises(CompileError) as caught:
        given = {"hidden_size": HIDDEN, "activations": ["Sigmoid", "Tanh", "Tanh"]} | attributes
        run("LSTM", *inputs, opset=14, dynamic=False, **given)
    assert (caught.value.code, caught.value.node) == (code, "node")


@pytest.mark.parametrize("length", [-1, 6, 2**31 - 1])
def test_lengths_outside_are_refused(length):
    inputs = operands("GRU", 1, lengths=True, states=False)
    inputs[4] = np.array([1, 1, length], np.int32)
    with pytest.raises(CompileError) as caught:
        run("GRU", *inputs, opset=14, outputs=2, hidden_size=HIDDEN)
    assert (caught.value.code, caught.value.node) == ("XC2011", "node")
