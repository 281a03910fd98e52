"""nn-decompose-attention on the Attention cases of the ONNX backend suite."""

import pytest

from tests.e2e.onnx_node_cases import NodeCase, node_cases
from tests.e2e.onnx_reference import read_ledger
from tests.numerics.test_passes import run
from xcompile.compiler.ir.mlir import ir
from xcompile.frontends.onnx.importer import import_onnx

SHORT_MASKS = ("causal_padded_kv_bf16", "diff_heads_mask4d_padded_kv", "4d_padded_kv_bf16")
"""Cases whose mask has fewer keys than there are, which the pass leaves alone."""


def cases() -> list[NodeCase]:
    """The cases of the op itself that the importer takes."""
    ledger = read_ledger()
    found = [c for c in node_cases() if c.ops == {"Attention"} and c.name not in ledger]
    assert len(found) > 70
    return found


def left_after(pipeline: str, case: NodeCase) -> list[str]:
    """The ops that are left; results before and after are compared on the way."""
    module = import_onnx(case.model)
    with module.context, ir.Location.unknown():
        tolerance = 2e-2 if "16" in case.name else 1e-5
        return run(pipeline, module, *case.data[0][0], tolerance=tolerance)


@pytest.mark.parametrize("part", range(4))
def test_every_case_decomposes_into_the_same_results(part: int) -> None:
    for case in cases()[part::4]:
        stays = case.name.endswith(SHORT_MASKS)
        assert ("attention" in left_after("nn-decompose-attention", case)) == stays, case.name


def test_plain_attention_becomes_the_fused_op_of_the_kernels() -> None:
    (case,) = [c for c in cases() if c.name == "test_attention_4d"]
    assert left_after("nn-decompose-attention,nn-fuse-attention,dce", case) == ["fused_attention"]
