"""How many operations ops take, for reports: counted from shapes alone, independent of any kernel and element type."""

from collections.abc import Sequence
from typing import Any

from xcompile.compiler.ir.op import Op
from xcompile.compiler.support.dims import Dim, product
from xcompile.dialects.nn.base import Sizes
from xcompile.dialects.nn.kinds import is_elementwise


def flops(ops: Sequence[Op], sizes: Sizes) -> Dim:
    """Operations of all ops together; a multiplication and an addition are two, a function of one element is one."""
    total: Dim = 0
    for op in ops:
        total = total + _of(op, sizes)
    return total


def _of(op: Any, sizes: Sizes) -> Dim:
    if op.NAME in ("nn.conv", "nn.conv_integer", "nn.conv_transpose"):
        weight = sizes.shape(op.w)
        outer = sizes.shape(op.x if op.NAME == "nn.conv_transpose" else op.y)
        inner = product(weight[1:])
        return 2 * product(outer) * inner
    if op.NAME in ("nn.matmul", "nn.matmul_integer", "nn.matmul_blocked"):
        shape = sizes.shape(op.a)
        depth = -2 if op.transpose_a and len(shape) > 1 else -1
        return 2 * product(sizes.shape(op.y)) * shape[depth]
    if op.NAME == "nn.fused_attention":
        scores = product(sizes.shape(op.q)[:-1]) * sizes.shape(op.k)[-2]
        return 2 * scores * (sizes.shape(op.q)[-1] + sizes.shape(op.v)[-1]) + 4 * scores
    if op.NAME in ("nn.max_pool", "nn.average_pool", "nn.lp_pool"):
        return product(sizes.shape(op.y)) * product(op.kernel)
    if op.NAME.startswith(("nn.reduce_", "nn.arg")):
        return product(sizes.shape(op.x))
    if op.NAME in ("nn.softmax", "nn.log_softmax"):
        return 4 * product(sizes.shape(op.y))
    if op.NAME.endswith("_norm"):
        return 6 * product(sizes.shape(op.x))
    return product(sizes.shape(op.results[0])) if is_elementwise(op.NAME) else 0
