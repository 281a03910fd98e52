"""The cost model: what a launch does is counted from its shapes and its target, and speed is predicted from that."""

import pytest

import xcompile
from tests.e2e.networks import Network
from xcompile.compiler.costs import COSTS, Features, cost_of, cycles, features_of
from xcompile.compiler.prediction import predict
from xcompile.compiler.quantize.observers import Range
from xcompile.compiler.quantize.table import CalibrationTable, Observed


def dense(k=256, n=512):
    """One matrix product of open rows."""
    net = Network()
    y = net("MatMul", "x", net.weight(k, n, scale=0.1))
    return net.model({"x": ("FLOAT", ["N", k])}, {y: ("FLOAT", ["N", n])})


def table_of(model):
    """A table with the range of the input, without running the model."""
    from xcompile.compiler.quantize.names import digest_of
    from xcompile.frontends.onnx.importer import import_onnx

    digest = digest_of(import_onnx(model))
    return CalibrationTable("m", digest, "min-max", 1, {"x": Observed(Range(-4.0, 4.0))})


@pytest.mark.parametrize(
    ("target", "form", "products"),
    [
        ("x86-avx2", "fma", 32 * (512 // 8) * 256),
        ("x86-avx512", "fma", 32 * (512 // 16) * 256),
        ("x86-avx2-int8", "pairs", 2 * 32 * (512 // 8) * (256 // 2)),
        ("x86-vnni-int8", "vpdpbusd", 32 * (512 // 16) * (256 // 4)),
        ("arm-neon", "fma", 32 * (512 // 4) * 256),
        ("arm-dotprod-int8", "sdot", 32 * (512 // 4) * (256 // 4)),
    ],
)
def test_the_instructions_of_products_are_counted(target, form, products):
    from xcompile.compiler.api import make_request
    from xcompile.compiler.driver import plan_module
    from xcompile.frontends.onnx.importer import import_onnx

    model = dense()
    given = {"calibration_table": table_of(model)} if target.endswith("int8") else {}
    request, _ = make_request(target, **given)
    artifact, _ = plan_module(import_onnx(model), request)
    (found,) = [f for f in features_of(artifact, request.target, [(32, 256)]) if f.form]
    assert (found.family, found.form) == ("contraction", form)
    assert found.products == products / request.target.fma_ports


def test_open_sizes_count_and_are_told():
    model = dense()
    table = table_of(model)
    few, many = (
        predict(model, "x86-vnni-int8", sizes={"N": n}, calibration_table=table) for n in (1, 512)
    )
    assert 1.0 < few.speedup < many.speedup < 5.0
    assert few.cycles < many.cycles
    assert str(many).startswith(f"predicted: {many.speedup:.2f} times as fast as in float32, ")
    assert str(many).endswith("where N = 512")


def test_without_dot_products_arithmetic_gains_little():
    model = dense()
    table = table_of(model)
    plain, dot = (
        predict(model, name, sizes={"N": 512}, calibration_table=table).speedup
        for name in ("x86-avx2-int8", "x86-vnni-int8")
    )
    assert plain < 1.7
    assert dot > 2.0


def test_the_model_of_a_quantized_file_is_compared_with_its_float_model():
    model = dense()
    prediction = predict(model, "cpu", floating=model)
    assert prediction.speedup == 1.0
    assert {row.arithmetic for row in prediction.rows} == {"float32"}


def test_every_cost_is_a_time():
    for cost in COSTS.values():
        assert min(cost.products, cost.steps, cost.traffic, cost.launch) >= 0
        assert max(cost.products, cost.steps, cost.traffic, cost.launch) > 0


def test_what_was_never_measured_has_a_cost_of_its_family_or_a_general_one():
    assert cost_of("contraction", "smmla") in [
        c for (name, _), c in COSTS.items() if name == "contraction"
    ]
    assert cycles(Features("new", "", 0.0, 1000.0, 100.0)) > 1000


def test_the_package_offers_it():
    assert xcompile.predict is predict
