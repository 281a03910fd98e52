"""Control flow: branches and loops whose bodies are regions.

    %y = "nn.if"(%cond) ({ … "nn.yield"(%a) }, { … "nn.yield"(%b) })
    %last, %all = "nn.loop"(%trip, %cond, %first) ({
    ^body(%iteration: tensor<i64>, %carried: …):
      … "nn.yield"(%continue, %next, %value)
    })

Regions use the values around them freely. What a region yields has the dtype and rank of the result; sizes may differ
between branches and from iteration to iteration.
"""

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Operand, Operands, Region, Results, Value
from xcompile.compiler.ir.regions import Body
from xcompile.compiler.support.dims import Dim, known_nonnegative, maximum, symbol
from xcompile.dialects.nn.base import (
    InnerShape,
    NnOp,
    Shape,
    Sizes,
    dtype_of,
    is_static,
    nn,
    numpy_dtype,
    rank_of,
    tensor_type,
)

RunBlock = Callable[[ir.Block, Sequence[np.ndarray]], list[np.ndarray]]
"""Runs a block for the values of its arguments; what it yields."""


@nn.op("yield", pure=False)
class Yield(NnOp):
    """Ends a region: the values that it gives to the op around it."""

    values: Operands

    def dtypes(self) -> Sequence[str]:
        return []

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return []

    def reference(self, values: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        """Nothing: who runs the block takes the values."""
        return ()


@nn.op("fail", pure=False)
class Fail(NnOp):
    """Ends a branch of `nn.if` that means nothing: the model fails with the text when it is taken."""

    text: str

    def dtypes(self) -> Sequence[str]:
        return []

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        return []

    def reference(self) -> tuple[np.ndarray, ...]:
        raise self.error("XC2011", self.text)


class ControlOp(NnOp):
    """An op that runs the blocks in its regions, and has no other meaning."""

    @property
    def blocks(self) -> list[ir.Block]:
        """The one block of each region."""
        return [region.blocks[0] for region in self.operation.regions]

    def run(self, run_block: RunBlock, *operands: Any) -> list[np.ndarray]:
        """The results for operands as `reference` gets them."""
        raise NotImplementedError

    @classmethod
    def _of_bodies(
        cls, fields: dict[str, Any], bodies: Sequence[Body], count: int, loc: ir.Location | None
    ) -> Self:
        """Create the op around bodies that are complete, verified and its result types inferred.

        After an error the op is still there: other ops may have been made from what its regions hold.
        """
        from xcompile.dialects.nn.shapes import LocalSizes  # ShapeAnalysis builds on `base`

        unknown = [ir.Type.parse("tensor<*xi1>")] * count
        made = cls.build(fields, unknown, loc=loc, bodies=bodies)
        made.check_bodies()
        made.set_types(LocalSizes())
        return made

    def verify(self) -> None:
        self.check_bodies()
        for block in self.blocks:
            for result, kind in zip(self.results, self.given_types(block), strict=False):
                if not _fit(ir.ShapedType(result.type), kind):
                    raise self.error("XC2009", f"a region gives {kind} for a result {result.type}")

    def check_bodies(self) -> None:
        """Raise `CompileError` unless the blocks fit the operands and the number of results."""
        raise NotImplementedError

    def given_types(self, block: ir.Block) -> list[ir.ShapedType]:
        """What a region gives for each result, as types; nothing when it fails."""
        raise NotImplementedError

    def _check_block(self, region: ir.Region) -> None:
        if len(region.blocks) != 1 or yielded(region.blocks[0]) is None:
            raise self.error("XC2001", f"a region of {self.NAME} is one block ended by nn.yield")

    def _check_scalar(self, value: Value | None, dtype: str, what: str) -> None:
        if value is None:
            return
        if dtype_of(value) != dtype:
            raise self.error("XC2002", f"the {what} must be {dtype}, not {dtype_of(value)}")
        if rank_of(value) != 0:
            raise self.error("XC2003", f"the {what} must be a scalar, not {value.type}")

    def _check_same(self, a: Value, b: Value, what: str) -> None:
        if dtype_of(a) != dtype_of(b):
            raise self.error("XC2002", f"{what} is {dtype_of(a)} and {dtype_of(b)}")
        if rank_of(a) != rank_of(b):
            raise self.error("XC2003", f"{what} has {rank_of(a)} and {rank_of(b)} axes")


def yielded(block: ir.Block) -> list[Value] | None:
    """The values that a region's block gives; None when it does not end in `nn.yield`."""
    operations = list(block.operations)
    last = Yield.of(operations[-1]) if operations else None
    return None if last is None else last.operands


def fails(block: ir.Block) -> bool:
    """Whether a region's block ends in `nn.fail`."""
    operations = list(block.operations)
    return bool(operations) and Fail.of(operations[-1]) is not None


def _fit(a: ir.ShapedType, b: ir.ShapedType) -> bool:
    """Whether a tensor may have both types: sizes are equal where both know them."""
    dynamic = ir.ShapedType.get_dynamic_size()
    if a.element_type != b.element_type or a.rank != b.rank:
        return False
    return all(x == y or dynamic in (x, y) for x, y in zip(a.shape, b.shape, strict=True))


@nn.op("if")
class If(ControlOp):
    """What the first region gives if `cond` holds, else what the second one gives. ONNX If.

    The condition is a tensor of one element; the regions' blocks have no arguments. One of them may end in `nn.fail`.
    """

    cond: Operand
    ys: Results
    then: Region
    otherwise: Region

    @classmethod
    def make(
        cls, cond: Value, then: Body, otherwise: Body, *, loc: ir.Location | None = None
    ) -> Self:
        """The op for two bodies that end in `nn.yield`, or one of them in `nn.fail`.

        Raises:
            CompileError: their results differ in number, dtype or rank.
        """
        count = len(yielded(then.block) or yielded(otherwise.block) or ())
        return cls._of_bodies({"cond": cond}, [then, otherwise], count, loc)

    def check_bodies(self) -> None:
        if dtype_of(self.cond) != "i1":
            raise self.error("XC2002", f"the condition must be bool, not {dtype_of(self.cond)}")
        if not is_static(self.cond) or any(d != 1 for d in ir.ShapedType(self.cond.type).shape):
            raise self.error("XC2003", f"the condition must be one element, not {self.cond.type}")
        for region in self.operation.regions:
            if len(region.blocks) != 1 or not fails(region.blocks[0]):
                self._check_block(region)
            if len(region.blocks[0].arguments):
                raise self.error("XC2001", "the blocks of nn.if have no arguments")
        if not self.live:
            raise self.error("XC2001", "both branches of nn.if fail")
        given = [yielded(block) or [] for block in self.live]
        if any(len(values) != len(self.results) for values in given):
            counts = " and ".join(str(len(values)) for values in given)
            raise self.error("XC2001", f"the branches give {counts} of {len(self.results)} values")
        for position, values in enumerate(zip(*given, strict=True)):
            self._check_same(values[0], values[-1], f"result {position} of the branches")

    @property
    def live(self) -> list[ir.Block]:
        """The blocks that do not fail."""
        return [block for block in self.blocks if not fails(block)]

    def given_types(self, block: ir.Block) -> list[ir.ShapedType]:
        return [ir.ShapedType(v.type) for v in yielded(block) or []]

    def decided(self, sizes: Sizes) -> int | None:
        """The position of the region that always runs, when that is known."""
        known = sizes.content(self.cond) if rank_of(self.cond) < 2 else None
        if known is None or not isinstance(known[0], int):
            return None
        return 0 if known[0] else 1

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(v) for v in yielded(self.live[0]) or []]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        decided = self.decided(sizes)
        running = self.live if decided is None else [self.blocks[decided]]
        if decided is not None and fails(self.blocks[decided]):
            raise self.error("XC2004", f"a branch that fails is always taken: {self._why()}")
        given = [sizes.block(block, ()) for block in running]
        return [
            tuple(
                self._size(sizes, position, axis, dims)
                for axis, dims in enumerate(zip(*shapes, strict=True))
            )
            for position, shapes in enumerate(zip(*given, strict=True))
        ]

    def _why(self) -> str:
        ends = [list(block.operations)[-1] for block in self.blocks]
        return next(end.text for op in ends if (end := Fail.of(op)) is not None)

    def _size(self, sizes: Sizes, position: int, axis: int, dims: Sequence[Dim | None]) -> Dim:
        first = dims[0]
        if first is None or any(d != first for d in dims):
            return sizes.open(self.results[position], axis)
        return first

    def run(self, run_block: RunBlock, *operands: Any) -> list[np.ndarray]:
        (cond,) = operands
        return run_block(self.blocks[0 if np.asarray(cond).reshape(()) else 1], ())


@nn.op("loop")
class Loop(ControlOp):
    """Runs its region `trip` times and as long as the condition holds. ONNX Loop; Scan is imported to it.

    The block takes the iteration's number and the carried values. It yields whether to go on, the carried values of
    the next iteration, and values that are stacked over all iterations. `cond` says whether the first iteration
    runs; without it the loop runs `trip` times, whatever is yielded. The results are the carried values at the end,
    then the stacked ones, whose first axis has the number of iterations.
    """

    trip: Operand | None
    cond: Operand | None
    initial: Operands
    ys: Results
    body: Region

    @classmethod
    def make(
        cls,
        trip: Value | None,
        cond: Value | None,
        initial: Sequence[Value],
        body: Body,
        *,
        loc: ir.Location | None = None,
    ) -> Self:
        """The op for a body that ends in `nn.yield`.

        Raises:
            CompileError: the body's arguments or what it yields do not fit the initial values.
        """
        count = max(len(yielded(body.block) or ()) - 1, 0)
        fields = {"trip": trip, "cond": cond, "initial": initial}
        return cls._of_bodies(fields, [body], count, loc)

    @property
    def block(self) -> ir.Block:
        return self.blocks[0]

    @property
    def carried(self) -> Sequence[Value]:
        """The block's arguments that are carried from iteration to iteration."""
        _, *carried = self.block.arguments
        return carried

    @property
    def finals(self) -> list[Value]:
        """The results that are carried values at the end."""
        return self.results[: len(self.initial)]

    @property
    def stacked(self) -> list[Value]:
        """The results that hold a value of each iteration."""
        return self.results[len(self.initial) :]

    @property
    def next(self) -> list[Value]:
        """What the block yields for the carried values."""
        return (yielded(self.block) or [])[1 : 1 + len(self.initial)]

    @property
    def going_on(self) -> Value:
        """What the block yields for the condition."""
        return (yielded(self.block) or [])[0]

    @property
    def parts(self) -> list[Value]:
        """What the block yields to be stacked."""
        return (yielded(self.block) or [])[1 + len(self.initial) :]

    def check_bodies(self) -> None:
        self._check_scalar(self.trip, "i64", "number of iterations")
        self._check_scalar(self.cond, "i1", "condition")
        if self.trip is None and self.cond is None:
            raise self.error("XC2001", "a loop without a condition or a number of iterations")
        self._check_block(self.operation.regions[0])
        arguments, values = list(self.block.arguments), yielded(self.block) or []
        if len(arguments) != 1 + len(self.initial):
            raise self.error(
                "XC2001",
                f"the loop's block has {len(arguments)} arguments for {len(self.initial)} carried values",
            )
        if len(values) != 1 + len(self.results) or len(self.results) < len(self.initial):
            raise self.error(
                "XC2001",
                f"the loop's block yields {len(values)} values for {len(self.results)} results",
            )
        self._check_scalar(arguments[0], "i64", "iteration")
        self._check_scalar(values[0], "i1", "yielded condition")
        for position, triple in enumerate(zip(self.initial, self.carried, self.next, strict=True)):
            for value in triple[1:]:
                self._check_same(triple[0], value, f"the carried value {position}")

    def given_types(self, block: ir.Block) -> list[ir.ShapedType]:
        stacked = [
            ir.ShapedType(tensor_type([symbol("n"), *kind.shape], str(kind.element_type)))
            for kind in (ir.ShapedType(v.type) for v in self.parts)
        ]
        return [*(ir.ShapedType(v.type) for v in self.next), *stacked]

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(v) for v in (*self.next, *self.parts)]

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        """Sizes of carried values are those of the initial ones, or else open: found by trying until none changes."""
        initial = [sizes.shape(v) for v in self.initial]
        count = len(initial)
        while True:
            shapes = [_opened(sizes, *pair) for pair in zip(self.carried, initial, strict=True)]
            given = sizes.block(self.block, [(), *shapes])[1:]
            changing = [
                (argument, axis)
                for argument, before, after in zip(self.carried, shapes, given, strict=False)
                for axis, (size, then) in enumerate(zip(before, after, strict=True))
                if size != then and not sizes.is_open(argument, axis)
            ]
            if not changing:
                break
            for argument, axis in changing:
                sizes.open(argument, axis)
        finals = [
            tuple(
                sizes.open(result, axis) if sizes.is_open(argument, axis) else size
                for axis, size in enumerate(shape)
            )
            for result, argument, shape in zip(self.finals, self.carried, shapes, strict=True)
        ]
        return [*finals, *map(self._stacked_shape(sizes), self.stacked, given[count:])]

    def _stacked_shape(self, sizes: Sizes) -> Callable[[Value, InnerShape], Shape]:
        trip = sizes.content(self.trip) if self.trip is not None and self.cond is None else None
        length = None if trip is None else trip[0]
        if length is not None and not known_nonnegative(length):
            length = maximum(length, 0)

        def shape(result: Value, part: InnerShape) -> Shape:
            return tuple(
                sizes.open(result, axis) if size is None else size
                for axis, size in enumerate((length, *part))
            )

        return shape

    def run(self, run_block: RunBlock, *operands: Any) -> list[np.ndarray]:
        trip, cond, initial = operands
        most = None if trip is None else int(trip)
        going, carried = cond is None or bool(cond), list(initial)
        parts: list[list[np.ndarray]] = [[] for _ in self.stacked]
        iteration = 0
        while going and (most is None or iteration < most):
            going, *values = run_block(self.block, [np.array(iteration, np.int64), *carried])
            going = cond is None or bool(going)
            carried = values[: len(carried)]
            for found, value in zip(parts, values[len(carried) :], strict=True):
                found.append(value)
            iteration += 1
        return [*carried, *map(_stack, parts, self.parts)]


def _opened(sizes: Sizes, argument: Value, initial: Shape) -> Shape:
    """The shape of a carried value in the block."""
    return tuple(
        sizes.open(argument, axis) if sizes.is_open(argument, axis) else size
        for axis, size in enumerate(initial)
    )


def _stack(found: Sequence[np.ndarray], value: Value) -> np.ndarray:
    """The values of all iterations; sizes that are not known are 0 where there was none."""
    if found:
        return np.stack(found)
    kind = ir.RankedTensorType(value.type)
    shape = [0 if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank)]
    return np.empty([0, *shape], numpy_dtype(value))
