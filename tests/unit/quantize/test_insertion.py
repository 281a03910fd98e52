"""nn-insert-quantization by numbers: close to the float model, biases that make up for mean errors."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from tests.e2e.networks import Network, residual_network
from tests.unit.quantize.test_plan import cleaned
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.quantize.histogram import ChannelSums, Histogram
from xcompile.compiler.quantize.observers import mse
from xcompile.compiler.quantize.plan import plan_quantization
from xcompile.compiler.quantize.table import CalibrationTable, Observed
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.interpreter import evaluate, interpret
from xcompile.passes.nn.insert_quantization import InsertQuantization


def table_of(module: Module, x: np.ndarray) -> CalibrationTable:
    """Calibrated by the reference on one input."""
    with module.context, ir.Location.unknown():
        plan = plan_quantization(module)
        arrays = evaluate(module, [x], list(plan.tensors.values()))
    tensors: dict[str, Observed] = {}
    for name, array in zip(plan.tensors, arrays, strict=True):
        histogram, sums = Histogram(), ChannelSums()
        histogram.add(array)
        if name in plan.channel_axes:
            sums.add(array, plan.channel_axes[name])
        tensors[name] = Observed(mse(histogram), tuple(sums.means()))
    return CalibrationTable("", "", "mse", 1, tensors)


def quantized(model: onnx.ModelProto, x: np.ndarray, **options: bool) -> tuple[np.ndarray, Module]:
    """What the quantized model gives, and its module."""
    module = cleaned(model)
    table = table_of(module, x)
    context = PassContext(targets()["x86-avx2"], calibration=table.to_text())
    InsertQuantization(**options).run(module, context)
    with module.context:
        return interpret(module, [x])[0], module


def floating(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    module = cleaned(model)
    with module.context:
        return interpret(module, [x])[0]


def conv(n: Network) -> str:
    return n("Conv", "x", n.weight(6, 16, 3, 3), n.weight(6))


def grouped(n: Network) -> str:
    return n("Conv", "x", n.weight(6, 8, 3, 3), group=2)


def gemm(n: Network) -> str:
    mean = n("ReduceMean", "x", axes=[2, 3], keepdims=0)
    return n("Gemm", n("Relu", mean), n.weight(6, 16), n.weight(6), transB=1)


@pytest.mark.parametrize("build", [conv, grouped, gemm])
def test_biases_make_up_for_the_mean_error_of_the_weights(build: Callable[[Network], str]) -> None:
    n = Network()
    y = build(n)
    model = n.model({"x": ("FLOAT", [8, 16, 6, 6])}, {y: ("FLOAT", None)})
    x = (np.random.default_rng(0).random((8, 16, 6, 6)) + 1).astype(np.float32)
    expected = floating(model, x)
    axes = (0, *range(2, expected.ndim))
    errors = [
        np.abs((quantized(model, x, correct=correct)[0] - expected).mean(axis=axes)).mean()
        for correct in (False, True)
    ]
    assert errors[1] < errors[0] / 3


def test_a_residual_network_stays_close_to_what_it_was() -> None:
    x = np.random.default_rng(1).standard_normal((4, 3, 16, 16)).astype(np.float32)
    model = residual_network(batch=4)
    found, module = quantized(model, x)
    np.testing.assert_allclose(found, floating(model, x), atol=0.01)
    text = module.text()
    assert text.count('"nn.quantize"') == len(table_of(cleaned(model), x).tensors)
    assert text.count("xi8>) -> ()") == 0
    assert text.count('"nn.conv"') == 4


def test_each_tensor_has_one_pair_for_all_its_readers() -> None:
    n = Network()
    stem = n("Relu", n("Conv", "x", n.weight(4, 16, 1, 1)))
    y = n("Add", n("Conv", stem, n.weight(4, 4, 1, 1)), stem)
    model = n.model({"x": ("FLOAT", [8, 16, 6, 6])}, {y: ("FLOAT", None)})
    x = np.random.default_rng(2).standard_normal((8, 16, 6, 6)).astype(np.float32)
    found, module = quantized(model, x)
    assert module.text().count('"nn.quantize"') == 2
    np.testing.assert_allclose(found, floating(model, x), atol=0.05)


def test_a_table_without_the_models_tensors_is_refused() -> None:
    table = CalibrationTable("", "", "mse", 1, {})
    context = PassContext(targets()["x86-avx2"], calibration=table.to_text())
    with pytest.raises(CompileError, match="XC6009 the calibration table has none of the model's"):
        InsertQuantization().run(cleaned(residual_network()), context)
