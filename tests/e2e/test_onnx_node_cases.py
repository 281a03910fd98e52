"""The node cases of the ONNX backend suite through importer, shape inference and reference interpreter."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.e2e.onnx_node_cases import NodeCase, node_cases
from xcompile.compiler.ir.module import Module
from xcompile.compiler.support.dims import Expr
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.shapes import ShapeAnalysis
from xcompile.frontends.onnx.importer import import_onnx

PARTS = 12

REFUSED = re.compile(
    "FLOAT4E2M1|INT2|E8M0|string|identity_(opt|sequence)"  # data types the compiler does not have
    "|test_not_[234]d"  # opset 1
    "|test_(un)?squeeze"  # axes that are an input of the model: the rank of the result is not known
)
"""Cases of ops in the table that are refused all the same, and have to be."""

HALF = (5e-2, 1e-2)
"""Relative and absolute tolerance of functions expanded to ops in 16-bit floats, each of which rounds."""


def check(case: NodeCase) -> None:
    """Raise an AssertionError or CompileError when the case does not give what it should."""
    module = import_onnx(case.model)
    shapes = inferred_shapes(module)
    expanded = re.search("(bf16|fp16).*_expanded", case.name)
    rtol, atol = HALF if expanded else (case.rtol, case.atol)
    for inputs, expected in case.data:
        for got, wanted, shape in zip(interpret(module, inputs), expected, shapes, strict=True):
            wanted = np.asarray(wanted)
            assert got.dtype == wanted.dtype
            assert got.shape == wanted.shape
            assert all(isinstance(d, Expr) or d == n for d, n in zip(shape, got.shape, strict=True))
            compare(got, wanted, rtol, atol)


def inferred_shapes(module: Module) -> list[tuple[object, ...]]:
    with module.context:
        analysis = ShapeAnalysis(module.main)
        terminator = list(module.main.regions[0].blocks[0].operations)[-1].operation
        return [analysis.shape(value) for value in terminator.operands]


def compare(got: np.ndarray, wanted: np.ndarray, rtol: float, atol: float) -> None:
    if got.dtype.kind in "fV":
        got, wanted = got.astype(np.float64), wanted.astype(np.float64)
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("part", range(PARTS))
def test_every_case_of_a_supported_op_gives_the_expected_outputs(part: int) -> None:
    failures: list[str] = []
    passed = 0
    for case in node_cases()[part::PARTS]:
        try:
            check(case)
            passed += 1
        except CompileError as error:
            if error.code != "XC1006" and not REFUSED.search(case.name):
                failures.append(f"{case.name}: {error}")
        except AssertionError as error:
            failures.append(f"{case.name}: {' '.join(str(error).split())[:300]}")
    assert failures == []
    assert passed > 90
