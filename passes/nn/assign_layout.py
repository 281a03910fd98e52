"""nn-assign-layout: blocked channels (NCHW16c and the like) from convolution to convolution.

    %1 = "nn.conv"(%0, %w) : (tensor<1x64x56x56xf32>, …) -> tensor<1x64x56x56xf32>
    %2 = "nn.relu"(%1)
->
    %1 = "nn.conv"(%0, %w) : (tensor<1x64x56x56xf32, #nn.layout<"NCHW16c">>, …) -> tensor<…, #nn.layout<"NCHW16c">>
    %2 = "nn.relu"(%1) : … in the same layout

Convolutions of images and volumes, of floats or of 8-bit integers, ask for blocked input and give blocked output;
elementwise ops, pools, narrow windows over channels and concatenations keep the layout of their operands, but pools of
many channels are blocked by themselves; everything else reads row-major memory.
`nn.relayout` stands where the two meet, once for each value. Elementwise ops and concatenations between the
two are given the layout with which the fewest elements are converted: a minimum cut, and so never more than
the best of all choices. Regions may use a value in either layout; what they yield is row-major.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, identity, view
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.regions import nested
from xcompile.compiler.support.dims import ceildiv, estimate, product, symbols_of
from xcompile.compiler.support.min_cut import Node, min_cut
from xcompile.dialects.nn.base import dtype_of, rank_of, tensor_type
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.integer import ConvInteger
from xcompile.dialects.nn.kinds import is_elementwise
from xcompile.dialects.nn.norm import Lrn
from xcompile.dialects.nn.pool import MaxPoolWithIndices
from xcompile.dialects.nn.relayout import Relayout
from xcompile.dialects.nn.shapes import ShapeAnalysis

_CONVOLUTIONS = (Conv, ConvTranspose, ConvInteger)
_POOLS = frozenset({"nn.max_pool", "nn.average_pool", "nn.lp_pool", "nn.max_pool_with_indices"})
_WHOLE = frozenset({"nn.reduce_mean", "nn.reduce_sum"})
"""Reductions that read blocked images, over all places of a channel."""

_MOVES = frozenset({"nn.channel_shuffle", "nn.slice", "nn.pad"})
"""Ops that take elements of their first operand at other places of an image."""

_DTYPES = frozenset({"f32", "f16", "bf16", "i32", "ui8", "i8"})
"""Of images in blocks: floats of at most 32 bits, 8-bit integers, and what is computed between the two."""

_POOLED = frozenset({"f32", "ui8", "i8"})
"""Of images that pools have kernels for."""

_SPATIAL = {4: "HW", 5: "DHW"}
"""By rank, the axes behind the channels of images and volumes."""

_BLOCKED, _PLAIN = "blocked", "plain"
_UNBOUNDED = 1 << 80


def _is_image(op: Op) -> bool:
    """Whether the op makes an image or volume of a type that those in blocks have, and no other one."""
    results = op.results
    alone = len(results) == 1 or isinstance(op, MaxPoolWithIndices)
    return alone and rank_of(results[0]) in _SPATIAL and dtype_of(results[0]) in _DTYPES


@dataclass(frozen=True)
class AssignLayout(Pass):
    """Give convolutions and what lies between them blocked layouts; see the module's docstring.

    Attributes:
        block: channels in a block; what suits the target when 0.
    """

    NAME: ClassVar[str] = "nn-assign-layout"

    block: int = 0

    def run(self, module: Module, context: PassContext) -> None:
        _Assignment(module, self.block or context.target.channel_block).run()


class _Assignment:
    def __init__(self, module: Module, block: int) -> None:
        self._module = module
        self._block = block
        self._analysis = ShapeAnalysis(module.main, module.input_shapes())
        self._blocked: set[Value] = set()
        self._labels: dict[int, bool] = {}
        self._converted: dict[Value, Value] = {}

    def run(self) -> None:
        operations = nested(self._module.main.operation)
        self._labels = self._labelled(operations)
        self._blocked = set()
        for operation in operations:
            op = view(operation)
            wanted = self._wanted(op) if op is not None else None
            if op is None or wanted is None:
                self._read_plain(operation)
                continue
            for position, blocked in enumerate(wanted):
                self._read(op.operation, position, blocked)
            if op.NAME not in _WHOLE:
                result = op.results[0]
                result.set_type(self._type(result, True))
                self._blocked.add(result)

    # -- decisions ----------------------------------------------------------------------------

    def _wanted(self, op: Op) -> list[bool] | None:
        """Which operands `op` reads blocked when its result is blocked; None when it works on row-major memory."""
        if not _is_image(op):
            return None
        if isinstance(op, _CONVOLUTIONS):
            return self._conv(op)
        first = bool(op.operands) and op.operands[0] in self._blocked
        if self._is_of_whole_images(op):
            return [True] if first else None
        followers = self._followers(op)
        if followers is not None:
            read = zip(followers, op.operands, strict=True)
            greedy = any(follows and v in self._blocked for follows, v in read)
            return followers if self._label(op, greedy) else None
        if isinstance(op, MaxPoolWithIndices) and not self._takes_indices(op):
            return None
        greedy = first or (op.NAME in _POOLS and self._fills_blocks(op.operands[0]))
        if op.NAME in _POOLS or self._keeps_channels(op):
            return [True, *[False] * (len(op.operands) - 1)] if self._label(op, greedy) else None
        return None

    def _fills_blocks(self, value: Value) -> bool:
        """Whether blocks of a value are not mostly padding, so that two conversions cost less than code without any."""
        channels = self._analysis.shape(value)[1]
        pooled = dtype_of(value) in _POOLED
        return pooled and isinstance(channels, int) and 2 * channels > self._block

    @staticmethod
    def _takes_indices(op: MaxPoolWithIndices) -> bool:
        """Whether the kernel of pools with indices takes the op; others know no blocks."""
        return op.auto_pad == "notset" and min(op.pads) >= 0 and dtype_of(op.x) in _POOLED

    def _label(self, op: Op, greedy: bool) -> bool:
        """Whether the result is blocked, where the op leaves that open; before that is decided, as its operands are."""
        return self._labels.get(identity(op.operation), greedy)

    def _conv(self, conv: Conv | ConvTranspose | ConvInteger) -> list[bool] | None:
        if const_of(conv.w) is None or not self._has_kernels(conv):
            return None
        channels = self._analysis.shape(conv.x)[1]
        if not isinstance(channels, int):
            return None
        plain = conv.x not in self._blocked and channels <= self._block and conv.groups == 1
        return [not plain, *[False] * (len(conv.operands) - 1)]

    @staticmethod
    def _has_kernels(conv: Conv | ConvTranspose | ConvInteger) -> bool:
        """Whether there are kernels for convolutions of the operands' types, with such a bias or zero points."""
        if isinstance(conv, ConvInteger):
            return conv.is_plain
        return dtype_of(conv.x) in ("f32", "f16", "bf16") and (
            conv.bias is None or const_of(conv.bias) is not None
        )

    def _is_of_whole_images(self, op: Op) -> bool:
        """Whether the op is a mean or sum over all places of a channel; its result, one pixel, is row-major too."""
        if op.NAME not in _WHOLE or len(op.operands) != 1:
            return False
        fields, rank = op.attributes(), rank_of(op.operands[0])
        axes = sorted(a % rank for a in fields["axes"])
        return bool(fields["keepdims"]) and axes == list(range(2, rank))

    def _followers(self, op: Op) -> list[bool] | None:
        """Which operands of an elementwise op, a concatenation or a movement have its layout, whichever that is.

        None when the op has no choice. Conversions of parts of a concatenation read memory that would be read anyway.
        """
        if op.NAME == "nn.concat":
            static = all(isinstance(self._analysis.shape(v)[1], int) for v in op.operands)
            return [True] * len(op.operands) if static else None
        if op.NAME in _MOVES and isinstance(self._analysis.shape(op.operands[0])[1], int):
            return [True] + [False] * (len(op.operands) - 1)
        if not is_elementwise(op.NAME) or any(dtype_of(v) not in _DTYPES for v in op.operands):
            return None
        shape = self._analysis.shape(op.results[0])
        full = [self._analysis.shape(v) == shape for v in op.operands]
        return full if any(full) else None

    def _keeps_channels(self, op: Op) -> bool:
        """Whether the op resizes an image or normalizes over neighbouring channels, batch and channels kept."""
        if isinstance(op, Lrn):
            return op.is_narrow and op.size // 2 <= self._block
        if op.NAME != "nn.resize":
            return False
        before, after = self._analysis.shape(op.operands[0]), self._analysis.shape(op.results[0])
        return before[:2] == after[:2]

    # -- the choice ---------------------------------------------------------------------------

    def _labelled(self, operations: Sequence[ir.Operation]) -> dict[int, bool]:
        """For each op, whether its result is blocked, so that as few elements as possible are converted.

        Two layouts are two sides of a cut. A value whose maker and readers are not all on one side is converted once,
        which costs its elements; ops without a choice are the ends. Between equal choices, ops follow their operands.
        """
        labels: dict[int, bool] = {}
        meeting: dict[Value, set[Node]] = {}
        free: set[int] = set()
        for operation in operations:
            op, key = view(operation), identity(operation)
            wanted = None if op is None else self._wanted(op)
            followers = None if op is None or not _is_image(op) else self._followers(op)
            labels[key] = wanted is not None
            here: Node = _BLOCKED if wanted is not None else _PLAIN
            if followers is not None:
                here = key
                free.add(key)
            follows = followers or wanted or [False] * len(operation.operands)
            for position, value in enumerate(operation.operands):
                if position or op is None or not self._reads_either(op):
                    meeting.setdefault(value, {_PLAIN}).add(here if follows[position] else _PLAIN)
            if wanted is not None and op is not None and op.NAME not in _WHOLE:
                self._blocked.add(op.results[0])
            for number, value in enumerate(operation.results):
                plain = number or (op is not None and op.NAME in _WHOLE)
                meeting[value] = {_PLAIN if plain else here}
        return labels | self._cut(meeting, labels, free)

    def _reads_either(self, op: Op) -> bool:
        """Whether the first operand may have any layout."""
        if isinstance(op, _CONVOLUTIONS):
            channels = self._analysis.shape(op.x)[1]
            return isinstance(channels, int) and channels <= self._block and op.groups == 1
        return self._is_of_whole_images(op)

    def _cut(
        self, meeting: Mapping[Value, set[Node]], labels: Mapping[int, bool], free: set[int]
    ) -> dict[int, bool]:
        edges: list[tuple[Node, Node, int]] = []
        for number, (value, nodes) in enumerate(meeting.items()):
            if len(nodes) > 1 and not nodes <= {_PLAIN, _BLOCKED}:
                begin, end = ("begin", number), ("end", number)
                edges.append((begin, end, self._elements(value) * (len(free) + 1)))
                for node in nodes:
                    edges += [(node, begin, _UNBOUNDED), (end, node, _UNBOUNDED)]
        for key in free:
            edges.append((_BLOCKED, key, 1) if labels[key] else (key, _PLAIN, 1))
        side = min_cut(edges, _BLOCKED, _PLAIN)
        return {key: key in side for key in free}

    def _elements(self, value: Value) -> int:
        """How many elements a value has in blocks; sizes that are not known count as 64."""
        shape = list(self._analysis.shape(value))
        if len(shape) > 1:
            shape[1] = ceildiv(shape[1], self._block) * self._block
        size = product(shape)
        return max(1, estimate(size, dict.fromkeys(symbols_of(size), 64)))

    # -- conversions --------------------------------------------------------------------------

    def _type(self, value: Value, blocked: bool) -> ir.Type:
        """The type of a value, in blocks or row-major."""
        layout = f"NC{_SPATIAL[rank_of(value)]}{self._block}c" if blocked else None
        return tensor_type(self._analysis.shape(value), dtype_of(value), layout)

    def _read_plain(self, operation: ir.Operation) -> None:
        for position in range(len(operation.operands)):
            self._read(operation, position, False)

    def _read(self, operation: ir.Operation, position: int, blocked: bool) -> None:
        value = operation.operands[position]
        if (value in self._blocked) != blocked:
            operation.operands[position] = self._convert(value, blocked)

    def _convert(self, value: Value, blocked: bool) -> Value:
        if value not in self._converted:
            made_type = self._type(value, blocked)
            with _after(value):
                loc = (
                    value.owner.location
                    if not isinstance(value.owner, ir.Block)
                    else ir.Location.unknown()
                )
                made = Relayout.build({"x": value}, [made_type], loc=loc)
            self._converted[value] = made.y
        return self._converted[value]


def _after(value: Value) -> ir.InsertionPoint:
    """Just behind the op that makes the value."""
    if isinstance(value.owner, ir.Block):
        return ir.InsertionPoint.at_block_begin(value.owner)
    return ir.InsertionPoint.after(value.owner)
