"""From the kernel level to steps: what a run does, in order."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from xcompile.compiler.codegen.program import program as rt
from xcompile.compiler.codegen.program.kernels import Constants, Kernels
from xcompile.compiler.codegen.program.memory import Memory
from xcompile.compiler.codegen.program.values import Values
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.support.dims import (
    Dim,
    maximum,
    minimum,
    parse,
    substitute,
    symbol,
    symbols_of,
)
from xcompile.dialects.kernel import TRIP, Check, Define, Launch, Read
from xcompile.dialects.nn.base import Shape, dtype_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.control import Fail, If, Loop, yielded

PART_CYCLES = 40_000
"""A part of a launch should take at least about so many cycles: waking a thread costs a few thousand."""


class Steps:
    """Writes the steps of a program in order."""

    def __init__(
        self, values: Values, kernels: Kernels, constants: Constants, memory: Memory
    ) -> None:
        self._values = values
        self._kernels = kernels
        self._constants = constants
        self._memory = memory
        self._late: set[str] = set()
        self._named: dict[Dim, Dim] = {}
        self._counts: Counter[str] = Counter()
        self._steps: list[rt.Step] = []

    def write(self) -> list[rt.Step]:
        self._block(self._values.main)
        first = 0
        for position, slot, value in self._memory.given():
            sizes = tuple(d for d in self._values.shape(value) if self._is_late(d))
            self._steps.append(rt.Give(position, slot, sizes, first))
            first += len(sizes)
        return self._steps

    def _block(self, block: ir.Block) -> None:
        """Write the steps of a block's ops."""
        for op in self._values.ops[block]:
            if isinstance(op, Launch):
                for slot, size in self._memory.born(op):
                    self._steps.append(rt.Allocate(slot, self._size(size)))
            self._write(op)
            number = self._values.ends.get(op, self._values.numbers[op])
            self._free(number, block)

    def _free(self, number: int, block: ir.Block) -> None:
        self._steps += [rt.Free(slot) for slot in self._memory.dead(number, block)]

    @contextmanager
    def _nested(self) -> Iterator[list[rt.Step]]:
        """Meanwhile steps go to a list of their own, and sizes that get names there have none afterwards."""
        steps, named = self._steps, dict(self._named)
        self._steps = []
        try:
            yield self._steps
        finally:
            self._steps, self._named = steps, named

    def _write(self, op: Op) -> None:
        match op:
            case Launch():
                self._steps.append(self._launch(op))
            case Read():
                self._read(op)
            case Define():
                self._define(op.symbol, parse(op.dim))
            case Check():
                self._steps.append(rt.Check(parse(op.left), parse(op.right), op.text))
            case If():
                self._if(op)
            case Loop():
                self._loop(op)
            case _:
                raise AssertionError(f"{op.NAME} has no steps")

    def _define(self, name: str, dim: Dim) -> None:
        self._late.add(name)
        self._steps.append(rt.Define(name, dim))

    def _if(self, op: If) -> None:
        sides: list[tuple[rt.Step, ...]] = []
        cond = self._source(op.cond)
        for block in op.blocks:
            with self._nested() as steps:
                self._block(block)
                end = Fail.of(list(block.operations)[-1])
                if end is not None:
                    self._steps.append(rt.Check(0, 1, end.text))
                for result, value in zip(op.results, yielded(block) or (), strict=False):
                    self._bind(result, self._values.shape(value))
            sides.append(tuple(steps))
        self._steps.append(rt.If(cond, *sides))

    def _bind(self, value: Value, shape: Shape) -> None:
        """Give the symbols that a value's shape has of its own the sizes of another shape."""
        for dim, size in zip(self._values.shape(value), shape, strict=True):
            if dim != size:
                self._define(_name_of(dim), size)

    def _source(self, value: Value) -> rt.Place:
        """Where a value lies that is read as it is."""
        constant = const_of(self._values.base(value))
        place = self._constants.stored(constant) if constant else self._memory.place(value)
        return place.mapped(self._size)

    def _fresh(self, hint: str) -> str:
        self._counts[hint] += 1
        return f"@{hint}{self._counts[hint]}"

    def _read(self, op: Read) -> None:
        place = self._source(op.x)
        for index, name in enumerate(op.symbols):
            if name:
                self._late.add(name)
                self._steps.append(rt.Read(name, place, index, dtype_of(op.x)))

    def _launch(self, launch: Launch) -> rt.Launch:
        kernel = self._kernels[launch.callee]
        places = [self._operand(launch, i, v) for i, v in enumerate(launch.inputs)]
        places += [self._memory.place(r) for r in launch.results]
        sizes = tuple(parse(s) for s in launch.sizes)
        binding = {f"d{i}": size for i, size in enumerate(sizes)}
        touched = (*launch.inputs, *launch.results)
        return rt.Launch(
            symbol=kernel.symbol,
            places=tuple(p.mapped(self._size) for p in places),
            sizes=tuple(map(self._size, sizes)),
            extent=self._size(substitute(kernel.plan.extent, binding)),
            grain=max(1, int(PART_CYCLES / max(1.0, kernel.plan.unit_cost))),
            scratch=kernel.plan.scratch,
            node=describe(launch.location) or launch.callee,
            flops=substitute(kernel.flops, binding),
            lengths=tuple(self._values.bytes_of(v) for v in touched),
            results=len(launch.results),
        )

    def _operand(self, launch: Launch, position: int, value: Value) -> rt.Place:
        constant = const_of(self._values.base(value))
        if constant is not None:
            return self._constants.place(launch, position, constant)
        return self._memory.place(value)

    def _is_late(self, dim: Dim) -> bool:
        return not self._late.isdisjoint(symbols_of(dim))

    def _size(self, dim: Dim) -> Dim:
        """The size as steps use it: one that depends on data is computed once, and has a symbol from then on."""
        if isinstance(dim, int) or not self._is_late(dim):
            return dim
        if str(dim) in map(str, map(symbol, symbols_of(dim))):
            return dim
        if dim not in self._named:
            name = self._fresh("late")
            self._named[dim] = symbol(name)
            self._define(name, dim)
        return self._named[dim]

    # -- loops ----------------------------------------------------------------------------------

    def _loop(self, op: Loop) -> None:
        """The carried values lie where the results will be; what an iteration yields takes their place at its end."""
        iteration = self._fresh("iteration")
        self._define(iteration, 0)
        trip = self._trip(op)
        shapes = [self._values.shape(v) for v in op.initial]
        for argument, shape in zip(op.carried, shapes, strict=True):
            self._bind(argument, shape)
        for argument, initial in zip(op.carried, op.initial, strict=True):
            self._begin(argument, initial)
        stacked = self._stacked(op, iteration)
        going = self._memory.place(op.going_on)
        if op.cond is not None:
            length = self._values.bytes_of(op.cond)
            self._steps.append(rt.Copy(self._source(op.cond), going, length))
        number = self._memory.place(op.block.arguments[0])
        with self._nested() as steps:
            self._steps.append(rt.Store(number, symbol(iteration)))
            self._block(op.block)
            for each in stacked:
                self._stack(each)
            moved = self._carry(op)
            dead = self._memory.dead(self._values.ends[op], op.block)
            self._steps += [rt.Free(slot) for slot in dead if slot not in moved]
        self._steps.append(
            rt.Loop(
                iteration, trip is not None, trip or 0, op.cond is not None, going, tuple(steps)
            )
        )
        for result, argument in zip(op.finals, op.carried, strict=True):
            self._bind(result, self._values.shape(argument))
        for stack in stacked:
            length = self._values.shape(stack.result)[0]
            if self._values.opened_by(length, op):
                self._define(_name_of(length), symbol(iteration))

    def _trip(self, op: Loop) -> Dim | None:
        """How often a loop runs at most: a number, or a symbol that is read."""
        if op.trip is None:
            return None
        if TRIP in op.operation.attributes:
            return self._size(parse(ir.StringAttr(op.operation.attributes[TRIP]).value))
        name = self._fresh("trip")
        self._late.add(name)
        self._steps.append(rt.Read(name, self._source(op.trip), 0, "i64"))
        return symbol(name)

    def _begin(self, argument: Value, initial: Value) -> None:
        """Copy an initial value to where the carried one lies."""
        length = self._size(self._values.bytes_of(initial))
        slot = self._memory.slot(argument)
        if slot is not None:
            self._steps.append(rt.Allocate(slot, length))
        self._steps.append(rt.Copy(self._source(initial), self._memory.place(argument), length))

    def _carry(self, op: Loop) -> set[int]:
        """Put what an iteration yields in the place of the carried values, and give their symbols its sizes.

        Returns:
            The numbers of the addresses whose memory the carried values take over.
        """
        moved: set[int] = set()
        pairs = list(zip(op.carried, op.next, strict=True))
        for argument, value in pairs:
            target, source = self._memory.slot(argument), self._memory.slot(value)
            if target is None or source is None:
                length = self._size(self._values.bytes_of(value))
                if target is not None:
                    self._steps += [rt.Free(target), rt.Allocate(target, length)]
                place = self._memory.place(argument)
                self._steps.append(rt.Copy(self._source(value), place, length))
            else:
                self._steps += [rt.Free(target), rt.Move(target, source)]
                moved.add(source)
        new = [
            (_name_of(dim), size)
            for argument, value in pairs
            for dim, size in zip(
                self._values.shape(argument), self._values.shape(value), strict=True
            )
            if dim != size
        ]
        named = [(name, self._fresh("next"), size) for name, size in new]
        for _, temporary, size in named:
            self._define(temporary, size)
        for name, temporary, _ in named:
            self._define(name, symbol(temporary))
        return moved

    def _stacked(self, op: Loop, iteration: str) -> list["_Stack"]:
        """Make room for the values that a loop stacks."""
        found: list[_Stack] = []
        for result, part in zip(op.stacked, op.parts, strict=True):
            shape, inner = self._values.shape(result), self._values.shape(part)
            unknown = [d for d in shape if self._values.opened_by(d, op)]
            slot = self._memory.slot(result)
            if not unknown:
                if slot is not None:
                    self._steps.append(rt.Allocate(slot, self._size(self._values.bytes_of(result))))
                found.append(_Stack(result, part, iteration))
                continue
            assert slot is not None
            filled, capacity = self._fresh("filled"), self._fresh("capacity")
            self._define(filled, 0)
            self._define(capacity, 64)
            self._steps.append(rt.Allocate(slot, 64))
            for dim in shape[1:]:
                if dim in unknown:
                    self._define(_name_of(dim), 0)
            found.append(_Stack(result, part, iteration, (slot, filled, capacity)))
            assert len(inner) + 1 == len(shape)
        return found

    def _stack(self, stack: "_Stack") -> None:
        """Add the value of one iteration."""
        length = self._size(self._values.bytes_of(stack.part))
        source = self._source(stack.part)
        if stack.growing is None:
            target = self._memory.place(stack.result)
            place = target.behind(symbol(stack.iteration) * length).mapped(self._size)
            self._steps.append(rt.Copy(source, place, length))
            return
        shape, inner = self._values.shape(stack.result)[1:], self._values.shape(stack.part)
        for dim, size in zip(shape, inner, strict=True):
            if dim != size:
                apart = maximum(dim - size, size - dim) * minimum(symbol(stack.iteration), 1)
                text = "the values that a loop stacks differ in size"
                self._steps.append(rt.Check(apart, 0, text))
                self._define(_name_of(dim), size)
        slot, filled, capacity = stack.growing
        self._steps.append(rt.Append(slot, source, length, filled, capacity))


@dataclass(frozen=True)
class _Stack:
    """A value that a loop stacks.

    Attributes:
        result: the whole.
        part: what one iteration gives.
        iteration: the symbol that counts.
        growing: where the number of iterations is not known: the address's number, and the symbols that say how many
            bytes are there and how many have room.
    """

    result: Value
    part: Value
    iteration: str
    growing: tuple[int, str, str] | None = None


def _name_of(dim: Dim) -> str:
    (name,) = symbols_of(dim)
    return name
