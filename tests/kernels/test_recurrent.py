"""RNN, GRU and LSTM with constant weights, compiled, against the float64 interpreter; on every vector width."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import helper

from bench.native import runnable_targets
from tests.e2e.compiled_node import shared_pool
from tests.foreign.models import run_anywhere
from tests.unit.frontends.onnx_models import model
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.schedule import recurrent
from xcompile.compiler.target.target import Target
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

TARGETS = [pytest.param(t, id=f"{t.lanes(32)} lanes") for t in runnable_targets()]
WEIGHTS = ("w", "r", "bias", "p")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


@dataclass(frozen=True)
class Layer:
    """A layer of 3 inputs with seeded weights, its sequences of several lengths when `lengths`."""

    op: str
    attributes: dict[str, Any]
    direction: str = "forward"
    steps: int = 4
    batch: int = 3
    hidden: int = 20
    lengths: bool = False
    states: bool = False
    dtype: str = "float32"

    def arrays(self) -> dict[str, np.ndarray]:
        generator = np.random.default_rng(7)
        directions, rows = DIRECTIONS[self.direction], GATES[self.op] * self.hidden

        def some(*shape: int) -> np.ndarray:
            return (0.4 * generator.standard_normal(shape)).astype(self.dtype)

        found = {
            "w": some(directions, rows, 3),
            "r": some(directions, rows, self.hidden),
            "bias": some(directions, 2 * rows),
        }
        if self.states and self.op == "LSTM":
            found["p"] = some(directions, 3 * self.hidden)
        found["x"] = some(self.steps, self.batch, 3)
        if self.lengths:
            found["lengths"] = (np.arange(self.batch) * 3 % (self.steps + 1)).astype(np.int32)
        if self.states:
            found["h"] = some(directions, self.batch, self.hidden)
            if self.op == "LSTM":
                found["c"] = some(directions, self.batch, self.hidden)
        return found

    def proto(self, *, dynamic: bool) -> Any:
        arrays = self.arrays()
        names = ("x", "w", "r", "bias", "lengths", "h", "c", "p")[: 8 if self.op == "LSTM" else 6]
        constants = {n: arrays[n] for n in WEIGHTS if n in arrays}
        free = {n: a for n, a in arrays.items() if n not in constants}
        results = ["y", "last_h", "last_c"][: 3 if self.op == "LSTM" else 2]
        node = helper.make_node(
            self.op, [n if n in arrays else "" for n in names], results, name="layer",
            hidden_size=self.hidden, direction=self.direction, **self.attributes,
        )  # fmt: skip
        shapes = {n: [None] * a.ndim if dynamic else list(a.shape) for n, a in free.items()}
        kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in arrays.items()}
        return model([node], shapes, results, constants, opset=14, dtypes=kinds)

    def inputs(self) -> dict[str, np.ndarray]:
        return {n: a for n, a in self.arrays().items() if n not in WEIGHTS}

    def compiled(
        self, target: Target | str = "cpu", *, dynamic: bool = False, threads: int = 1
    ) -> CompiledModel:
        made = compile_model(
            self.proto(dynamic=dynamic), target, threads=threads, pool=shared_pool()
        )
        assert any("recurrent" in symbol for symbol in made.artifact.objects)
        assert not any("fallback" in symbol for symbol in made.artifact.objects)
        return made

    def check(self, made: CompiledModel) -> None:
        """The results agree with the interpreter, which computes in float64."""
        inputs = self.inputs()
        expected = interpret(import_onnx(self.proto(dynamic=True)), list(inputs.values()))
        tolerance = 3e-6 if self.dtype == "float32" else 1e-13
        for actual, wanted in zip(run_anywhere(made, inputs).values(), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, tolerance, tolerance)


LINEAR = {"linear_before_reset": 1}
BOTH = {"direction": "bidirectional", "lengths": True, "states": True}
ALL = [
    "Affine", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "ScaledTanh", "Sigmoid", "Softplus", "Softsign", "Tanh",
    "ThresholdedRelu",
]  # fmt: skip
CASES = [
    Layer("RNN", {}, **BOTH),
    Layer("GRU", {}, **BOTH),
    Layer("GRU", LINEAR, **BOTH),
    Layer("LSTM", {}, **BOTH),
    Layer("LSTM", {"input_forget": 1, "clip": 0.3}, direction="reverse", batch=11, hidden=37),
    Layer("GRU", {}, steps=1, batch=1, hidden=1, dtype="float64"),
    Layer("LSTM", {}, steps=2, batch=5, hidden=64, dtype="float64"),
]


@pytest.mark.parametrize("layer", CASES, ids=lambda case: f"{case.op} {case.hidden}")
def test_layers_agree_with_the_interpreter(layer: Layer) -> None:
    layer.check(layer.compiled())


@pytest.mark.parametrize("layer", CASES[1:3], ids=lambda case: f"{case.op} {case.hidden}")
@pytest.mark.parametrize("target", TARGETS[:-1])
def test_layers_agree_on_narrower_vectors(layer: Layer, target: Target) -> None:
    layer.check(layer.compiled(target))


def test_sizes_may_be_known_when_the_layer_runs() -> None:
    made = Layer("LSTM", {}, **BOTH).compiled(dynamic=True)
    for batch in (0, 1, 2, 9):
        Layer("LSTM", {}, batch=batch, **BOTH).check(made)
    Layer("LSTM", {}, steps=0, **BOTH).check(made)


@pytest.mark.parametrize("names", [ALL[0:4], ALL[4:8], ALL[7:11]])
def test_all_functions_of_either_direction(names: list[str]) -> None:
    functions = {"activations": [*names, *names[:2]], "activation_alpha": [0.4, 0.3, 0.2]}
    layer = Layer("LSTM", functions, direction="bidirectional")
    layer.check(layer.compiled())


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    layer = Layer("GRU", LINEAR, batch=13, hidden=50, **BOTH)
    made = layer.compiled()
    one, three = (
        CompiledModel(made.artifact, threads=n).executable.run(layer.inputs()) for n in (1, 3)
    )
    for name in one:
        np.testing.assert_array_equal(one[name], three[name])


@pytest.mark.full
@pytest.mark.parametrize("seed", range(200))
def test_every_schedule_gives_the_right_numbers(seed: int, monkeypatch: Any) -> None:
    rng = np.random.default_rng(seed)
    op, linear = [("RNN", {}), ("GRU", {}), ("GRU", LINEAR), ("LSTM", {})][seed % 4]
    layer = Layer(
        op, linear, batch=int(rng.integers(1, 20)), hidden=int(rng.integers(1, 70)), **BOTH
    )  # fmt: skip
    target, heuristic = runnable_targets()[seed % len(TARGETS)], recurrent.heuristic

    def drawn(problem: Any, target: Any) -> Any:
        with monkeypatch.context() as original:
            original.setattr(recurrent, "heuristic", heuristic)
            found = list(recurrent.space(problem, target))
        return found[int(rng.integers(len(found)))]

    monkeypatch.setattr(recurrent, "heuristic", drawn)
    layer.check(layer.compiled(target, dynamic=bool(seed % 3)))
