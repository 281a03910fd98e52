"""Shape inference: the size of every axis and the content of small integer tensors, as Dims.

`ShapeAnalysis` infers a whole function from the shapes of its arguments. `LocalSizes` serves one op when it is
created: it takes shapes from types (a new symbol for each `?`) and follows shape arithmetic back to constants.

A number that only a run can know, because it stands in a tensor that the model computes or is given, is a *data
symbol*: a symbol bound to an element of a value. It may be negative, which its name says (`dims.SIGNED`). A size made
of such numbers gets a symbol of its own that is defined as the expression, so that sizes are never negative and
stay short.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES, bits_of, is_float, is_unsigned
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import func, ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.support.dims import (
    SIGNED,
    Dim,
    DimTooComplexError,
    broadcast_dims,
    known_nonnegative,
    known_positive,
    maximum,
    minimum,
    product,
    symbol,
    symbols_of,
)
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import InnerShape, NnOp, Shape, Sizes, check_sizes, dtype_of

CONTENT_LIMIT = 64
"""Tensors of more elements are never followed as shape arithmetic."""

_DEPTH_LIMIT = 64

Check = tuple[Dim, Dim, str]
"""Two sizes that must be equal when the model runs, and what is wrong when they are not."""

_DEFINED_LENGTH = 60
"""A size of data whose text is longer gets a symbol of its own."""


@dataclass(frozen=True)
class Reading:
    """What a data symbol stands for.

    Attributes:
        value: a small integer tensor.
        index: which of its elements.
    """

    value: Value
    index: int


class _Scope:
    """What is found out in one block."""

    def __init__(self) -> None:
        self.checks: dict[tuple[Dim, Dim], str] = {}
        self.nonnegative: set[Dim] = set()


class _Sizes:
    """What both kinds of inference share: new symbols, and checks between sizes."""

    def __init__(self) -> None:
        self._depths: dict[str, int] = {}
        self._open: dict[tuple[Value, int], Dim] = {}
        self._scopes: list[_Scope] = [_Scope()]
        self._inner: dict[ir.Block, _Scope] = {}
        self._shapes: dict[Value, Shape] = {}
        self._contents: dict[Value, Shape | None] = {}
        self._current: ir.Operation | None = None
        self._blocks: list[ir.Block] = []
        self._followed_depth = 0
        self._readings: dict[str, Reading] = {}
        self._definitions: dict[str, Dim] = {}
        self._defined: dict[Dim, Dim] = {}

    def fresh(self, hint: str) -> Dim:
        """A new symbol: `hint` and a number."""
        return self._new(hint, len(self._scopes))

    def _new(self, hint: str, depth: int) -> Dim:
        """A new symbol that means something in blocks so deep and deeper."""
        number = 0
        while f"{hint}_{number}" in self._depths:
            number += 1
        self._depths[f"{hint}_{number}"] = depth
        return symbol(f"{hint}_{number}")

    def open(self, value: Value, axis: int) -> Dim:
        """The symbol of a size that is known when an op with regions runs."""
        if not self.is_open(value, axis):
            inside = isinstance(value.owner, ir.Block)
            depth = len(self._scopes) + 1 if inside else len(self._scopes)
            self._open[value, axis] = self._new("carried" if inside else "result", depth)
        return self._open[value, axis]

    def is_open(self, value: Value, axis: int) -> bool:
        """Whether `open` has been asked for that axis."""
        return (value, axis) in self._open

    def elements(self, value: Value, count: int | None = None) -> Shape | None:
        """The elements of a small integer tensor that says sizes or places, as data symbols where they are not
        known; None when their number is not known, or too great.
        """
        known, shape = self.content(value), self.shape(value)
        if known is not None or dtype_of(value) not in ("i32", "i64"):
            return known
        if count is not None and len(shape) == 1 and not isinstance(shape[0], int):
            self.equal(
                shape[0], count, f"{shape[0]} sizes or places are given where {count} are needed"
            )
            known = self._read(value, count)
        elif _is_small(shape):
            known = self._followed(value) or self._read(value, None)
        self._contents[value] = known
        return known

    def define(self, dim: Dim, hint: str) -> Dim:
        """The size `dim` under a name of its own, where it depends on data and is long or may be negative.

        That it is not negative becomes a check.
        """
        if isinstance(dim, int) or not self._depends_on_data(dim):
            return dim
        if known_nonnegative(dim) and len(str(dim)) <= _DEFINED_LENGTH:
            return dim
        if not known_nonnegative(dim):
            text = f"a size of the result of {hint}, which depends on data, is negative"
            self._require(minimum(dim, 0), 0, text)
        if dim not in self._defined:
            made = self._new(hint, max(self._depths.get(s, 0) for s in symbols_of(dim)))
            self._defined[dim] = made
            self._definitions[str(made)] = dim
        return self._defined[dim]

    def _depends_on_data(self, dim: Dim) -> bool:
        return any(s in self._readings or s in self._definitions for s in symbols_of(dim))

    def _followed(self, value: Value) -> Shape | None:
        """The elements through the op that computed them, whose operands become data symbols."""
        op = None if isinstance(value.owner, ir.Block) else view(value.owner)
        if not isinstance(op, NnOp) or len(op.results) != 1 or self._followed_depth > _DEPTH_LIMIT:
            return None
        self._followed_depth += 1
        try:
            return _small_content(op, cast("Sizes", _Elements(self)))
        finally:
            self._followed_depth -= 1

    def _read(self, value: Value, count: int | None) -> Shape:
        total = product(self.shape(value)) if count is None else count
        assert isinstance(total, int)
        block = value.owner if isinstance(value.owner, ir.Block) else value.owner.operation.block
        depth = self._blocks.index(block) + 1 if block in self._blocks else len(self._scopes)
        symbols = [self._new(f"{SIGNED}data", depth) for _ in range(total)]
        for index, made in enumerate(symbols):
            self._readings[symbols_of(made)[0]] = Reading(value, index)
        return tuple(symbols)

    def equal(self, a: Dim, b: Dim, what: str) -> Dim:
        """The integer of the two if there is one, else the first; recorded as a check unless they are the same."""
        difference = b - a
        if difference == 0:
            return a
        if known_positive(difference) or known_positive(-difference):
            raise CompileError("XC2004", f"{what}: {a} and {b} are not equal", node=self._node())
        self._require(a, b, what)
        return b if isinstance(b, int) else a

    def broadcast(self, a: Dim, b: Dim, what: str) -> Dim:
        """The broadcast size; sizes that may still fit or not become a check."""
        try:
            size = broadcast_dims(a, b)
        except ValueError as error:
            raise CompileError("XC2005", f"{what}: {error}", node=self._node()) from error
        if 1 not in (a, b) and a != b:
            self._require_fit(a, b, what)
        return size

    def block(self, block: ir.Block, arguments: Sequence[Shape]) -> list[InnerShape]:
        """Infer a region's block; the shapes that its terminator yields."""
        raise NotImplementedError

    def shape(self, value: Value) -> Shape:
        raise NotImplementedError

    def content(self, value: Value) -> Shape | None:
        raise NotImplementedError

    def _require_fit(self, a: Dim, b: Dim, what: str) -> None:
        """A check that two sizes broadcast."""
        apart = [maximum(d, -d) for d in (a - b, a - 1, b - 1)]
        self._require(minimum(*apart), 0, f"{what}: {a} and {b} must be equal or one of them 1")

    def _require(self, a: Dim, b: Dim, text: str) -> None:
        if any((a, b) in scope.checks for scope in self._scopes):
            return
        node = self._node()
        self._scopes[-1].checks[a, b] = f"{text} (node '{node}')" if node else text

    def _require_nonnegative(self, op: NnOp, shape: Sequence[Dim]) -> None:
        """A check for each size that may turn out negative, such as a window's on a small image."""
        for size in shape:
            if not any(size in scope.nonnegative for scope in self._scopes):
                self._scopes[-1].nonnegative.add(size)
                if not known_nonnegative(size):
                    text = f"a result of {op.NAME} would have a negative size, {size}"
                    self._require(minimum(size, 0), 0, text)

    def _node(self) -> str | None:
        return describe(self._current.location) if self._current is not None else None

    def _of_type(self, value: Value, hint: str) -> Shape:
        """The shape that the type states, with a new symbol for each `?`."""
        if not isinstance(value.type, ir.RankedTensorType):
            return ()
        dynamic = ir.ShapedType.get_dynamic_size()
        return tuple(self.fresh(hint) if d == dynamic else d for d in value.type.shape)

    def _visit(self, operation: ir.Operation) -> None:
        """Infer one op whose operands are known; its results' shapes and contents are then known too."""
        op = view(operation)
        results = list(operation.results)
        if not isinstance(op, NnOp):
            for result in results:
                self._shapes[result] = self._of_type(result, "size")
            return
        outer, self._current = self._current, operation
        try:
            shapes = op.infer(self)
            check_sizes(op, shapes)
            for result, shape in zip(results, shapes, strict=True):
                named = [self.define(d, op.NAME.partition(".")[2]) for d in shape]
                self._require_nonnegative(op, named)
                self._shapes[result] = self._agree(result, tuple(named))
            if len(results) == 1:
                self._contents[results[0]] = _small_content(op, self)
        except CompileError as error:
            error.node = error.node or self._node()
            raise
        except DimTooComplexError as error:
            raise CompileError("XC2008", str(error), node=self._node()) from error
        finally:
            self._current = outer

    def _agree(self, result: Value, shape: Shape) -> Shape:
        """The inferred shape, with sizes that only the type knows (the model may state them)."""
        if not isinstance(result.type, ir.RankedTensorType):
            return shape
        stated = result.type.shape
        if len(stated) != len(shape):
            message = f"the type {result.type} does not have the inferred rank {len(shape)}"
            raise CompileError("XC2009", message, node=self._node())
        dynamic = ir.ShapedType.get_dynamic_size()
        return tuple(
            inferred
            if size == dynamic
            else self.equal(inferred, size, "the inferred and the stated size")
            for inferred, size in zip(shape, stated, strict=True)
        )


class _Elements:
    """Sizes as the op sees them that computed elements which are asked for: its own operands are asked for theirs."""

    def __init__(self, sizes: _Sizes) -> None:
        self._sizes = sizes

    def content(self, value: Value) -> Shape | None:
        return self._sizes.elements(value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sizes, name)


def _is_small(shape: Shape) -> bool:
    """Whether a tensor of the shape is followed as shape arithmetic."""
    return not shape or (
        len(shape) == 1 and isinstance(shape[0], int) and shape[0] <= CONTENT_LIMIT
    )


def _small_content(op: NnOp, sizes: Sizes) -> Shape | None:
    shape = sizes.shape(op.operation.results[0])
    if not _is_small(shape):
        return None
    try:
        content = op.content(sizes)
    except (DimTooComplexError, ZeroDivisionError):
        return None
    if content is None or len(content) != (shape[0] if shape else 1):
        return None  # another number of elements fails a check when the model runs
    dtype = dtype_of(op.operation.results[0])
    return content if all(_holds(dtype, element) for element in content) else None


def _holds(dtype: str, element: Dim) -> bool:
    """Whether elements of the type have this value: they neither wrap nor round. Sizes fit 32 bits or more."""
    if not isinstance(element, int):
        return dtype in ("i32", "i64", "ui32", "ui64", "f32", "f64")
    if is_float(dtype):
        return float(np.array(element, np.float64).astype(DTYPES[dtype])) == element
    unsigned, bits = is_unsigned(dtype) or dtype == "i1", bits_of(dtype)
    low, high = (0, 2**bits) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    return low <= element < high


class ShapeAnalysis(_Sizes):
    """The shapes of all values of a function, and the contents of small integer ones.

    Values made after the analysis are inferred when they are asked for.

    Attributes:
        constraints: sizes that must be equal when the model is called, in the order found, and the text of the
            error when they are not. They depend on the sizes of the arguments only; others are in
            `late_constraints`, and what only matters while a region runs is in `constraints_in`.
    """

    def __init__(self, function: func.FuncOp, argument_shapes: Sequence[Shape | None] = ()) -> None:
        """Infer `function`.

        Args:
            function: the function; ops of other dialects take their shapes from their types.
            argument_shapes: the shape of each argument; where it is None or missing, the type's, with a symbol
                `argI_J` for the `?` of axis J of argument I.

        Raises:
            CompileError: an op's operands do not fit.
        """
        super().__init__()
        block = function.regions[0].blocks[0]
        given = [*argument_shapes, *[None] * (len(block.arguments) - len(argument_shapes))]
        shapes: list[Shape] = []
        for position, (argument, shape) in enumerate(zip(block.arguments, given, strict=True)):
            own = self._of_type(argument, f"arg{position}") if shape is None else tuple(shape)
            shapes.append(self._agree(argument, own))
            for dim in shapes[-1]:
                self._depths.update(dict.fromkeys(symbols_of(dim), 0))
        self._given = frozenset(self._depths)
        self._infer(block, shapes)

    @property
    def constraints(self) -> list[Check]:
        return [c for c in self._own_constraints() if not self._is_late(c[:2])]

    @property
    def late_constraints(self) -> list[Check]:
        """The same that a run makes, since they depend on data."""
        return [c for c in self._own_constraints() if self._is_late(c[:2])]

    def _own_constraints(self) -> list[Check]:
        return [(a, b, text) for (a, b), text in self._scopes[0].checks.items()]

    def constraints_in(self, block: ir.Block) -> list[Check]:
        """What must hold each time that a region's block runs, apart from what must hold around it."""
        scope = self._inner.get(block) or _Scope()
        return [(a, b, text) for (a, b), text in scope.checks.items()]

    def block(self, block: ir.Block, arguments: Sequence[Shape]) -> list[InnerShape]:
        """Infer a region's block; the shapes that its terminator yields."""
        self._scopes.append(_Scope())
        try:
            yielded = self._infer(block, arguments)
        finally:
            self._inner[block] = self._scopes.pop()
        return [tuple(map(self._seen_outside, shape)) for shape in yielded]

    def _infer(self, block: ir.Block, arguments: Sequence[Shape]) -> list[Shape]:
        for argument, shape in zip(block.arguments, arguments, strict=True):
            self._shapes[argument] = self._agree(argument, tuple(shape))
        operations = [o.operation for o in block.operations]
        self._blocks.append(block)
        for operation in operations:
            self._visit(operation)
        self._blocks.pop()
        return [self.shape(v) for v in operations[-1].operands] if operations else []

    def _seen_outside(self, dim: Dim) -> Dim | None:
        """A size, or None where it has symbols of the block just left."""
        depth = len(self._scopes)
        inside = any(self._depths.get(name, 0) > depth for name in symbols_of(dim))
        return None if inside else dim

    @property
    def readings(self) -> Mapping[str, Reading]:
        """The data symbols, and what each stands for."""
        return self._readings

    @property
    def definitions(self) -> Mapping[str, Dim]:
        """Further symbols: each with its meaning over data symbols, sizes of arguments and earlier ones."""
        return self._definitions

    @property
    def opened(self) -> Mapping[tuple[Value, int], str]:
        """The symbols that ops with regions bind, by the result or block argument and its axis."""
        return {where: symbols_of(dim)[0] for where, dim in self._open.items()}

    def _is_late(self, dims: Sequence[Dim]) -> bool:
        return not self._given.issuperset(s for d in dims for s in symbols_of(d))

    def shape(self, value: Value) -> Shape:
        """The size of each axis."""
        if value not in self._shapes:
            self._demand(value)
        return self._shapes[value]

    def content(self, value: Value) -> Shape | None:
        """The elements of a small integer tensor, or None."""
        if value not in self._shapes:
            self._demand(value)
        return self._contents.get(value)

    def _demand(self, value: Value) -> None:
        pending = [value]
        while pending:
            current = pending[-1]
            if current in self._shapes:
                pending.pop()
            elif isinstance(current.owner, ir.Block):
                self._shapes[current] = self._of_type(current, "size")
            else:
                missing = [v for v in current.owner.operands if v not in self._shapes]
                if missing:
                    pending += missing
                else:
                    self._visit(current.owner.operation)


class LocalSizes(_Sizes):
    """Sizes for creating one op: shapes by type, contents through the ops that computed them."""

    def __init__(self) -> None:
        super().__init__()
        self._depth = 0

    def _require(self, a: Dim, b: Dim, text: str) -> None:
        """Nobody reads the checks of one op: they are those of the whole function, made later."""

    def _require_fit(self, a: Dim, b: Dim, what: str) -> None:
        """As `_require`."""

    def shape(self, value: Value) -> Shape:
        """The type's shape; a `?` is one symbol for each value and axis."""
        if value not in self._shapes:
            self._shapes[value] = self._of_type(value, "size")
        return self._shapes[value]

    def block(self, block: ir.Block, arguments: Sequence[Shape]) -> list[InnerShape]:
        """The shapes that a block yields, by their types."""
        operations = list(block.operations)
        values = list(operations[-1].operation.operands) if operations else []
        return [tuple(d if isinstance(d, int) else None for d in self.shape(v)) for v in values]

    def content(self, value: Value) -> Shape | None:
        """The elements of a small integer tensor, or None."""
        if value not in self._contents:
            self._contents[value] = None
            op = None if isinstance(value.owner, ir.Block) else view(value.owner)
            if isinstance(op, NnOp) and len(op.results) == 1 and self._depth < _DEPTH_LIMIT:
                self._depth += 1
                self._contents[value] = _small_content(op, self)
                self._depth -= 1
        return self._contents[value]


def refine_types(
    target: Module | func.FuncOp, argument_shapes: Sequence[Shape | None] = ()
) -> ShapeAnalysis:
    """Write what shape inference finds into the types of a function's values and into its signature.

    Args:
        target: a function, or a module whose `@main` is meant.
        argument_shapes: as for `ShapeAnalysis`.

    Returns:
        The analysis, which holds for the function afterwards.
    """
    function = target.main if isinstance(target, Module) else target
    analysis = ShapeAnalysis(function, argument_shapes)
    _refine_block(function.regions[0].blocks[0], analysis)
    block = function.regions[0].blocks[0]
    returned = [v.type for v in list(block.operations)[-1].operation.operands]
    signature = ir.FunctionType.get([a.type for a in block.arguments], returned)
    function.operation.attributes["function_type"] = ir.TypeAttr.get(signature)
    return analysis


def _refine_block(block: ir.Block, analysis: ShapeAnalysis) -> None:
    values: list[ir.Value] = list(block.arguments)
    for operation in block.operations:
        values += operation.operation.results
        for region in operation.operation.regions:
            for inner in region.blocks:
                _refine_block(inner, analysis)
    for value in values:
        if isinstance(value.type, ir.RankedTensorType):
            dynamic = ir.ShapedType.get_dynamic_size()
            shape = [d if isinstance(d, int) else dynamic for d in analysis.shape(value)]
            value.set_type(
                ir.RankedTensorType.get(shape, value.type.element_type, value.type.encoding)
            )
