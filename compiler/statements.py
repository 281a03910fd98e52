"""What each node of a model computes in, and why: noted before fusion, when every op still names its nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.artifact import Artifact, KernelFacts, NodeStatement
from xcompile.compiler.codegen.program.arithmetic import (
    FLOAT_PRODUCTS,
    INTEGER,
    arithmetic_of,
)
from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.location import node_names
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, view
from xcompile.compiler.ir.passes import Instrument, Pass, PassContext
from xcompile.compiler.ir.rewrite import walk
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.kinds import MOVEMENT

_FUSION = "kernel-form"
_BYTES = frozenset({"int8", "uint8"})
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_MOST_OPS = 6

_IN_FLOAT = {
    "nn.softmax": "softmax is computed in floating point",
    "nn.log_softmax": "softmax is computed in floating point",
    "nn.layer_norm": "normalization is computed in floating point",
    "nn.rms_norm": "normalization is computed in floating point",
    "nn.fused_attention": "attention is computed as a whole, in floating point",
    "nn.lstm": "recurrent layers are in floating point",
    "nn.gru": "recurrent layers are in floating point",
    "nn.rnn": "recurrent layers are in floating point",
}
"""Ops that integers do not serve, and why they stay as they are in a quantized model."""


_CONVERSIONS = frozenset({"nn.cast", "nn.sub", "nn.mul"})
"""What dequantization becomes, which has the node of the tensor that it dequantizes."""
_CONVERTERS = frozenset({"Cast", "CastLike", "DequantizeLinear", "Mul", "Sub"})
"""ONNX ops that become these themselves."""

_PRODUCT_NODES = ("Conv", "MatMul", "Gemm", "Einsum", "Attention", "LSTM", "GRU", "RNN")
"""Names of ONNX ops with products contain one of these."""


@dataclass(frozen=True)
class _OpFacts:
    """An op: its name, the types of its tensors, what it multiplies, the model nodes that it comes from."""

    name: str
    dtypes: tuple[str, ...]
    arithmetic: str
    nodes: tuple[str, ...]


class NoteOps(Instrument):
    """Remembers the ops of each model node as they are before fusion."""

    def __init__(self) -> None:
        self._ops: dict[str, list[_OpFacts]] = {}

    def before(self, pass_: Pass, module: Module, context: PassContext) -> None:
        if pass_.NAME != _FUSION:
            return
        self._ops = {}
        for operation in walk(module):
            op = view(operation)
            if op is None or isinstance(op, Const) or not op.results:
                continue
            nodes = node_names(operation.location) or [""]
            facts = _OpFacts(op.NAME, _dtypes(op), arithmetic_of([op]), tuple(nodes))
            for node in nodes:
                self._ops.setdefault(node, []).append(facts)

    def statements(self, artifact: Artifact, kinds: Mapping[str, str]) -> tuple[NodeStatement, ...]:
        """A statement for each node of a model, in its order.

        Args:
            artifact: the model's, with its program.
            kinds: what the model calls the op of each node, see `Module.kinds`.
        """
        launches: dict[str, list[KernelFacts]] = {}
        for launch in artifact.program.launches:
            for node in launch.node.split(" + "):
                launches.setdefault(node, []).append(artifact.kernels[launch.symbol])
        kept: dict[str, str] = {}
        for nodes, why in artifact.kept_float:
            kept.update(dict.fromkeys(nodes.split(" + "), why))
        quantized = any(facts.arithmetic == INTEGER for facts in artifact.kernels.values())
        found: list[NodeStatement] = []
        for node in dict.fromkeys(["", *kinds, *self._ops]):
            ops = self._own_ops(node, kinds.get(node, ""))
            if node or any(facts.name not in MOVEMENT for facts in ops):
                why = _Reasons(node, kinds, ops, launches.get(node, []), quantized=quantized)
                found.append(why.statement(kept.get(node)))
        return tuple(found)

    def _own_ops(self, node: str, kind: str) -> list[_OpFacts]:
        """The ops of a node: those of as few other nodes as there are, unless they only read what it has stored."""
        ops = self._ops.get(node, [])
        fewest = min((len(facts.nodes) for facts in ops), default=0)
        own = [facts for facts in ops if len(facts.nodes) == fewest]
        converts = {facts.name for facts in own} <= _CONVERSIONS
        return ops if converts and kind not in _CONVERTERS else own


class _Reasons:
    """Why a node computes in what it does."""

    def __init__(
        self,
        node: str,
        kinds: Mapping[str, str],
        ops: Sequence[_OpFacts],
        kernels: Sequence[KernelFacts],
        *,
        quantized: bool,
    ) -> None:
        self._node, self._kinds, self._ops, self._kernels = node, kinds, ops, kernels
        self._quantized = quantized
        self._names = {facts.name for facts in ops}
        self._stores = ", ".join(dict.fromkeys(kernel.stores for kernel in kernels))

    def statement(self, kept: str | None) -> NodeStatement:
        """What is said of the node, with why its products were kept in floating point if they were."""
        arithmetic = _arithmetic(self._ops)
        if arithmetic == "none":
            why = "nothing is left to compute: constant, a size, or merged into its neighbours"
        elif not self._node:
            why = "the compiler converts inputs"
        elif arithmetic == INTEGER:
            why = self._integer()
        elif arithmetic.startswith("w"):
            why = "weights are integers, products in floating point"
        elif arithmetic in _FLOATS:
            why = kept or self._float()
        else:
            why = "indices, sizes and conditions are whole numbers"
        names = list(dict.fromkeys(facts.name.removeprefix("nn.") for facts in self._ops))
        more = ["…"] if len(names) > _MOST_OPS else []
        ops = " + ".join([*names[:_MOST_OPS], *more])
        kind = self._kinds.get(self._node, "")
        return NodeStatement(self._node, kind, ops, arithmetic, self._stores, why)

    def _integer(self) -> str:
        if any(facts.arithmetic == INTEGER for facts in self._ops):
            others = [n for n in self._ops[0].nodes if n != self._node and self._is_product(n)]
            if others and not self._is_product(self._node):
                return f"merged into the product '{others[0]}'"
            return "products of 8 bits, summed in int32"
        if "nn.lookup" in self._names:
            return "a table of bytes"
        return "bytes are moved" if self._names <= MOVEMENT else "bytes are compared and moved"

    def _is_product(self, node: str) -> bool:
        return any(part in self._kinds.get(node, "") for part in _PRODUCT_NODES)

    def _float(self) -> str:
        if not self._quantized:
            return "the model is in floating point"
        stays = next((_IN_FLOAT[f.name] for f in self._ops if f.name in _IN_FLOAT), None)
        if stays is not None:
            return stays
        if any(kernel.arithmetic == INTEGER for kernel in self._kernels):
            return "in the registers of a product of integers"
        if self._stores and set(self._stores.split(", ")) <= _BYTES:
            return "in registers, between bytes in memory"
        if self._names <= MOVEMENT:
            return "moved only"
        if self._names & FLOAT_PRODUCTS:
            return "its operands are not both of 8 bits"
        return "it has no form for bytes, or what it reads or gives is not quantized"


def _dtypes(op: Op) -> tuple[str, ...]:
    """The types of an op's operands and results."""
    values = (*op.operands, *op.results)
    return tuple(dict.fromkeys(DTYPES[dtype_of(value)].name for value in values))


def _arithmetic(ops: Sequence[_OpFacts]) -> str:
    """What a node computes in: that of its products, else the type of its ops."""
    names = {facts.name for facts in ops}
    kinds = [facts.arithmetic for facts in ops]
    if INTEGER in kinds or "nn.lookup" in names:
        return INTEGER
    if not ops:
        return "none"
    packed = [kind for kind in kinds if kind.startswith("w")]
    if packed:
        return packed[0]
    products = [facts for facts in ops if facts.name in FLOAT_PRODUCTS]
    found = {dtype for facts in products or ops for dtype in facts.dtypes}
    floats = [dtype for dtype in _FLOATS if dtype in found]
    if floats:
        return floats[0]
    return INTEGER if found <= _BYTES else sorted(found - _BYTES)[-1]
