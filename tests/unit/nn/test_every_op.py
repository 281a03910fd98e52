"""No op of the nn dialect is without a meaning, a shape rule and a model that is known to need it."""

import pytest

from tests.e2e.onnx_node_cases import node_cases
from xcompile.compiler.ir.context import new_context
from xcompile.compiler.ir.rewrite import walk
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, nn
from xcompile.dialects.nn.control import ControlOp
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.frontends.onnx.registry import load_converters

ELSEWHERE = {
    "nn.channel_shuffle": "tests/numerics/test_passes.py",
    "nn.fail": "tests/unit/frontends/test_onnx_control.py",
    "nn.fused_attention": "tests/numerics/test_decompose_attention.py",
    "nn.lookup": "tests/unit/nn/test_lookup.py",
    "nn.matmul_blocked": "tests/unit/nn/test_blocked.py",
    "nn.max_pool_with_indices": "tests/unit/nn/test_pools.py",
    "nn.max_roi_pool": "tests/unit/nn/test_sampling.py",
    "nn.relayout": "tests/numerics/test_levels.py",
}
"""Ops that no node case imports to, and the tests that run their references."""


@pytest.mark.parametrize("name", sorted(set(nn.ops) - {"const"}))
def test_an_op_has_a_reference_and_a_shape_rule(name: str) -> None:
    op = nn.ops[name]
    controls = issubclass(op, ControlOp) and op.run is not ControlOp.run
    assert controls or callable(getattr(op, "reference", None))
    assert getattr(op, "infer") is not NnOp.infer  # noqa: B009


def test_every_op_is_reached_by_a_node_case_of_onnx() -> None:
    load_converters()
    context = new_context()
    reached: set[str] = set()
    tried: set[frozenset[str]] = set()
    for case in node_cases():
        ops = frozenset(case.ops)
        if ops in tried:
            continue
        try:
            module = import_onnx(case.model, context=context)
        except CompileError:
            continue
        tried.add(ops)
        reached |= {operation.name for operation in walk(module)}
    assert {op.NAME for op in nn.ops.values()} - reached == set(ELSEWHERE)
