"""Ops that are computed in float16 where the target has its arithmetic: why the results are float32's, and the code."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from tests.e2e.compiled_node import shared_pool
from xcompile.compiler.driver import plan_module
from xcompile.compiler.request import Request
from xcompile.compiler.target.registry import targets
from xcompile.frontends.onnx.importer import import_onnx

BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "Equal")
UNARY = ("Sqrt", "Abs", "Neg", "Relu", "Floor", "Ceil", "Round", "Exp")


def half_model(size: int, ops: tuple[str, ...]) -> ModelProto:
    """Each op of x, and of x and y, by its own name."""
    kinds = {op: TensorProto.BOOL if op in ("Less", "Equal") else TensorProto.FLOAT16 for op in ops}
    nodes = [helper.make_node(op, ["x", "y"] if op in BINARY else ["x"], [op], op) for op in ops]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, [size]) for n in "xy"]
    outputs = [helper.make_tensor_value_info(op, kind, [size]) for op, kind in kinds.items()]
    graph = helper.make_graph(nodes, "half", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])


def assert_rounds_once(operation: Callable[..., np.ndarray], *operands: np.ndarray) -> None:
    """float32 rounded to float16 is what float64, whose rounding is far from float16's, gives."""
    with np.errstate(all="ignore"):
        twice = operation(*(v.astype(np.float32) for v in operands)).astype(np.float16)
        once = operation(*(v.astype(np.float64) for v in operands)).astype(np.float16)
    np.testing.assert_array_equal(twice.view(np.uint16), once.view(np.uint16))


def test_square_roots_of_all_numbers_round_once() -> None:
    assert_rounds_once(np.sqrt, np.arange(0x7C00, dtype=np.uint16).view(np.float16))


@pytest.mark.parametrize("exponent", [-24, -14, 0, 15])
def test_quotients_of_all_mantissas_round_once(exponent: int) -> None:
    """Down to results that are denormal, whose last place is another one."""
    mantissas = np.arange(1024, 2048, dtype=np.float64)
    x = np.ldexp(mantissas, max(exponent, -14) - 10).astype(np.float16)
    y = np.ldexp(mantissas, -10 - min(exponent + 14, 0)).astype(np.float16)
    assert_rounds_once(np.divide, x[:, None], y[None, :])


@pytest.mark.parametrize("exponent", [-14, 0, 4])
@pytest.mark.parametrize("distance", [0, 1, 9, 10, 11, 12, 13])
def test_sums_and_products_of_all_mantissas_round_once(exponent: int, distance: int) -> None:
    mantissas = np.arange(1024, 2048, dtype=np.float64)
    x = np.ldexp(mantissas, exponent - 10 + (distance if exponent < 0 else 0)).astype(np.float16)
    y = np.ldexp(mantissas, exponent - 10 - (0 if exponent < 0 else distance)).astype(np.float16)
    for operation in (np.add, np.subtract, np.multiply):
        assert_rounds_once(operation, x[:, None], y[None, :])


def listing(name: str, *ops: str) -> str:
    """The assembly of the kernels of a model of these ops."""
    _, jobs = plan_module(import_onnx(half_model(4096, ops)), Request(targets()[name]))
    kernels = [replace(job, listing=True) for job in jobs.values() if job.kernel]
    return "\n".join(result.assembly or "" for result in shared_pool().map(kernels))


@pytest.mark.parametrize(
    ("op", "instruction"),
    [
        ("Add", "fadd"), ("Sub", "fsub"), ("Mul", "fmul"), ("Div", "fdiv"), ("Sqrt", "fsqrt"), ("Max", "fmax"),
        ("Relu", "fcmlt"), ("Floor", "frintm"),
    ],
)  # fmt: skip
def test_eight_numbers_are_one_instruction(op: str, instruction: str) -> None:
    assembly = listing("arm-dotprod", op)
    assert re.search(rf"\t{instruction}\tv\d+\.8h", assembly)
    assert not re.search(r"\tfcvt|\.4s", assembly)


@pytest.mark.parametrize(("name", "op"), [("arm-neon", "Add"), ("arm-dotprod", "Exp")])
def test_what_rounds_in_between_or_has_no_instruction_is_computed_in_float32(
    name: str, op: str
) -> None:
    assembly = listing(name, op)
    assert re.search(r"\tfcvtn", assembly)
    assert not re.search(r"\tf(add|mul|mla)\tv\d+\.8h", assembly)
