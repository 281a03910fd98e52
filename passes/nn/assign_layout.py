"""nn-assign-layout: blocked channels (NCHW16c and the like) from convolution to convolution.

    %1 = "nn.conv"(%0, %w) : (tensor<1x64x56x56xf32>, …) -> tensor<1x64x56x56xf32>
    %2 = "nn.relu"(%1)
->
    %1 = "nn.conv"(%0, %w) : (tensor<1x64x56x56xf32, #nn.layout<"NCHW16c">>, …) -> tensor<…, #nn.layout<"NCHW16c">>
    %2 = "nn.relu"(%1) : … in the same layout

Convolutions ask for blocked input and give blocked output; elementwise ops, pools and
concatenations keep the layout of their operands; everything else reads row-major memory.
`nn.relayout` stands where the two meet, once for each value.
"""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.dialects.nn.base import dtype_of, rank_of, tensor_type
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.kinds import is_elementwise
from xcompile.dialects.nn.relayout import Relayout
from xcompile.dialects.nn.shapes import ShapeAnalysis

_POOLS = frozenset({"nn.max_pool", "nn.average_pool"})


@dataclass(frozen=True)
class AssignLayout(Pass):
    """Give convolutions and what lies between them blocked layouts; see the module's docstring.

    Attributes:
        block: channels in a block; the vector length of the target when 0.
    """

    NAME: ClassVar[str] = "nn-assign-layout"

    block: int = 0

    def run(self, module: Module, context: PassContext) -> None:
        _Assignment(module, self.block or context.target.lanes(32)).run()


class _Assignment:
    def __init__(self, module: Module, block: int) -> None:
        self._module = module
        self._block = block
        self._layout = f"NCHW{block}c"
        self._analysis = ShapeAnalysis(module.main, module.input_shapes())
        self._blocked: set[Value] = set()
        self._converted: dict[Value, Value] = {}

    def run(self) -> None:
        for operation in list(self._module.main.regions[0].blocks[0].operations):
            op = view(operation)
            wanted = self._wanted(op) if op is not None else None
            if op is None or wanted is None:
                self._read_plain(operation.operation)
                continue
            for position, blocked in enumerate(wanted):
                self._read(op.operation, position, blocked)
            if op.NAME != "nn.reduce_mean":
                result = op.results[0]
                result.set_type(
                    tensor_type(self._analysis.shape(result), dtype_of(result), self._layout)
                )
                self._blocked.add(result)

    # -- decisions ----------------------------------------------------------------------------

    def _wanted(self, op: Op) -> list[bool] | None:
        """Which operands `op` reads blocked when its result is blocked; None when it works on row-major memory."""
        if len(op.results) != 1 or rank_of(op.results[0]) != 4 or dtype_of(op.results[0]) != "f32":
            return None
        if isinstance(op, Conv):
            return self._conv(op)
        if op.NAME in _POOLS or self._is_global_mean(op):
            return (
                [True, *[False] * (len(op.operands) - 1)]
                if op.operands[0] in self._blocked
                else None
            )
        if is_elementwise(op.NAME):
            return self._elementwise(op)
        if op.NAME == "nn.concat":
            return self._joined(op)
        return self._resized(op) if op.NAME == "nn.resize" else None

    def _conv(self, conv: Conv) -> list[bool] | None:
        weight = const_of(conv.w)
        if (
            weight is None
            or dtype_of(conv.x) != "f32"
            or (conv.bias is not None and const_of(conv.bias) is None)
        ):
            return None
        channels = self._analysis.shape(conv.x)[1]
        if not isinstance(channels, int):
            return None
        plain = conv.x not in self._blocked and channels <= self._block and conv.groups == 1
        return [not plain, *[False] * (len(conv.operands) - 1)]

    def _is_global_mean(self, op: Op) -> bool:
        """Whether the op is a mean over all of height and width; its result, one pixel, is row-major too."""
        if op.NAME != "nn.reduce_mean" or len(op.operands) != 1:
            return False
        fields = op.attributes()
        return bool(fields["keepdims"]) and sorted(a % 4 for a in fields["axes"]) == [2, 3]

    def _elementwise(self, op: Op) -> list[bool] | None:
        shape = self._analysis.shape(op.results[0])
        full = [self._analysis.shape(v) == shape and dtype_of(v) == "f32" for v in op.operands]
        if not any(f and v in self._blocked for f, v in zip(full, op.operands, strict=True)):
            return None
        if any(dtype_of(v) != "f32" for v in op.operands):
            return None
        return full

    def _joined(self, op: Op) -> list[bool] | None:
        """A concatenation, blocked when one of its parts is: conversions of the others read memory anyway."""
        blocked = any(v in self._blocked for v in op.operands)
        static = all(isinstance(self._analysis.shape(v)[1], int) for v in op.operands)
        return [True] * len(op.operands) if blocked and static else None

    def _resized(self, op: Op) -> list[bool] | None:
        """A resized image, when batch and channels stay as they are."""
        before, after = self._analysis.shape(op.operands[0]), self._analysis.shape(op.results[0])
        if before[:2] != after[:2] or op.operands[0] not in self._blocked:
            return None
        return [True, *[False] * (len(op.operands) - 1)]

    # -- conversions --------------------------------------------------------------------------

    def _read_plain(self, operation: ir.Operation) -> None:
        for position in range(len(operation.operands)):
            self._read(operation, position, False)

    def _read(self, operation: ir.Operation, position: int, blocked: bool) -> None:
        value = operation.operands[position]
        if (value in self._blocked) != blocked:
            operation.operands[position] = self._convert(value, blocked)

    def _convert(self, value: Value, blocked: bool) -> Value:
        if value not in self._converted:
            made_type = tensor_type(
                self._analysis.shape(value), dtype_of(value), self._layout if blocked else None
            )
            with self._after(value):
                loc = (
                    value.owner.location
                    if not isinstance(value.owner, ir.Block)
                    else ir.Location.unknown()
                )
                made = Relayout.build({"x": value}, [made_type], loc=loc)
            self._converted[value] = made.y
        return self._converted[value]

    def _after(self, value: Value) -> ir.InsertionPoint:
        """Just behind the op that makes the value."""
        block = self._module.main.regions[0].blocks[0]
        if isinstance(value.owner, ir.Block):
            return ir.InsertionPoint.at_block_begin(block)
        return ir.InsertionPoint.after(value.owner)
