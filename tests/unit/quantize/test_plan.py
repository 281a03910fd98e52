"""What is quantized: products, averages, one side of what joins two products; what stays in float, and why."""

import numpy as np
import onnx
import pytest

from tests.e2e.networks import Network, residual_network
from xcompile import passes as _passes
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.quantize.names import digest_of, tensor_names
from xcompile.compiler.quantize.plan import (
    INT8,
    QuantizationPlan,
    has_quantization,
    plan_quantization,
)
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx

assert _passes.PASSES


def cleaned(model: onnx.ModelProto) -> Module:
    module = import_onnx(model)
    with module.context, ir.Location.unknown():
        refine_types(module, module.input_shapes())
        run_pipeline(
            module, parse_pipeline("@clean", PIPELINES), PassContext(targets()["x86-avx2"])
        )
    return module


def plan(model: onnx.ModelProto, *keep_float: str) -> QuantizationPlan:
    return plan_quantization(cleaned(model), INT8.keeping_float(keep_float))


def test_inputs_of_products_are_quantized_by_the_models_names() -> None:
    found = plan(residual_network())
    assert len(found.products) == 5
    assert next(iter(found.tensors)) == "x"
    assert found.floats == {}
    nodes = {describe(p.op.location) for p in found.products}
    assert {"Conv_0", "Conv_2", "Conv_4", "Conv_8"} <= nodes


def test_an_elementwise_op_of_two_products_gets_the_first_one_quantized() -> None:
    n = Network()
    first = n("Conv", "x", n.weight(4, 3, 1, 1))
    second = n("Conv", "x", n.weight(4, 3, 1, 1))
    y = n("Relu", n("Add", second, first))
    model = n.model({"x": ("FLOAT", [1, 3, 4, 4])}, {y: ("FLOAT", None)})
    assert list(plan(model).tensors) == ["x", first]


def test_what_a_product_already_reads_is_not_quantized_twice() -> None:
    n = Network()
    stem = n("Conv", "x", n.weight(4, 3, 1, 1))
    branch = n("Conv", stem, n.weight(4, 4, 1, 1))
    y = n("Add", branch, stem)
    model = n.model({"x": ("FLOAT", [1, 3, 4, 4])}, {y: ("FLOAT", None)})
    assert list(plan(model).tensors) == ["x", stem]


def test_what_an_average_is_taken_of_is_quantized_behind_pools_too() -> None:
    n = Network()
    conv = n("Conv", "x", n.weight(4, 3, 1, 1))
    pool = n("MaxPool", conv, kernel_shape=[2, 2], strides=[2, 2])
    y = n("GlobalAveragePool", pool)
    model = n.model({"x": ("FLOAT", [1, 3, 4, 4])}, {y: ("FLOAT", None)})
    assert list(plan(model).tensors) == ["x", pool]


def test_averages_of_float_ops_stay_as_they_are() -> None:
    n = Network()
    y = n("GlobalAveragePool", n("Exp", "x"))
    model = n.model({"x": ("FLOAT", [1, 3, 4, 4])}, {y: ("FLOAT", None)})
    assert plan(model).tensors == {}


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda n: n("MatMul", "x", "x"), "its weights are no constant"),
        (lambda n: n("MatMul", n.weight(4, 4), "x"), "its input is a constant"),
        (lambda n: n("MatMul", "x", n.weight(1, 3, 4, 4)), "its weights have 4 axes"),
        (
            lambda n: n("Conv", "x", n.constant(np.full((1, 3, 1, 1), np.inf, np.float32))),
            "a weight is NaN or infinite",
        ),
        (
            lambda n: n(
                "MatMul",
                n("Softmax", n("MatMul", "x", n("Transpose", "x", perm=[0, 1, 3, 2]))),
                "x",
            ),
            "attention is computed as a whole, in floating point",
        ),
        (
            lambda n: n("ConvTranspose", "x", n.weight(3, 2, 1, 1), group=3),
            "its groups share the scales of weights",
        ),
        (
            lambda n: n("ConvTranspose", "x", n.weight(3, 2, 2, 2), pads=[2, 0, 0, 0]),
            "its padding drops whole windows",
        ),
    ],
)
def test_what_stays_in_floating_point_says_why(build: object, reason: str) -> None:
    n = Network()
    y = build(n)  # type: ignore[operator]
    found = plan(n.model({"x": ("FLOAT", [2, 3, 4, 4])}, {y: ("FLOAT", None)}))
    assert found.products == []
    assert list(found.floats.values()) == [reason]


def test_sums_that_could_overflow_stay_in_floating_point() -> None:
    n = Network()
    y = n("MatMul", "x", n.weight(65_794, 2))
    found = plan(n.model({"x": ("FLOAT", [1, 65_794])}, {y: ("FLOAT", None)}))
    assert list(found.floats.values()) == ["65794 products of 8 bits may overflow a sum of 32 bits"]
    assert 65_793 * 255 * 128 < 2**31 <= 65_794 * 255 * 128


def test_globs_keep_nodes_or_tensors_in_floating_point() -> None:
    n = Network()
    first = n("Conv", "x", n.weight(4, 3, 1, 1))
    second = n("Conv", first, n.weight(4, 4, 1, 1))
    third = n("Conv", second, n.weight(4, 4, 1, 1))
    model = n.model({"x": ("FLOAT", [1, 3, 4, 4])}, {third: ("FLOAT", None)})
    assert list(plan(model, "Conv_1").tensors) == ["x", second]
    assert list(plan(model, third).tensors) == ["x", first]
    found = plan(model, "Conv_*")
    assert found.tensors == {}
    assert set(found.floats.values()) == {"kept in floating point by 'Conv_*'"}


def test_every_value_has_a_name_of_its_own() -> None:
    module = cleaned(residual_network())
    names = list(tensor_names(module).values())
    assert len(set(names)) == len(names)
    assert names[0] == "x"
    assert tensor_names(cleaned(residual_network())).values() != []
    assert list(tensor_names(cleaned(residual_network())).values()) == names


def test_the_digest_is_that_of_weights_and_interface() -> None:
    one, again = import_onnx(residual_network()), import_onnx(residual_network())
    assert digest_of(one) == digest_of(again)
    other = residual_network()
    changed = onnx.numpy_helper.to_array(other.graph.initializer[0]).copy()
    changed.flat[0] += 1
    other.graph.initializer[0].CopyFrom(
        onnx.numpy_helper.from_array(changed, other.graph.initializer[0].name)
    )
    assert digest_of(import_onnx(other)) != digest_of(one)


def test_a_model_with_quantization_of_its_own_is_told() -> None:
    n = Network()
    y = n("DequantizeLinear", "x", n.constant(np.array(0.5, np.float32)))
    model = n.model({"x": ("UINT8", [2, 3])}, {y: ("FLOAT", [2, 3])})
    assert has_quantization(cleaned(model))
    assert not has_quantization(cleaned(residual_network()))


def test_tensors_are_tied_that_pools_movements_and_concatenations_make_of_others() -> None:
    n = Network()
    stem = n("Relu", n("Conv", "x", n.weight(8, 4, 1, 1)))
    pooled = n("MaxPool", stem, kernel_shape=[2, 2], strides=[2, 2])
    deep = n("Conv", pooled, n.weight(8, 8, 1, 1))
    turned = n("Transpose", pooled, perm=[0, 1, 3, 2])
    both = n("Concat", n("Relu", deep), turned, axis=1)
    sums = n("Conv", stem, n.weight(8, 8, 1, 1))
    y = n("Conv", both, n.weight(4, 16, 1, 1))
    model = n.model({"x": ("FLOAT", [1, 4, 8, 8])}, dict.fromkeys((y, sums), ("FLOAT", None)))
    found = plan(model)
    assert found.ties == [(stem, pooled), (pooled, both)]
