"""Element functions: what an op computes for one element, or for a vector of them.

A kernel asks for elements of its result at coordinates; each op asks its operands in turn, down to
loads from the kernel's arguments. So any chain of elementwise and data-movement ops is one loop
without intermediate buffers, and the epilogue of a convolution is the same code with the
accumulators standing for the anchor's result.

Handlers are registered by op name (`@pulls("nn.transpose")`).
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Index, Value, vector_type
from xcompile.compiler.codegen.cpu.casts import convert
from xcompile.compiler.codegen.cpu.coordinates import (
    Coordinate,
    Coordinates,
    Fixed,
    Lane,
    Lanes,
    varies,
)
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.cpu.shuffles import shuffle
from xcompile.compiler.ir.dtypes import bits_of, is_float, is_small_float
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, view
from xcompile.compiler.ir.op import Value as Tensor
from xcompile.compiler.support.dims import Dim, fold
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.kernel import Rows
from xcompile.dialects.nn.base import Shape, Sizes, dtype_of
from xcompile.dialects.nn.const import Const

At = Sequence[Coordinate]
Handler = Callable[["Pull", Op, At], Value]
PULLS: dict[str, Handler] = {}
"""How each op gives its elements, by op name."""

PartHandler = Callable[["Pull", Op, At, int], Value]
PARTS: dict[str, PartHandler] = {}
"""How ops with several results give the elements of one of them, by op name."""

_LOOPS: dict[str, Callable[[Op], bool]] = {}
"""Whether an op's element function is a loop over many elements, by op name."""

SCALAR: set[str] = set()
"""Ops whose element function gives one element at a time."""


def loops(op: Op) -> bool:
    """Whether the element function of an op is a loop over many elements: right, but slow."""
    return op.NAME in _LOOPS and _LOOPS[op.NAME](op)


def pulls(
    *names: str, loops: bool | Callable[[Any], bool] = False, lanes: bool = True
) -> Callable[[Handler], Handler]:
    """Register a handler for ops by name.

    Args:
        names: of the ops.
        loops: says when it loops over many elements.
        lanes: whether it can give several elements at a time.
    """

    def register(handler: Handler) -> Handler:
        PULLS.update(dict.fromkeys(names, handler))
        if loops:
            _LOOPS.update(dict.fromkeys(names, _always if loops is True else loops))
        SCALAR.update(() if lanes else names)
        return handler

    return register


def pulls_parts(*names: str, loops: bool = False) -> Callable[[PartHandler], PartHandler]:
    """Register a handler for ops with several results; it gets the number of the wanted one."""

    def register(handler: PartHandler) -> PartHandler:
        PARTS.update(dict.fromkeys(names, handler))
        if loops:
            _LOOPS.update(dict.fromkeys(names, _always))
        return handler

    return register


def _always(op: Op) -> bool:
    return True


def register_dtype(dtype: str) -> str:
    """The type an element has in a register: signless integers, bool as i1, small floats as their bits."""
    return "i8" if is_small_float(dtype) else dtype.removeprefix("u")


def memory_dtype(dtype: str) -> str:
    """The type an element has in memory: bool and integers of 2 and 4 bits take a byte."""
    return "i8" if dtype == "i1" or dtype in _PADDED else register_dtype(dtype)


_PADDED = ("i2", "ui2", "i4", "ui4")
"""Integers that have a byte in memory and fewer bits in a register."""


def is_register_float(dtype: str) -> bool:
    """Whether registers hold elements of this type as floats."""
    return register_dtype(dtype).startswith(("f", "bf"))


def _four(dtype: str) -> str:
    """The integer type in whose register the bits of a type of four bits lie."""
    return "ui8" if dtype == "f4E2M1FN" else "ui4"


@dataclass(frozen=True)
class Source:
    """A tensor in memory: a kernel argument or result.

    Attributes:
        buffer: where it begins.
        shape: its logical sizes.
        layout: how its elements lie.
        dtype: of its elements.
        rows: how it lies within a larger tensor; None for one of its own.
    """

    buffer: Buffer
    shape: Shape
    layout: Layout
    dtype: str
    rows: Rows | None = None


class Pull:
    """Gives elements of the values of one kernel, `lanes` at a time (0: one scalar).

    Attributes:
        b: where the code goes.
        sizes: shapes and contents of the kernel's values.
        features: of the target, by LLVM's names.
        symbols: what the kernel's size symbols are, as indices.
        mask: which lanes are on, a vector of i1, or None for all; set while a tail is written.
    """

    def __init__(
        self,
        b: Builder,
        sizes: Sizes,
        symbols: Mapping[str, Index],
        sources: Mapping[Tensor, Source],
        lanes: int,
        features: frozenset[str] = frozenset(),
    ) -> None:
        self.b = b
        self.features = features
        self.sizes = sizes
        self.symbols = symbols
        self.sources = dict(sources)
        self.lanes = lanes
        self.coordinates = Coordinates(b, lanes)
        self.mask: Value | None = None
        self._zero_padding = False
        self._bound: dict[Tensor, Callable[[At], Value]] = {}
        self._memo: list[dict[tuple[Tensor, tuple[Coordinate, ...]], Value]] = [{}]

    # -- sizes --------------------------------------------------------------------------------

    def dim(self, dim: Dim) -> Index:
        """A size as an index."""
        return dim if isinstance(dim, int) else fold(dim, _Emit(self.b, self.symbols))

    def shape(self, value: Tensor) -> list[Index]:
        return [self.dim(d) for d in self.sizes.shape(value)]

    def content(self, value: Tensor) -> list[Index]:
        """The elements of an operand that says sizes or places."""
        known = self.sizes.content(value)
        if known is None:
            owner = value.owner
            node = describe(owner.location) if isinstance(owner, ir.Operation) else None
            raise CompileError(
                "XC4011", "a size or place depends on the values of a tensor", node=node
            )
        return [self.dim(d) for d in known]

    def place(self, value: Tensor, position: int) -> Index:
        """One element of an operand that says places: known, or read when the kernel runs."""
        known = self.sizes.content(value)
        if known is not None:
            return self.dim(known[position])
        at = [position] if self.sizes.shape(value) else []
        dtype = dtype_of(value)
        found = self.value(value, at)
        if self.lanes:
            register = register_dtype(dtype)
            found = self.b.op(f"vector.extract {found}[0] : {register} from {self.type(dtype)}")
        return self.b.op(f"arith.index_cast {found} : {register_dtype(dtype)} to index")

    # -- types --------------------------------------------------------------------------------

    def type(self, dtype: str) -> str:
        """The MLIR type of an element of `dtype` in a register, over all lanes."""
        return vector_type(self.lanes, register_dtype(dtype))

    # -- scopes -------------------------------------------------------------------------------

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values made inside are forgotten at the end: use around the body of a loop or branch."""
        self._memo.append({})
        yield
        self._memo.pop()

    @contextmanager
    def masked(self, mask: Value | None, *, zero_padding: bool = False) -> Iterator[None]:
        """Lanes outside `mask` are not loaded inside, nor stored; with `zero_padding`, zeros are stored for them."""
        before, self.mask = self.mask, mask
        padding, self._zero_padding = self._zero_padding, zero_padding
        with self.scope():
            yield
        self.mask, self._zero_padding = before, padding

    @contextmanager
    def bound(self, value: Tensor, give: Callable[[At], Value]) -> Iterator[None]:
        """Inside, `value` is what `give(at)` says: accumulators in an epilogue."""
        self._bound[value] = give
        with self.scope():
            yield
        del self._bound[value]

    # -- elements -----------------------------------------------------------------------------

    def value(self, tensor: Tensor, at: At) -> Value:
        """The elements of a tensor at coordinates `at`, one a logical axis."""
        if tensor in self._bound:
            return self._bound[tensor](at)
        key = (tensor, tuple(at))
        for memo in reversed(self._memo):
            if key in memo:
                return memo[key]
        result = (
            self.load(self.sources[tensor], at)
            if tensor in self.sources
            else self._compute(tensor, at)
        )
        self._memo[-1][key] = result
        return result

    def _compute(self, tensor: Tensor, at: At) -> Value:
        operation = tensor.owner
        op = view(operation) if isinstance(operation, ir.Operation | ir.OpView) else None
        if op is not None and op.NAME in PARTS:
            return PARTS[op.NAME](self, op, at, ir.OpResult(tensor).result_number)
        handler = PULLS.get(op.NAME) if op else None
        if op is None or handler is None:
            name = operation.name if isinstance(operation, ir.Operation) else "an argument"
            raise CompileError("XC4010", f"no element function for {name}")
        return handler(self, op, at)

    def remember(self, tensor: Tensor, at: At, value: Value) -> None:
        """Elements that were computed together with others, for when they are asked for in this scope."""
        self._memo[-1][tensor, tuple(at)] = value

    def broadcast(self, tensor: Tensor, at: At, result: Shape) -> Value:
        """The elements of an operand that broadcasts to the shape `result`, which `at` runs over."""
        shape = self.sizes.shape(tensor)
        tail = len(at) - len(shape)
        return self.value(
            tensor,
            [self.still(d, c, r) for d, c, r in zip(shape, at[tail:], result[tail:], strict=True)],
        )

    def still(self, dim: Dim, c: Coordinate, result: Dim) -> Coordinate:
        """The coordinate on an axis of size `dim` that broadcasts to `result`: 0 where the size is 1."""
        if dim == 1 or c == 0:
            return 0
        if dim == result:
            return c
        moves = self.b.select(self.b.compare("eq", self.dim(dim), 1), 0, 1)
        return self.coordinates.mul(c, moves)

    # -- memory -------------------------------------------------------------------------------

    def load(self, source: Source, at: At) -> Value:
        """Load elements of a tensor in memory."""
        if source.layout.block and isinstance(at[1], Fixed):
            raw = self._load_channels(source, at, at[1].places)
        else:
            # a block is in memory as a whole, so that no lane of it need be masked
            mask = None if source.layout.block else self.mask
            raw = self._load_flat(source.buffer, self.offset(source, at), mask)
        if source.dtype == "i1":
            zero = self.b.int_constant(0, "i8", self.lanes)
            return self.b.op(f"arith.cmpi ne, {raw}, {zero} : {vector_type(self.lanes, 'i8')}")
        if source.dtype in _PADDED:
            return self.b.op(
                f"arith.trunci {raw} : {vector_type(self.lanes, 'i8')} to {self.type(source.dtype)}"
            )
        return raw

    def offset(self, source: Source, at: At) -> Coordinate:
        """The linear offset of elements in the buffer."""
        shape = [self.dim(d) for d in source.shape]
        rows = source.rows
        pitches = {} if rows is None else {rows.axes - 1: self.dim(rows.pitch)}
        return source.layout.offset(self.coordinates, shape, at, pitches)

    def _load_channels(self, source: Source, at: At, channels: Sequence[int]) -> Value:
        """Any channels of a pixel, known by number, from whole vectors; what the tensor does not have is anything."""
        count, lanes = source.shape[1], self.lanes
        assert isinstance(count, int)
        wanted = [divmod(c, lanes) if 0 <= c < count else None for c in channels]
        vectors = list(dict.fromkeys(w[0] for w in wanted if w is not None))
        result: Value | None = None
        for vector in vectors:
            place = [at[0], Lane(vector * lanes, lanes), *at[2:]]
            offset = self.offset(source, place)
            assert isinstance(offset, Lane)
            loaded = self.b.load(
                source.buffer, offset.base, lanes
            )  # the mask is of the lanes behind
            picks = list(range(lanes))
            for i, w in enumerate(wanted):
                if w is not None and w[0] == vector:
                    picks[i] = w[1] if result is None else lanes + w[1]
            first = loaded if result is None else result
            kept = picks == list(range(lanes))
            result = (
                first if kept else shuffle(self.b, first, loaded, lanes, picks, source.buffer.dtype)
            )
        zero = "0.0" if source.buffer.dtype[0] in "fb" else "0"
        return result or self.b.constant(zero, source.buffer.dtype, lanes)

    def _load_flat(self, buffer: Buffer, offset: Coordinate, mask: Value | None) -> Value:
        if not self.lanes:
            assert isinstance(offset, int | str)
            return self.b.load(buffer, offset)
        if isinstance(offset, Fixed):
            offset = (
                Lane(offset.places[0]) if offset.is_run else Lanes(self.coordinates.vector(offset))
            )
        if isinstance(offset, Lane):
            return self.b.load(buffer, offset.base, self.lanes, mask)
        if not isinstance(offset, Lanes):
            return self.b.broadcast(self.b.load(buffer, offset), buffer.dtype, self.lanes)
        kind = vector_type(self.lanes, buffer.element)
        mask = self.mask or self.b.int_constant(1, "i1", self.lanes)
        zero = self.b.zero(buffer.element, self.lanes)
        found = self.b.op(
            f"vector.gather {buffer.name}[{self.b.index(0)}] [{offset.vector}], {mask}, {zero} : {buffer.type}, "
            f"vector<{self.lanes}xindex>, vector<{self.lanes}xi1>, {kind} into {kind}"
        )
        return self.b.bitcast(found, buffer.element, buffer.dtype, self.lanes)

    def store(self, source: Source, value: Value, at: At) -> None:
        """Store elements; the lanes must be next to each other in memory, or there are none."""
        if source.dtype == "i1" or source.dtype in _PADDED:
            register = self.type(source.dtype)
            value = self.b.op(
                f"arith.extui {value} : {register} to {vector_type(self.lanes, 'i8')}"
            )
        offset = self.offset(source, at)
        if self.lanes:
            assert isinstance(offset, Lane), "lanes are not contiguous in the result"
            mask = self.mask
            if self._zero_padding and mask is not None:
                dtype, element = source.buffer.dtype, source.buffer.element
                raw = self.b.bitcast(value, dtype, element, self.lanes)
                kind = vector_type(self.lanes, element)
                made = self.b.op(
                    f"arith.select {mask}, {raw}, {self.b.zero(element, self.lanes)} : "
                    f"vector<{self.lanes}xi1>, {kind}"
                )
                value = self.b.bitcast(made, element, dtype, self.lanes)
                mask = None
            self.b.store(value, source.buffer, offset.base, self.lanes, mask)
        else:
            assert isinstance(offset, int | str)
            self.b.store(value, source.buffer, offset)

    def index_value(self, value: Value, dtype: str) -> Coordinate:
        """Integer elements as a coordinate (they may be negative)."""
        kind, to = self.type(dtype), vector_type(self.lanes, "index")
        cast = "arith.index_castui" if dtype.startswith("ui") else "arith.index_cast"
        made = self.b.op(f"{cast} {value} : {kind} to {to}")
        return Lanes(made) if self.lanes else made

    def as_integer(self, c: Coordinate, dtype: str) -> Value:
        """A coordinate as integer elements of `dtype`."""
        vector = self.coordinates.vector(c) if self.lanes else self.b.index(_scalar(c))
        return self.b.op(
            f"arith.index_cast {vector} : {vector_type(self.lanes, 'index')} to {self.type(dtype)}"
        )

    def as_element(self, c: Coordinate, dtype: str) -> Value:
        """A coordinate as an element of any type."""
        return convert(self.b, self.as_integer(c, "i64"), "i64", dtype, self.lanes)

    def bits(self, value: Value, source: str, to: str) -> Value:
        """Elements of one type as elements of another whose registers are as wide."""
        if register_dtype(source) == register_dtype(to):
            return value
        if "f4E2M1FN" in (source, to):  # four bits in a register of eight
            return convert(self.b, value, _four(source), _four(to), self.lanes)
        return self.b.op(f"arith.bitcast {value} : {self.type(source)} to {self.type(to)}")

    def zero(self, dtype: str) -> Value:
        """A zero of an element type."""
        if is_register_float(dtype):
            return self.b.float_constant(0.0, dtype, self.lanes)
        return self.b.int_constant(0, register_dtype(dtype), self.lanes)

    def select(self, condition: Value | bool, a: Value, b: Value, dtype: str) -> Value:
        """`a` where the condition (i1, or i1 a lane) holds, else `b`."""
        if isinstance(condition, bool):
            return a if condition else b
        return self.b.op(
            f"arith.select {condition}, {a}, {b} : {self._condition_type(condition)}{self.type(dtype)}"
        )

    def _condition_type(self, condition: Value) -> str:
        return f"vector<{self.lanes}xi1>, " if self.lanes else ""

    def lanewise(self, condition: Value | bool, c: Sequence[Coordinate]) -> Value | bool:
        """A condition from coordinates `c`, spread to all lanes when it is one for all."""
        if isinstance(condition, bool) or not self.lanes or any(varies(x) for x in c):
            return condition
        return self.b.broadcast(condition, "i1", self.lanes)

    def dtype(self, tensor: Tensor) -> str:
        return dtype_of(tensor)


def _scalar(c: Coordinate) -> Index:
    assert isinstance(c, int | str), "a coordinate varies over lanes where there are none"
    return c


class _Emit:
    """Writes a size as index arithmetic; sizes are non-negative."""

    def __init__(self, b: Builder, symbols: Mapping[str, Index]) -> None:
        self.b = b
        self.symbols = symbols

    def constant(self, value: int) -> Index:
        return value

    def symbol(self, name: str) -> Index:
        return self.symbols[name]

    def add(self, a: Index, b: Index) -> Index:
        return self.b.add(a, b)

    def multiply(self, a: Index, b: Index) -> Index:
        return self.b.mul(a, b)

    def call(self, function: str, arguments: Sequence[Index]) -> Index:
        if function == "floordiv":
            return self._floordiv(*arguments)
        combine = {"min": self.b.min, "max": self.b.max, "broadcast": self._broadcast}[function]
        return functools.reduce(combine, arguments)

    def _floordiv(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        return self.b.op(f"arith.floordivsi {self.b.index(a)}, {self.b.index(b)} : index")

    def _broadcast(self, a: Index, b: Index) -> Index:
        return self.b.select(self.b.compare("eq", a, 1), b, a)


@pulls("nn.const")
def _constant(pull: Pull, op: Op, at: At) -> Value:
    """A splat constant that stands in the kernel."""
    array = Const(op.operation).scalar()
    dtype = dtype_of(op.results[0])
    if is_small_float(dtype):
        return pull.b.int_constant(int(array.view("int8")), "i8", pull.lanes)
    if is_float(dtype):
        return pull.b.float_constant(float(array), register_dtype(dtype), pull.lanes)
    value = int(array)
    bits = bits_of(dtype)
    signed = value - (1 << bits) if value >= 1 << (bits - 1) and dtype != "i1" else value
    return pull.b.int_constant(signed, register_dtype(dtype), pull.lanes)


@pulls("kernel.dims")
def _dims(pull: Pull, op: Op, at: At) -> Value:
    """Sizes as elements of a small tensor."""
    dtype = dtype_of(op.results[0])
    values = pull.content(op.results[0])
    found = pull.as_element(values[-1] if values else 0, dtype)
    for position in range(len(values) - 2, -1, -1):
        here = pull.lanewise(pull.coordinates.compare("eq", at[0], position), at)
        found = pull.select(here, pull.as_element(values[position], dtype), found, dtype)
    return found
