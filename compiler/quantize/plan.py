"""What is quantized: which products become products of integers, and which tensors have 8 bits between them.

A product (a convolution or a matrix product) is quantized with its input. Everything else follows from that: later
passes move quantization through what only moves or compares numbers. Two kinds of tensors that no product reads are
quantized too, so that no float32 tensor lies in memory between integer products: what an average is taken of, and one
of two products' results that an elementwise op joins (the other one is finished by that op before it is stored).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.rewrite import maker
from xcompile.compiler.quantize.names import op_names, tensor_names
from xcompile.compiler.support.precision_map import PrecisionMap
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.elementwise import Binary, Elementwise
from xcompile.dialects.nn.kinds import MOVEMENT
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.pool import AveragePool
from xcompile.dialects.nn.reduce import ReduceMean
from xcompile.dialects.nn.resize import Resize
from xcompile.dialects.nn.slicing import Concat

MOST_TERMS = (2**31 - 1) // (255 * 128)
"""So many products of 8-bit numbers are summed in int32 without overflow, whatever the numbers."""

INT8 = PrecisionMap("int8")
"""All in 8-bit integers, as far as possible."""

KEPT_IN_FLOAT = "KeptInFloat"
"""What the pass that quantizes calls it when it leaves a product as it is."""

_MOVES = MOVEMENT | {"nn.max_pool", "nn.concat"}
"""Ops whose result consists of numbers of their first operand, or of operands like it."""

_WHOLE = {
    "nn.fused_attention": "attention is computed as a whole, in floating point",
    **dict.fromkeys(("nn.rnn", "nn.gru", "nn.lstm"), "recurrent layers are in floating point"),
}
"""Ops with products inside that stay as they are, and why."""


@dataclass(frozen=True)
class Product:
    """A convolution or matrix product that becomes one of integers.

    Attributes:
        op: the op.
        name: of the tensor that it gives.
        x: the input.
        weights: float32 [output channels, ...]: a row a channel.
        channel_axis: of the input, the axis that the rows' second axis belongs to (in groups).
    """

    op: Conv | MatMul | ConvTranspose
    name: str
    x: Value
    weights: np.ndarray
    channel_axis: int


@dataclass
class QuantizationPlan:
    """What is to be quantized in a module, in the order of its text.

    Attributes:
        products: that become integer.
        tensors: the values that get 8 bits, by name.
        channel_axes: of the tensors that are inputs of products.
        floats: why each other product stays in floating point.
        ties: pairs of tensors with 8 bits, of which the second consists of numbers of the first, and of others.
    """

    products: list[Product] = field(default_factory=list[Product])
    tensors: dict[str, Value] = field(default_factory=dict[str, Value])
    channel_axes: dict[str, int] = field(default_factory=dict[str, int])
    floats: dict[Op, str] = field(default_factory=dict[Op, str])
    ties: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def plan_quantization(module: Module, precisions: PrecisionMap = INT8) -> QuantizationPlan:
    """Decide what is quantized in a module of the nn level that `@clean` has passed.

    Args:
        module: stays as it is. Ops in branches and loops stay in floating point.
        precisions: what else than int8 an op is to be computed in.
    """
    return _Planner(module, precisions).run()


class _Planner:
    def __init__(self, module: Module, precisions: PrecisionMap) -> None:
        self._module = module
        self._names = tensor_names(module)
        self._precisions = precisions
        self._plan = QuantizationPlan()
        self._chosen = set[Value]()
        self._order: dict[Value, int] = {}
        self._whole = dict[Value, bool]()
        """Values that come from integer products by elementwise ops."""

    def run(self) -> QuantizationPlan:
        operations = list(self._module.main.regions[0].blocks[0].operations)[:-1]
        ops = [op for o in operations if (op := view(o.operation)) is not None]
        for op in ops:
            self._order.update(dict.fromkeys(op.results, len(self._order)))
            if isinstance(op, Conv | MatMul | ConvTranspose):
                self._visit_product(op)
            elif op.NAME in _WHOLE:
                self._plan.floats[op] = self._kept(op) or _WHOLE[op.NAME]
        for op in ops:
            self._visit_join(op)
        chosen = sorted(self._chosen, key=lambda v: (self._order.get(v, -1), self._names[v]))
        self._plan.tensors = {self._names[v]: v for v in chosen}
        self._plan.ties = [
            (self._names[source], self._names[v]) for v in chosen for source in self._sources(v)
        ]
        return self._plan

    def _visit_product(self, op: Conv | MatMul | ConvTranspose) -> None:
        made = self._kept(op) or self._product(op)
        if isinstance(made, str):
            self._plan.floats[op] = made
            return
        self._plan.products.append(made)
        self._chosen.add(made.x)
        self._plan.channel_axes[self._names[made.x]] = made.channel_axis
        self._whole.update(dict.fromkeys(op.results, True))

    def _sources(self, value: Value) -> list[Value]:
        """The tensors with 8 bits that a value is made of without arithmetic, in order."""
        found: list[Value] = []
        waiting = [value]
        while waiting:
            current = waiting.pop(0)
            if current != value and current in self._chosen:
                found.append(current)
                continue
            op = maker(current)
            if isinstance(op, Concat):
                waiting += op.xs
            elif op is not None and _moves(op):
                waiting.append(op.operands[0])
        return list(dict.fromkeys(found))

    def _kept(self, op: Op) -> str | None:
        names = op_names(op, self._names)
        if self._precisions.of(names) == INT8.default:
            return None
        return (
            self._precisions.reason(names) or f"the model is computed in {self._precisions.default}"
        )

    def _product(self, op: Conv | MatMul | ConvTranspose) -> Product | str:
        """The product, or why it stays in floating point."""
        if isinstance(op, Conv | ConvTranspose):
            x, w, channel_axis = op.x, const_of(op.w), 1
        else:
            x, w, channel_axis = op.a, const_of(op.b), rank_of(op.a) - 1
        if dtype_of(x) != "f32":
            return f"its operands are {dtype_of(x)}"
        if const_of(x) is not None:
            return "its input is a constant"
        if w is None:
            return "its weights are no constant"
        weights = w.array(self._module.weights)
        if isinstance(op, ConvTranspose):
            if op.groups > 1:
                return "its groups share the scales of weights"
            if _drops_windows(op, weights.shape[2:]):
                return "its padding drops whole windows"
            weights = weights.swapaxes(0, 1)
        if isinstance(op, MatMul):
            if op.transpose_a:
                return "its input is read transposed"
            if weights.ndim != 2:
                return f"its weights have {weights.ndim} axes"
            weights = weights if op.transpose_b else weights.T
        return self._checked(Product(op, self._names[op.y], x, weights, channel_axis))

    def _checked(self, product: Product) -> Product | str:
        weights = product.weights
        if not np.isfinite(weights).all():
            return "a weight is NaN or infinite"
        terms = weights.size // max(weights.shape[0], 1)
        if not terms:
            return "it has no weights"
        if terms > MOST_TERMS:
            return f"{terms} products of 8 bits may overflow a sum of 32 bits"
        return product

    def _visit_join(self, op: Op) -> None:
        """Follow integer products through elementwise ops, and choose what is quantized between them."""
        if isinstance(op, AveragePool | ReduceMean):
            if self._whole.get(op.x) and self._kept(op) is None:
                self._chosen.add(op.x)
            return
        if op.NAME in _MOVES and self._whole.get(op.operands[0]):
            self._whole.update(dict.fromkeys(op.results, True))
        if not isinstance(op, Elementwise) or any(dtype_of(v) != "f32" for v in op.results):
            return
        inputs = [v for v in op.operands if const_of(v) is None]
        joined = [v for v in dict.fromkeys(inputs) if self._whole.get(v)]
        if joined and not _is_number(op):
            self._whole.update(dict.fromkeys(op.results, True))
        stored = [v for v in joined if v not in self._chosen]
        if isinstance(op, Binary) and len(stored) > 1 and self._kept(op) is None:
            self._chosen.add(min(stored, key=self._order.__getitem__))


def _moves(op: Op) -> bool:
    """Whether an op's result consists of numbers of its first operand."""
    nearest = isinstance(op, Resize) and op.mode == "nearest"
    return nearest or op.NAME in _MOVES or op.NAME == "nn.split"


def _drops_windows(op: ConvTranspose, kernel: Sequence[int]) -> bool:
    """Whether padding takes away all that an input at an edge gives."""
    rank = len(kernel)
    for axis, taps in enumerate(kernel):
        span = (taps - 1) * op.dilations[axis] + 1
        if max(op.pads[axis], op.pads[axis + rank] - op.output_pads[axis]) >= span:
            return True
    return False


def _is_number(op: Op) -> bool:
    """Whether the op gives one number for all, which says nothing of what it came from."""
    return all(not rank_of(v) for v in op.results)


def has_quantization(module: Module) -> bool:
    """Whether a model says itself what is quantized."""
    names = ("nn.quantize", "nn.dequantize", "nn.conv_integer", "nn.matmul_integer")
    block = module.main.regions[0].blocks[0]
    return any(o.operation.name in names for o in block.operations)
