"""Cross-layer equalization: the same function, channels of like ranges, smaller errors when quantized."""

import numpy as np
import onnx

from tests.e2e.networks import Network
from tests.unit.quantize.test_plan import cleaned
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.quantize.equalize import equalize_channels
from xcompile.compiler.quantize.histogram import Histogram
from xcompile.compiler.quantize.observers import min_max
from xcompile.compiler.quantize.plan import plan_quantization
from xcompile.compiler.quantize.table import CalibrationTable, Observed
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.interpreter import evaluate, interpret
from xcompile.passes.nn.insert_quantization import InsertQuantization

X = np.random.default_rng(0).standard_normal((4, 3, 6, 6)).astype(np.float32)


def uneven() -> onnx.ModelProto:
    """A separable network whose channels differ by factors of up to 1,000."""
    n, rng = Network(), np.random.default_rng(1)
    factors = (10.0 ** rng.uniform(-1.5, 1.5, 8)).astype(np.float32)
    spread = rng.standard_normal((8, 3, 1, 1)).astype(np.float32) * factors.reshape(-1, 1, 1, 1)
    deep = rng.standard_normal((8, 1, 3, 3)).astype(np.float32) / factors.reshape(-1, 1, 1, 1)
    bias = rng.standard_normal(8).astype(np.float32) * factors
    a = n("Relu", n("Conv", "x", n.constant(spread), n.constant(bias)))
    b = n("Relu", n("Conv", a, n.constant(deep), group=8, pads=[1, 1, 1, 1]))
    y = n("Conv", b, n.weight(5, 8, 1, 1))
    return n.model({"x": ("FLOAT", [4, 3, 6, 6])}, {y: ("FLOAT", [4, 5, 6, 6])})


def quantized_error(*, equalized: bool) -> float:
    """Of the network quantized in the ranges of `X`, relative to its result."""
    module = cleaned(uneven())
    with module.context, ir.Location.unknown():
        (expected,) = interpret(module, [X])
        if equalized:
            equalize_channels(module)
        tensors = observed(module)
        table = CalibrationTable("", "", "min-max", 1, tensors, (), equalized)
    again = cleaned(uneven())
    context = PassContext(targets()["x86-avx2"], calibration=table.to_text())
    InsertQuantization().run(again, context)
    with again.context:
        (found,) = interpret(again, [X])
    return float(np.sqrt(((found - expected) ** 2).sum() / (expected**2).sum()))


def observed(module: Module) -> dict[str, Observed]:
    tensors = plan_quantization(module).tensors
    arrays = evaluate(module, [X], list(tensors.values()))
    found: dict[str, Observed] = {}
    for name, array in zip(tensors, arrays, strict=True):
        histogram = Histogram()
        histogram.add(array)
        found[name] = Observed(min_max(histogram))
    return found


def test_the_network_computes_the_same() -> None:
    module = cleaned(uneven())
    with module.context, ir.Location.unknown():
        before = interpret(module, [X])[0]
        assert equalize_channels(module) == 2
        after = interpret(module, [X])[0]
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-5 * np.abs(before).max())


def test_rows_of_a_convolution_become_as_large_as_columns_of_the_next() -> None:
    module = cleaned(uneven())
    with module.context, ir.Location.unknown():
        equalize_channels(module)
        first, second = (p.weights for p in plan_quantization(module).products[:2])
    rows = np.abs(first).max(axis=(1, 2, 3))
    columns = np.abs(second).max(axis=(1, 2, 3))  # a depthwise convolution: a row a channel
    np.testing.assert_allclose(rows, columns, rtol=0.03)


def test_uneven_channels_lose_far_less_when_quantized() -> None:
    plain, equalized = quantized_error(equalized=False), quantized_error(equalized=True)
    assert equalized < 0.02
    assert plain > 3 * equalized


def test_a_result_with_other_users_is_not_scaled() -> None:
    n = Network()
    a = n("Conv", "x", n.weight(4, 3, 1, 1))
    b = n("Conv", a, n.weight(4, 4, 1, 1))
    y = n("Add", a, b)
    module = cleaned(n.model({"x": ("FLOAT", [4, 3, 6, 6])}, {y: ("FLOAT", None)}))
    with module.context, ir.Location.unknown():
        text = module.text()
        assert equalize_channels(module) == 0
        assert module.text() == text


def test_channels_of_zeros_keep_their_scale() -> None:
    n = Network()
    w = np.zeros((2, 3, 1, 1), np.float32)
    w[0] = 5.0
    a = n("Relu", n("Conv", "x", n.constant(w)))
    y = n("Conv", a, n.weight(4, 2, 1, 1))
    module = cleaned(n.model({"x": ("FLOAT", [4, 3, 6, 6])}, {y: ("FLOAT", None)}))
    with module.context, ir.Location.unknown():
        equalize_channels(module)
        assert np.isfinite(interpret(module, [X])[0]).all()
        assert (plan_quantization(module).products[0].weights[1] == 0).all()
