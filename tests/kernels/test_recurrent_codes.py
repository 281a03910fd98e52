"""Recurrent layers with weights of 8 bits, in `w8` and in `dynamic`, where states have 8 bits too.

Weights and inputs are chosen so that 8 bits hold them exactly: in `w8` nothing is lost then, and in `dynamic` only what
states lose, which a reference of its own here computes from the operators' definitions.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from bench.native import runnable_targets
from tests.e2e.compiled_node import shared_pool
from tests.foreign.models import run_anywhere, run_compiled
from tests.kernels.test_integer_listing import STACK, count, loops
from tests.kernels.test_recurrent import BOTH, DIRECTIONS, GATES, LINEAR, Layer
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.driver import plan_module
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.request import Request
from xcompile.compiler.support.precision_map import PrecisionMap
from xcompile.compiler.target.registry import targets
from xcompile.compiler.target.target import Target
from xcompile.frontends.onnx.importer import import_onnx

NARROW, HOST = runnable_targets()[0], runnable_targets()[-1]


@dataclass(frozen=True)
class CodedLayer(Layer):
    """A layer whose weights and inputs are whole numbers of 8 bits times a power of two or 1/255."""

    def arrays(self) -> dict[str, np.ndarray]:
        rng, found = np.random.default_rng(self.hidden), super().arrays()
        for name in ("w", "r"):
            codes = rng.integers(-126, 127, found[name].shape).astype(np.float32)
            codes[..., 0] = 127
            found[name] = codes / np.float32(512)
        codes = rng.integers(0, 256, found["x"].shape).astype(np.float32)
        if codes.size > 1:
            codes.reshape(-1)[:2] = 0, 255
        found["x"] = codes / np.float32(255)
        return found

    def made(self, precision: str, target: Target) -> CompiledModel:
        proto, given = self.proto(dynamic=True), {"*": precision}
        made = compile_model(proto, target, threads=1, precisions=given, pool=shared_pool())
        assert any("recurrent" in symbol for symbol in made.artifact.objects)
        wanted = "int8" if precision == "dynamic" else "w8"
        assert {row.arithmetic for row in made.precisions()} == {wanted}
        return made


CASES = [
    CodedLayer("RNN", {}, **BOTH),
    CodedLayer("GRU", {}, **BOTH),
    CodedLayer("GRU", LINEAR, **BOTH),
    CodedLayer("LSTM", {}, **BOTH),
    CodedLayer("LSTM", {"input_forget": 1, "clip": 0.3}, direction="reverse", batch=11, hidden=37),
    CodedLayer("GRU", {}, steps=3, batch=1, hidden=1),
    CodedLayer("LSTM", {}, steps=3, batch=5, hidden=64),
    CodedLayer("RNN", {}, steps=3, batch=2, hidden=7),
]
NAMES = [
    f"{case.op} {case.hidden}{' linear' if case.attributes == LINEAR else ''}" for case in CASES
]


EVERY = [
    pytest.param(layer, target, id=f"{name}, {target.lanes(32)} lanes")
    for layer, name in zip(CASES, NAMES, strict=True)
    for target in runnable_targets()
    if target is HOST or layer in (CASES[1], CASES[4])
]


@pytest.mark.parametrize(("layer", "target"), EVERY)
def test_weights_of_8_bits_lose_nothing_that_8_bits_hold(layer: CodedLayer, target: Target) -> None:
    layer.check(layer.made("w8", target))


# -- states of 8 bits -------------------------------------------------------------------------------


def rounded(h: np.ndarray) -> np.ndarray:
    """ONNX DynamicQuantizeLinear and DequantizeLinear of each row, in float32."""
    low = np.minimum(h.min(axis=1, keepdims=True), np.float32(0))
    high = np.maximum(h.max(axis=1, keepdims=True), np.float32(0))
    scale = (high - low) / np.float32(255)
    scale[scale == 0] = 1
    zero = np.clip(np.rint(-low / scale), 0, 255)
    codes = np.clip(np.rint(h / scale) + zero, 0, 255)
    return (codes - zero).astype(np.float64) * scale


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference(layer: CodedLayer) -> list[np.ndarray]:
    """The results from the formulas of ONNX's RNN, GRU and LSTM, a direction and a sequence at a time."""
    a = {n: v if v.dtype == np.int32 else v.astype(np.float64) for n, v in layer.arrays().items()}
    n, directions = layer.hidden, DIRECTIONS[layer.direction]
    y = np.zeros((layer.steps, directions, layer.batch, n))
    last = [np.zeros((directions, layer.batch, n)) for _ in range(2)]
    for d in range(directions):
        for s in range(layer.batch):
            length = int(a["lengths"][s]) if layer.lengths else layer.steps
            h = a["h"][d, s : s + 1] if layer.states else np.zeros((1, n))
            c = a["c"][d, s : s + 1] if "c" in a else np.zeros((1, n))
            places = range(length)
            backward = layer.direction == "reverse" or d == 1
            for t in reversed(places) if backward else places:
                h, c = step(layer, a, d, a["x"][t, s : s + 1], h, c)
                y[t, d, s] = h[0]
            last[0][d, s], last[1][d, s] = h[0], c[0]
    return [y, *last[: 2 if layer.op == "LSTM" else 1]]


def step(
    layer: CodedLayer, a: dict[str, Any], d: int, x: np.ndarray, h: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The next h and c of one sequence."""
    n, rows = layer.hidden, GATES[layer.op] * layer.hidden
    w, r = a["w"][d].reshape(-1, n, 3), a["r"][d].reshape(-1, n, n)
    wb, rb = a["bias"][d][:rows].reshape(-1, n), a["bias"][d][rows:].reshape(-1, n)
    limit = layer.attributes.get("clip", np.inf)
    codes = rounded(h.astype(np.float32))

    def cut(v: np.ndarray) -> np.ndarray:
        return np.clip(v, -limit, limit)

    def gate(g: int) -> np.ndarray:
        return x @ w[g].T + wb[g] + codes @ r[g].T + rb[g]

    if layer.op == "RNN":
        return np.tanh(cut(gate(0))), c
    if layer.op == "GRU":
        z, let = sigmoid(cut(gate(0))), sigmoid(cut(gate(1)))
        if layer.attributes.get("linear_before_reset"):
            inner = let * (codes @ r[2].T + rb[2])
        else:
            inner = rounded((let * h).astype(np.float32)) @ r[2].T + rb[2]
        return (1 - z) * np.tanh(cut(x @ w[2].T + wb[2] + inner)) + z * h, c
    p = a["p"][d].reshape(3, n) if "p" in a else np.zeros((3, n))
    i = sigmoid(cut(gate(0) + p[0] * c))
    f = 1 - i if layer.attributes.get("input_forget") else sigmoid(cut(gate(2) + p[2] * c))
    c = f * c + i * np.tanh(cut(gate(3)))
    return sigmoid(cut(gate(1) + p[1] * c)) * np.tanh(cut(c)), c


@pytest.mark.parametrize(("layer", "target"), EVERY)
def test_states_of_8_bits_are_those_of_the_definition(layer: CodedLayer, target: Target) -> None:
    got = run_anywhere(layer.made("dynamic", target), layer.inputs()).values()
    for actual, wanted in zip(got, reference(layer), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=5e-6)


def test_rounding_of_states_is_seen() -> None:
    """What float32 states give is a hundred times as far from the reference as the test above allows."""
    layer = CASES[3]
    exact = run_anywhere(layer.made("w8", NARROW), layer.inputs())
    assert np.abs(next(iter(exact.values())) - reference(layer)[0]).max() > 5e-4


@pytest.mark.parametrize("target", ["arm-neon", "arm-dotprod"])
@pytest.mark.parametrize("layer", [CASES[2], CASES[3]], ids=["GRU", "LSTM"])
def test_all_targets_give_the_same_bytes(layer: CodedLayer, target: str) -> None:
    results = [
        run_compiled(replace(layer).made("dynamic", targets()[name]), layer.inputs())
        for name in ("x86-avx2", "x86-avx512", "x86-vnni", target)
    ]
    for name in results[0]:
        assert len({found[name].tobytes() for found in results}) == 1


def test_batches_do_not_change_a_sequence() -> None:
    """Each sequence has a range of its own."""
    layer = CASES[6]
    inputs, made = layer.inputs(), layer.made("dynamic", HOST)
    together = run_anywhere(made, inputs)
    full = np.concatenate([inputs["x"][:, 2:3], inputs["x"][:, :1]], axis=1)
    apart = run_anywhere(made, {"x": full})
    np.testing.assert_array_equal(together["y"][:, :, 2], apart["y"][:, :, 0])


def test_states_that_are_all_zero_or_one_number() -> None:
    """A range of nothing has the scale 1."""
    layer = CodedLayer("RNN", {"activations": ["Relu"]}, steps=2, batch=2, hidden=5)
    made, inputs = layer.made("dynamic", HOST), layer.inputs()
    result = run_anywhere(made, {"x": inputs["x"] * 0})["y"]
    bias = layer.arrays()["bias"][0].reshape(2, 5).sum(axis=0)
    np.testing.assert_allclose(result[0, 0], np.maximum([bias, bias], 0), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "instruction"),
    [("x86-vnni", "vpdpbusd"), ("x86-avx2", "vpmaddwd"), ("arm-dotprod", "sdot"), ("arm-neon", "smull")],
)  # fmt: skip
def test_the_loop_multiplies_bytes_and_keeps_its_sums_in_registers(
    name: str, instruction: str
) -> None:
    layer = CodedLayer("LSTM", {}, steps=2, batch=4, hidden=128)
    request = Request(targets()[name], precisions=PrecisionMap("dynamic"))
    _, jobs = plan_module(import_onnx(layer.proto(dynamic=False)), request)
    (job,) = (replace(job, listing=True) for symbol, job in jobs.items() if "recurrent" in symbol)
    (result,) = shared_pool().map([job])
    found = loops(result.assembly or "", instruction)
    assert found
    for body in found:
        assert not [line for line in body if STACK.search(line)]
        assert count(body, instruction) >= 8
