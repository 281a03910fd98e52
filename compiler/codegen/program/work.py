"""How much there is to do in a kernel, in vector instructions of its target: what a cost model multiplies.

Counted from shapes and the form of the products, with the lanes and the elements of k that padding fills.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xcompile.compiler.codegen.cpu.family import Kernel, Plan
from xcompile.compiler.codegen.cpu.pull import memory_dtype
from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.ir.op import Op
from xcompile.compiler.schedule.products import ProductForm, product_form
from xcompile.compiler.schedule.schedule import ScheduleError
from xcompile.compiler.schedule.winograd import WinogradSchedule
from xcompile.compiler.support.dims import Dim, ceildiv, product
from xcompile.dialects.nn.base import Shape, dtype_of
from xcompile.dialects.nn.cost import flops
from xcompile.dialects.nn.kinds import is_elementwise

_INSTRUCTIONS = {"pairs": 2, "smull": 3}
"""Instructions of a multiply-add that is not one: a product of pairs is added, pairs of products too."""

_WEIGHTS = {
    "nn.div": 5, "nn.sqrt": 5, "nn.reciprocal": 5, "nn.exp": 12, "nn.log": 16, "nn.sigmoid": 18, "nn.tanh": 18,
    "nn.erf": 20, "nn.gelu": 24, "nn.silu": 20, "nn.softplus": 28, "nn.elu": 16, "nn.hard_swish": 4, "nn.pow": 30,
    "nn.lookup": 8, "nn.softmax": 22, "nn.log_softmax": 24, "nn.fused_attention": 0,
}  # fmt: skip
"""Vector instructions of an element; 1 where there is no other number."""

_NORMALIZATION = 8
_TRANSFORM = 4
"""Instructions for each element that Winograd's algorithm transforms."""


@dataclass(frozen=True)
class Work:
    """What a kernel has to do, over its own symbols.

    Attributes:
        form: the instruction of its products, see `ProductForm`; "" when it has none.
        products: vector instructions of the products.
        steps: vector instructions of everything else.
    """

    form: str
    products: Dim
    steps: Dim


def work_of(kernel: Kernel, plan: Plan) -> Work:
    """Count what a kernel has to do as it is planned; nothing is counted for a GPU, which has other instructions."""
    if kernel.target.device is not None:
        return Work("", 0, 0)
    form, products, steps = "", 0, 0
    for op in kernel.ops:
        made = _form(kernel, op)
        if made is not None:
            form = made.instruction
            amount, more = _products(kernel, op, made, plan)
            products, steps = products + amount, steps + more
        steps = steps + _steps(kernel, op)
    return Work(form, products, steps)


def _form(kernel: Kernel, op: Any) -> ProductForm | None:
    """The form of the products of an op, if it has some."""
    if op.NAME in ("nn.fused_attention", "nn.lstm", "nn.gru", "nn.rnn", "nn.matmul_blocked"):
        return product_form("f32", "f32", kernel.target)
    if op.NAME not in (
        "nn.conv",
        "nn.conv_integer",
        "nn.matmul",
        "nn.matmul_integer",
        "nn.conv_transpose",
    ):
        return None
    try:
        return product_form(dtype_of(op.operands[0]), dtype_of(op.operands[1]), kernel.target)
    except ScheduleError:
        return product_form("f32", "f32", kernel.target)


def _products(kernel: Kernel, op: Any, form: ProductForm, plan: Plan) -> tuple[Dim, Dim]:
    """The instructions of the products of an op, and those that are needed besides."""
    lanes = kernel.target.lanes(32)
    each = _INSTRUCTIONS.get(form.instruction, 1)
    if op.NAME in ("nn.matmul", "nn.matmul_integer"):
        depth = kernel.shape(op.a)[-2 if op.transpose_a else -1]
        *rows, columns = kernel.shape(op.y) or (1,)
        return each * product(rows) * ceildiv(columns, lanes) * ceildiv(depth, form.group), 0
    if op.NAME not in ("nn.conv", "nn.conv_integer"):
        return ceildiv(flops([op], kernel.sizes), 2 * lanes), 0
    n, channels, *pixels = kernel.shape(op.y)
    weight = kernel.shape(op.w)
    if isinstance(plan.schedule, WinogradSchedule):
        return _winograd(n, weight, pixels, plan.schedule.m, lanes)
    window = product(weight[2:])
    if weight[1] == 1 and op.groups > 1:
        taps = each * ceildiv(window, form.group)
        return n * product(pixels) * ceildiv(channels, lanes) * taps, 0
    vectors = op.groups * ceildiv(ceildiv(channels, op.groups), lanes)
    return each * n * product(pixels) * vectors * window * ceildiv(weight[1], form.group), 0


def _winograd(n: Dim, weight: Shape, pixels: Sequence[Dim], m: int, lanes: int) -> tuple[Dim, Dim]:
    outputs, inputs = weight[:2]
    cells = n * product(ceildiv(size, m) for size in pixels) * (m + 2) ** 2
    products = cells * inputs * ceildiv(outputs, lanes)
    return products, _TRANSFORM * cells * ceildiv(inputs + outputs, lanes)


def _steps(kernel: Kernel, op: Any) -> Dim:
    """The instructions of what an op does that is no product."""
    if op.NAME in ("nn.max_pool", "nn.average_pool"):
        return _vectors(kernel, op, kernel.shape(op.y)) * product(op.kernel)
    if op.NAME.startswith(("nn.reduce_", "nn.arg")):
        return _vectors(kernel, op, kernel.shape(op.x))
    if op.NAME.endswith("_norm"):
        return _NORMALIZATION * _vectors(kernel, op, kernel.shape(op.x))
    if op.NAME == "nn.fused_attention":
        scores = product(kernel.shape(op.q)[:-1]) * kernel.shape(op.k)[-2]
        return _WEIGHTS["nn.softmax"] * ceildiv(scores, kernel.target.lanes(32))
    if not op.results or op.NAME in (
        "nn.conv",
        "nn.conv_integer",
        "nn.matmul",
        "nn.matmul_integer",
    ):
        return 0
    known = (
        is_elementwise(op.NAME) or op.NAME in _WEIGHTS or op.NAME in ("nn.concat", "nn.transpose")
    )
    return (
        _WEIGHTS.get(op.NAME, 1) * _vectors(kernel, op, kernel.shape(op.results[0])) if known else 0
    )


def _vectors(kernel: Kernel, op: Op, shape: Shape) -> Dim:
    """Vectors of the op's widest elements that a tensor has."""
    kinds = [dtype_of(value) for value in (*op.operands, *op.results)]
    bits = max((bits_of(kind) for kind in kinds if memory_dtype(kind)), default=32)
    return ceildiv(product(shape), kernel.target.lanes(max(bits, 8)))
