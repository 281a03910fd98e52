"""What every nn op has: inferred shapes and a meaning in numpy.

An op says what it computes three times, each time in its own terms, and tests compare them: `infer`
(sizes), `reference` (numpy) and its kernels.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES, element_type
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Dialect, Op, Value
from xcompile.compiler.support.dims import Dim, DimTooComplexError
from xcompile.compiler.support.errors import CompileError

nn = Dialect("nn")

Shape = tuple[Dim, ...]

InnerShape = tuple[Dim | None, ...]
"""A shape in a region, as seen from outside: None is a size that means nothing there."""


class Sizes(Protocol):
    """What is known about values while shapes are inferred."""

    def shape(self, value: Value) -> Shape:
        """The size of each axis."""
        ...

    def content(self, value: Value) -> Shape | None:
        """The elements of a small tensor of integers (rank 0 or 1) as Dims, or None when they are not known.

        The tensor may be of floats that are whole numbers (shape arithmetic in floating point).
        """
        ...

    def elements(self, value: Value, count: int | None = None) -> Shape | None:
        """The elements of a small integer tensor that says sizes or places: those that are not known become symbols,
        which are read when the model runs and may be negative. Where their number is not known it must be `count`,
        a check at run time; None when that is not known either.
        """
        ...

    def define(self, dim: Dim, hint: str) -> Dim:
        """The size under a name of its own where it depends on data and is long; that it is not negative is checked."""
        ...

    def fresh(self, hint: str) -> Dim:
        """A new symbol, whose meaning is given elsewhere."""
        ...

    def equal(self, a: Dim, b: Dim, what: str) -> Dim:
        """The common value of two sizes which `what` says must be equal; a check at run time if need be.

        Raises:
            CompileError: they can't be equal.
        """
        ...

    def broadcast(self, a: Dim, b: Dim, what: str) -> Dim:
        """The size where `a` and `b` meet by broadcasting (equal, or one is 1); checked like `equal`."""
        ...

    def block(self, block: ir.Block, arguments: Sequence[Shape]) -> list[InnerShape]:
        """Infer a region's block from the shapes of its arguments; the shapes that its terminator yields."""
        ...

    def open(self, value: Value, axis: int) -> Dim:
        """The symbol of a size that is known when an op with regions runs: the same each time it is asked for.

        `value` is a result of that op, or an argument of its block.
        """
        ...

    def is_open(self, value: Value, axis: int) -> bool:
        """Whether `open` has been asked for that axis."""
        ...


class NnOp(Op):
    """Base of the nn ops."""

    reference: ClassVar[Callable[..., Any]]
    """The method that gives the result in numpy: an array, or a tuple of arrays for several results.

    Operands come in field order: an array, None for an absent optional one, a list for a variadic one.
    """

    def dtypes(self) -> Sequence[str]:
        """The element type of each result; that of the first operand unless overridden."""
        return [dtype_of(self.operation.operands[0])] * len(self.operation.results)

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        """The shape of each result; raises `CompileError` for operands that do not fit."""
        raise NotImplementedError

    def content(self, sizes: Sizes) -> Shape | None:
        """The elements of the (single, small, integer) result as Dims when they are known; for shape arithmetic."""
        return None

    def error(self, code: str, message: str, *, help: str | None = None) -> CompileError:
        """The error to raise about this op, with its model node."""
        return CompileError(code, message, node=describe(self.location), help=help)

    @classmethod
    def create(cls, *, loc: ir.Location | None = None, results: int = 1, **fields: Any) -> Self:
        """Create the op at the current insertion point, verified and its result types inferred.

        Args:
            loc: the model node; the current location when None.
            results: the number of results of ops with variadic results.
            fields: operands and attributes by name.

        Raises:
            CompileError: the operands and attributes do not fit.
        """
        from xcompile.dialects.nn.shapes import LocalSizes  # ShapeAnalysis builds on this module

        singles = [f for f in cls.FIELDS if f.kind == "result"]
        count = results if any(f.many != "single" for f in singles) else len(singles)
        made = cls.build(fields, [ir.Type.parse("tensor<*xi1>")] * count, loc=loc)
        try:
            made.verify()
            made.set_types(LocalSizes())
        except CompileError as error:
            error.node = error.node or describe(made.location)
            made.operation.erase()
            raise
        except DimTooComplexError as error:
            complaint = made.error("XC2008", str(error))
            made.operation.erase()
            raise complaint from error
        except BaseException:
            made.operation.erase()
            raise
        return made

    def set_types(self, sizes: Sizes) -> None:
        """Give the results their inferred types."""
        shapes, dtypes = self.infer(sizes), self.dtypes()
        check_sizes(self, shapes)
        for result, shape, dtype in zip(self.operation.results, shapes, dtypes, strict=True):
            result.set_type(tensor_type(shape, dtype))


def check_sizes(op: NnOp, shapes: Sequence[Shape]) -> None:
    """Raise XC2008 for sizes that no tensor has: negative ones and those beyond 64 bits."""
    for shape in shapes:
        for size in shape:
            if isinstance(size, int) and not 0 <= size < 2**63:
                raise op.error("XC2008", f"a result of {op.NAME} would have the size {size}")


def tensor_type(shape: Sequence[Dim], dtype: str, layout: str | None = None) -> ir.Type:
    """The builtin tensor type; sizes that are not integers become `?`."""
    dynamic = ir.ShapedType.get_dynamic_size()
    encoding = ir.Attribute.parse(f'#nn.layout<"{layout}">') if layout else None
    return ir.RankedTensorType.get(
        [d if isinstance(d, int) else dynamic for d in shape], element_type(dtype), encoding
    )


def dtype_of(value: Value) -> str:
    """The element type of a tensor value, as its short text."""
    return str(ir.ShapedType(value.type).element_type)


def numpy_dtype(value: Value) -> np.dtype:
    """The numpy dtype of a tensor value."""
    return DTYPES[dtype_of(value)]


def rank_of(value: Value) -> int:
    """The number of axes of a tensor value."""
    return ir.ShapedType(value.type).rank


def is_static(value: Value) -> bool:
    """Whether the type of a tensor value has the size of every axis."""
    return ir.ShapedType(value.type).has_static_shape


def axis_of(op: NnOp, axis: int, rank: int) -> int:
    """`axis` counted from the front; CompileError when a tensor of `rank` axes does not have it."""
    if not -rank <= axis < rank:
        raise op.error("XC2006", f"axis {axis} is out of range for {rank} axes")
    return axis % rank


def check_integers(op: NnOp, value: Value | None, what: str, rank: int = 1) -> None:
    """Raise unless `value` (if it is there) is an int32 or int64 tensor of `rank` axes."""
    if value is None:
        return
    if dtype_of(value) not in ("i32", "i64"):
        raise op.error("XC2002", f"the {what} must be int32 or int64, not {dtype_of(value)}")
    if rank_of(value) != rank:
        raise op.error("XC2003", f"the {what} must have {rank} axes, not {rank_of(value)}")
