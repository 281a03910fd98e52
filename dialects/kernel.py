"""The kernel dialect: fusion has decided the boundaries.

    kernel.func @conv_relu (body: nn ops, `kernel.dims`, ended by `kernel.return`)
    %y = kernel.launch @conv_relu(%x, %w) {sizes = ["N"]}

A kernel's sizes are expressions over its own symbols `d0, d1, …`; the launch binds each to a Dim of
the program. Equal kernels are equal text, whatever model nodes they came from: that text is the key
of caches and of tuning.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import (
    Dialect,
    Op,
    Operand,
    Operands,
    Region,
    Result,
    Results,
    Value,
    view,
)
from xcompile.compiler.support.dims import Dim, broadcast_dims, parse
from xcompile.dialects.nn.base import InnerShape, NnOp, Shape, Sizes

kernel = Dialect("kernel")


@dataclass(frozen=True)
class Rows:
    """How a result lies within a larger tensor: in rows, of which each is contiguous.

    Attributes:
        axes: how many of the axes in memory, the first ones, count rows; what the others hold is one row.
        pitch: elements from the beginning of one row to that of the next.
    """

    axes: int
    pitch: Dim

    @staticmethod
    def parse(text: str) -> "Rows | None":
        """What `str` wrote; None for the empty text of a result that is a tensor of its own."""
        axes, _, pitch = text.partition(":")
        return Rows(int(axes), parse(pitch)) if text else None

    def __str__(self) -> str:
        return f"{self.axes}:{self.pitch}"


@kernel.op("func", pure=False)
class Func(Op):
    """One kernel.

    Attributes:
        sym_name: its name.
        arguments: the shape of each argument, as Dims over d0, d1, …: "d0;64;8;8".
        constants: positions of the arguments that are constants of the model.
        rows: how each result lies within a larger tensor, see `Rows`; nothing where all are tensors of their own.
    """

    body: Region
    sym_name: str
    arguments: tuple[str, ...]
    constants: tuple[int, ...] = ()
    rows: tuple[str, ...] = ()

    @property
    def block(self) -> ir.Block:
        return self.operation.regions[0].blocks[0]

    @property
    def parameters(self) -> list[Value]:
        return list(self.block.arguments)

    @property
    def returned(self) -> list[Value]:
        """The values that the kernel computes."""
        return list(self.ops[-1].operands)

    @property
    def ops(self) -> list[ir.Operation]:
        """The operations of the body, `kernel.return` last."""
        return [o.operation for o in self.block.operations]

    def argument_shapes(self) -> list[Shape]:
        return [parse_shape(text) for text in self.arguments]

    def result_rows(self) -> "list[Rows | None]":
        """For each result how it lies within a larger tensor, or None."""
        return [Rows.parse(text) for text in self.rows or ("",) * len(self.returned)]


@kernel.op("return", pure=False)
class Return(Op):
    """Ends a kernel: the values that it computes."""

    values: Operands


@kernel.op("launch")
class Launch(Op):
    """Run a kernel on tensors.

    Attributes:
        callee: the kernel's name.
        sizes: what d0, d1, … are here, as Dims of the program.
        shapes: the shape of each result, as Dims of the program.
        nodes: the model nodes of each op of the kernel besides constants and `kernel.dims`, where they are known.
    """

    inputs: Operands
    outputs: Results
    callee: str
    shapes: tuple[str, ...]
    sizes: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


@kernel.op("view")
class View(Op):
    """The same bytes with another shape (and the same layout), or a run of them: no code, no memory.

    Attributes:
        shape: the shape, as Dims of the program.
        start: of a part of an axis before which no axis is longer than 1, the first of its places there, as a Dim;
            "" for the whole.
        axis: that axis.
    """

    x: Operand
    y: Result
    shape: str
    start: str = ""
    axis: int = 0


@kernel.op("dims")
class Dims(NnOp):
    """A small integer tensor whose elements are Dims: a shape, axes, the starts of a slice.

    It stands in kernels for operands that only say sizes and places; no memory holds it.
    """

    y: Result
    values: tuple[str, ...]
    dtype: str = "i64"
    rank: int = 1

    def dtypes(self) -> Sequence[str]:
        return [self.dtype]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return [(len(self.values),)] if self.rank else [()]

    def content(self, sizes: Sizes) -> Shape | None:
        return tuple(parse(text) for text in self.values)


@kernel.op("read", pure=False)
class Read(Op):
    """Read elements of a small integer tensor that sizes depend on.

    Attributes:
        symbols: the symbol that each element gives its value to; "" for those that nothing depends on.
    """

    x: Operand
    symbols: tuple[str, ...]


@kernel.op("define", pure=False)
class Define(Op):
    """Give a symbol its meaning: a Dim over symbols that are known here."""

    symbol: str
    dim: str


@kernel.op("check", pure=False)
class Check(Op):
    """End the run with an error when two Dims, over symbols that are known here, are not equal.

    Attributes:
        text: what is wrong then.
    """

    left: str
    right: str
    text: str


FITS = "xc.fits"
"""Of casts from float: what is cast is NaN or fits int32."""

PLAIN = "xc.plain"
"""Of casts from float, maximum and minimum: no operand is NaN, and nothing tells a result of -0 from one of +0."""

SHAPES = "xc.shapes"
"""The attribute of ops in kernels that says the shapes of their results, where these are not static; and of branches
and loops behind `kernel-form`.
"""

CARRIED = "xc.carried"
"""The attribute of loops behind `kernel-form` that says the shapes of the carried values in the block."""


class KernelSizes:
    """What is known of the values of one kernel, from what stands in its text."""

    def __init__(self, func: Func) -> None:
        self._shapes: dict[Value, Shape] = dict(
            zip(func.parameters, func.argument_shapes(), strict=True)
        )

    def shape(self, value: Value) -> Shape:
        """The size of each axis."""
        if value not in self._shapes:
            self._shapes[value] = self._stated(value)
        return self._shapes[value]

    @staticmethod
    def _stated(value: Value) -> Shape:
        operation = value.owner
        assert not isinstance(operation, ir.Block)
        if SHAPES not in operation.attributes:
            return tuple(ir.RankedTensorType(value.type).shape)
        texts = list(ir.ArrayAttr(operation.attributes[SHAPES]))
        return parse_shape(ir.StringAttr(texts[ir.OpResult(value).result_number]).value)

    def content(self, value: Value) -> Shape | None:
        """The elements of a small integer tensor as Dims, when they are known."""
        op = None if isinstance(value.owner, ir.Block) else view(value.owner)
        return op.content(self) if isinstance(op, NnOp) else None

    def elements(self, value: Value, count: int | None = None) -> Shape | None:
        return self.content(value)

    def define(self, dim: Dim, hint: str) -> Dim:
        return dim

    def fresh(self, hint: str) -> Dim:
        raise LookupError(f"a kernel has no new size ({hint})")

    def equal(self, a: Dim, b: Dim, what: str) -> Dim:
        return a

    def broadcast(self, a: Dim, b: Dim, what: str) -> Dim:
        return broadcast_dims(a, b)

    def block(self, block: ir.Block, arguments: Sequence[Shape]) -> list[InnerShape]:
        raise LookupError("a kernel has no regions")

    def open(self, value: Value, axis: int) -> Dim:
        raise LookupError("a kernel has no regions")

    def is_open(self, value: Value, axis: int) -> bool:
        raise LookupError("a kernel has no regions")


TRIP = "xc.trip"
"""The attribute of loops behind `kernel-form` that says the number of iterations as a Dim, where it is known."""


def parse_shape(text: str) -> Shape:
    """The shape of "d0;8;2*d1"; "" is rank 0."""
    return tuple(parse(part) for part in text.split(";")) if text else ()


def shape_text(shape: Sequence[Dim]) -> str:
    """The sizes of a shape as text, which `parse_shape` reads back."""
    return ";".join(str(d) for d in shape)


def stated_shapes(op: Op, attribute: str) -> list[Shape]:
    """The shapes that an attribute such as `SHAPES` says."""
    texts = ir.ArrayAttr(op.operation.attributes[attribute])
    return [parse_shape(ir.StringAttr(text).value) for text in texts]
