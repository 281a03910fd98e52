"""nn-insert-quantization by numbers: close to the float model, biases that make up for mean errors."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network, residual_network
from tests.unit.quantize.test_plan import cleaned
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.rewrite import maker
from xcompile.compiler.quantize.histogram import ChannelSums, Histogram
from xcompile.compiler.quantize.names import digest_of
from xcompile.compiler.quantize.observers import Range, mse
from xcompile.compiler.quantize.plan import MOST_TERMS, plan_quantization
from xcompile.compiler.quantize.table import CalibrationTable, Observed
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.interpreter import evaluate, interpret
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.quantize import Dequantize, Quantize
from xcompile.frontends.onnx.importer import import_onnx
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


def test_without_its_pairs_the_float_graph_is_back() -> None:
    x = np.random.default_rng(3).standard_normal((4, 3, 16, 16)).astype(np.float32)
    model = residual_network(batch=4)
    before = cleaned(model)
    _, module = quantized(model, x)
    with module.context:
        block = module.main.regions[0].blocks[0]
        inputs = [Quantize.of(o.operation) for o in block.operations]
        assert len({q.x for q in inputs if q is not None}) == len([q for q in inputs if q])
        for operation in list(block.operations):
            back = Dequantize.of(operation.operation)
            made = None if back is None else maker(back.x)
            if back is not None and isinstance(made, Quantize):
                back.y.replace_all_uses_with(made.x)
    assert skeleton(module) == skeleton(before)
    steps = 0.2 * 4 / 127 / 2  # of weights of four deviations
    for found, wanted in zip(weights(module), weights(before), strict=True):
        assert np.abs(found - wanted).max() < steps


def skeleton(module: Module) -> list[tuple[str, tuple[int, ...]]]:
    """Each op but constants and quantization, with the numbers of the ops or inputs it reads, constants left out."""
    numbers: dict[object, int] = {}
    rows: list[tuple[str, tuple[int, ...]]] = []
    with module.context:
        block = module.main.regions[0].blocks[0]
        numbers.update({v: 1000 + i for i, v in enumerate(block.arguments)})
        for operation in block.operations:
            if operation.operation.name in ("nn.const", "nn.quantize", "nn.dequantize"):
                continue
            read = tuple(numbers[v] for v in operation.operation.operands if v in numbers)
            numbers.update(dict.fromkeys(operation.operation.results, len(rows)))
            rows.append((operation.operation.name, read))
    return rows


def weights(module: Module) -> list[np.ndarray]:
    """The weights of convolutions and matrix products, as floats."""
    with module.context:
        ops = [view(o.operation) for o in module.main.regions[0].blocks[0].operations]
        values = [
            op.w if isinstance(op, Conv) else op.b for op in ops if isinstance(op, Conv | MatMul)
        ]
        return evaluate(module, [np.zeros((4, 3, 16, 16), np.float32)], values)


@pytest.mark.parametrize("low", [0.0, -1.0, -0.5])
def test_the_longest_sums_of_the_greatest_products_are_exact(low: float) -> None:
    n = Network()
    signs = np.ones((MOST_TERMS, 2), np.float32)
    signs[:, 1] = -1
    y = n("MatMul", "x", n.constant(signs))
    model = n.model({"x": ("FLOAT", [2, MOST_TERMS])}, {y: ("FLOAT", None)})
    table = CalibrationTable(
        "", digest_of(import_onnx(model)), "mse", 1, {"x": Observed(Range(low, low + 1))}
    )
    scale, zero = Range(low, low + 1).parameters()
    x = np.full((2, MOST_TERMS), low, np.float32)
    x[1] += 1
    steps = np.clip(np.rint(x[:, 0] / scale) + zero, 0, 255) - zero
    sums = MOST_TERMS * steps[:, np.newaxis] * [127, -127]
    expected = sums.astype(np.float32) * np.float32(float(scale) * float(np.float32(1 / 127)))
    for target in ("cpu-int8", "x86-avx2-int8"):
        compiled = xcompile.compile(model, target, calibration_table=table, pool=shared_pool())
        assert [row.arithmetic for row in compiled.precisions()] == ["int8"]
        np.testing.assert_allclose(compiled.run([x])[y], expected, rtol=1e-6)
