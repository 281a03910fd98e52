"""Shape inference (and verifier and text) of the ONNX node cases with every size of every input a symbol.

Inferred sizes are compared with those that the reference interpreter's results have; small integer inputs (shapes,
axes, pads) become constants, so that contents are followed too.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.e2e.onnx_compiled import symbolic
from tests.e2e.onnx_node_cases import NodeCase, node_cases
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.verifier import verify_module
from xcompile.compiler.support.dims import Dim, evaluate, symbol, symbols_of
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.shapes import ShapeAnalysis
from xcompile.frontends.onnx.importer import import_onnx

PARTS = 12

UNSUPPORTED = {"XC1006", "XC1007", "XC1012", "XC2010"}
"""Refused by the importer; XC2010: a rank or a padding that only fixed sizes give."""


def infer(module: Module, arrays: list[np.ndarray]) -> tuple[list[tuple[Dim, ...]], ShapeAnalysis]:
    shapes = [
        tuple(symbol(f"x{i}_{axis}") for axis in range(array.ndim))
        for i, array in enumerate(arrays)
    ]
    with module.context:
        analysis = ShapeAnalysis(module.main, shapes)
        terminator = list(module.main.regions[0].blocks[0].operations)[-1].operation
        return [analysis.shape(value) for value in terminator.operands], analysis


def check_text(module: Module) -> None:
    """Raise when the text of the module does not parse back to the same text."""
    text = module.text()
    with module.context, ir.Location.unknown():
        assert ir.Module.parse(text).operation.get_asm() == text


def check(case: NodeCase) -> None:
    """Raise when inferred sizes are not those of the results, or a check of the analysis does not hold."""
    model, arrays = symbolic(case)
    module = import_onnx(model)
    verify_module(module)
    check_text(module)
    shapes, analysis = infer(module, arrays)
    env = {f"x{i}_{axis}": n for i, a in enumerate(arrays) for axis, n in enumerate(a.shape)}

    def known(*dims: Dim) -> bool:
        return all(name in env for dim in dims for name in symbols_of(dim))

    for shape, result in zip(shapes, interpret(module, arrays), strict=True):
        assert len(shape) == result.ndim
        found = [
            evaluate(d, env) if known(d) else n for d, n in zip(shape, result.shape, strict=True)
        ]
        assert found == list(result.shape), f"{shape} for {result.shape}"
    for left, right, text in analysis.constraints:
        assert not known(left, right) or evaluate(left, env) == evaluate(right, env), text


@pytest.mark.parametrize("part", range(PARTS))
def test_sizes_inferred_from_symbols_are_those_of_the_results(part: int) -> None:
    failures: list[str] = []
    passed = 0
    for case in node_cases()[part::PARTS]:
        if not all(isinstance(v, np.ndarray | np.generic) for v in case.data[0][0]):
            continue  # sequences and optional values
        try:
            check(case)
            passed += 1
        except CompileError as error:
            if error.code not in UNSUPPORTED:
                failures.append(f"{case.name}: {error}")
        except AssertionError as error:
            failures.append(f"{case.name}: {' '.join(str(error).split())[:300]}")
    assert failures == []
    assert passed > 80
