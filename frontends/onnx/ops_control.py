"""Loop and Scan. If is converted by `scope`, which keeps its branches apart where it must."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.regions import Body
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import dtype_of, rank_of, tensor_type
from xcompile.dialects.nn.binary import Maximum
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.control import Loop, Yield
from xcompile.dialects.nn.gather import Gather
from xcompile.dialects.nn.reshape import Transpose
from xcompile.dialects.nn.sizes import ShapeOf
from xcompile.dialects.nn.slicing import Slice
from xcompile.frontends.onnx.carried import Carried, with_ranks
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import onnx_op
from xcompile.frontends.onnx.sequences import Known

Step = Callable[[Value, Sequence[Value]], tuple[Value, Sequence[Value], Sequence[Value]]]
"""Makes the ops of one iteration from its number and the carried values: whether to go on, the carried values of the
next iteration, and what is stacked."""

_FIRST = np.iinfo(np.int64).min


@onnx_op("Loop")
def loop(node: NodeContext) -> list[Known]:
    initial = [node.any_input(i) for i in range(2, node.input_count)]
    body = node.body("body")
    if not (node.has_input(0) or node.has_input(1)):
        raise node.error("XC1006", "a Loop without a number of iterations and condition never ends")
    if len(body.outputs) < 1 + len(initial):
        raise node.error(
            "XC1011", f"the graph '{body.name}' has {len(body.outputs)} outputs; it needs {1 + len(initial)} or more"
        )  # fmt: skip

    def build(carried: Carried) -> tuple[Loop, Carried]:
        return _loop(node, carried), carried

    def discard(made: tuple[Loop, Carried]) -> None:
        node.scope.discard(made[0].operation)

    made, carried = with_ranks(node, initial, build, discard)
    # without a condition the first result is what the last iteration yields for it
    stacked = made.stacked
    extra = len(made.finals) - len(carried.tensors)
    return [*carried.values(iter(made.finals[extra:])), *stacked]


def _loop(node: NodeContext, carried: Carried) -> Loop:
    trip, cond = (None if v is None else node.one_element(v) for v in map(node.optional, (0, 1)))
    true, initial = node.constant(np.array(True)), carried.tensors
    if cond is not None and trip is not None and _is_true(cond):
        made = build_loop(node, trip, cond, initial, _loop_step(carried, true), carried.growing)
        if not _is_true(made.going_on):
            return made
        cond = None
    if cond is not None:  # in the body the condition holds
        return build_loop(node, trip, cond, initial, _loop_step(carried, true), carried.growing)
    # without a condition the body sees what the iteration before it has yielded
    growing = [1 + i for i in carried.growing]
    return build_loop(node, trip, None, [true, *initial], _loop_step(carried, None), growing)


def _loop_step(carried: Carried, condition: Value | None) -> Step:
    """An iteration of a Loop; the first carried value is the condition when it is not given."""
    node, count = carried.node, len(carried.initial)

    def step(index: Value, tensors: Sequence[Value]) -> tuple[Value, list[Value], list[Value]]:
        given = iter(tensors)
        holds = next(given) if condition is None else condition
        results = node.run_body("body", [index, holds, *carried.values(given)])
        going = node.tensor(results[0], "the condition")
        if dtype_of(going) != "i1":
            raise node.error("XC2002", f"the condition is {dtype_of(going)}, not bool")
        going, following = node.one_element(going), carried.spread(results[1 : 1 + count])
        parts = [node.tensor(v, "what a Loop stacks") for v in results[1 + count :]]
        return going, [going, *following] if condition is None else following, parts

    return step


def _is_true(value: Value) -> bool:
    constant = const_of(value)
    return constant is not None and constant.splat and bool(constant.scalar())


def build_loop(
    node: NodeContext,
    trip: Value | None,
    cond: Value | None,
    initial: Sequence[Value],
    step: Step,
    growing: Sequence[int] = (),
    level: int = 0,
) -> Loop:
    """The loop of a step; `level` tells the loops of one node apart. The first axis of `growing` values changes.

    The body is made again when sizes that the initial values have turn out to change. What was found is kept: a loop in
    loops is not tried anew each time.
    """
    key = node.node.name, level, tuple(map(rank_of, initial))
    opened = node.scope.open_axes.setdefault(key, {i: {0} for i in growing})
    number = tensor_type((), "i64")
    while True:
        types = [_opened(value, opened.get(i, set())) for i, value in enumerate(initial)]
        body = Body([number, *types], node.location)
        try:
            with body:
                index, *carried = body.arguments
                going, following, parts = step(index, carried)
                Yield.build({"values": [going, *following, *parts]}, [], loc=node.location)
        except CompileError:
            node.scope.discard(body.holder)
            raise
        changing = False
        for i, (kind, value) in enumerate(zip(types, following, strict=True)):
            for axis in _changing_axes(ir.ShapedType(kind), ir.ShapedType(value.type)):
                opened.setdefault(i, set()).add(axis)
                changing = True
        if not changing:
            return Loop.make(trip, cond, initial, body, loc=node.location)
        node.scope.discard(body.holder)


def _opened(value: Value, axes: set[int]) -> ir.Type:
    """The type of a value with some sizes left open."""
    kind, dynamic = ir.ShapedType(value.type), ir.ShapedType.get_dynamic_size()
    shape = [dynamic if i in axes else size for i, size in enumerate(kind.shape)]
    return ir.RankedTensorType.get(shape, kind.element_type)


def _changing_axes(before: ir.ShapedType, after: ir.ShapedType) -> list[int]:
    """The axes whose size is stated before and is not the same after; ranks that differ are for the verifier."""
    if before.rank != after.rank:
        return []
    return [
        axis
        for axis in range(before.rank)
        if not before.is_dynamic_dim(axis) and before.shape[axis] != after.shape[axis]
    ]


# -- Scan -----------------------------------------------------------------------------------------


@onnx_op("Scan", since=9)
def scan(node: NodeContext) -> list[Value]:
    count = _state_count(node, node.input_count)
    states, xs = node.inputs()[:count], node.inputs()[count:]
    outputs = len(node.body("body").outputs) - count
    made = _Scan(
        node,
        xs,
        _per(node, "scan_input_axes", len(xs), [rank_of(x) for x in xs]),
        _per(node, "scan_input_directions", len(xs)),
    ).build(states)
    stacked = made[count:]
    axes = _per(node, "scan_output_axes", outputs, [rank_of(y) for y in stacked])
    backward = _per(node, "scan_output_directions", outputs)
    return [*made[:count], *(_turned(node, *y) for y in zip(stacked, axes, backward, strict=True))]


@onnx_op("Scan", since=8)
def batched_scan(node: NodeContext) -> list[Value]:
    """The first axis of everything is the batch: one scan for each of its elements, stacked.

    A sequence that is shorter than the axis ends the states there; what is stacked behind its end, which ONNX leaves
    open, is zeros. Backward it is read from its own end.
    """
    lengths = node.optional(0)
    if lengths is not None and rank_of(lengths) != 1:
        raise node.error("XC2003", "the sequence lengths of Scan 8 are not a vector")
    given = [node.input(i) for i in range(1, node.input_count)]
    count = _state_count(node, len(given))
    states, xs = given[:count], given[count:]
    if not all(map(rank_of, states)) or any(rank_of(x) < 2 for x in xs):
        raise node.error("XC2003", "an input of Scan 8 has no axis for the batch or the sequence")
    backward = _per(node, "directions", len(xs))
    true = node.constant(np.array(True))

    def element(index: Value, carried: Sequence[Value]) -> tuple[Value, list[Value], list[Value]]:
        parts = [node.make(Gather, x=v, indices=index, axis=0).y for v in given]
        one = _Scan(node, parts[len(states) :], [0] * len(xs), backward)
        if lengths is not None:
            one = one.shorter(node.make(Gather, x=lengths, indices=index, axis=0).y)
        return true, [], one.build(parts[: len(states)])

    sized = given if lengths is None else [*given, lengths]
    batch = _sizes_along(node, sized, [0] * len(sized))
    return build_loop(node, batch, None, [], element, level=1).results


def _state_count(node: NodeContext, inputs: int) -> int:
    scanned = node.attr("num_scan_inputs")
    if not 1 <= scanned <= inputs:
        raise node.error("XC1010", f"{scanned} of {inputs} inputs of Scan cannot be scanned")
    return inputs - scanned


@dataclass(frozen=True)
class _Scan:
    """The loop of a Scan over `xs`: along an axis of each, backward where that is not 0.

    Where `counted` is given, only so many iterations count.
    """

    node: NodeContext
    xs: Sequence[Value]
    axes: Sequence[int]
    backward: Sequence[int]
    counted: Value | None = None

    def shorter(self, count: Value) -> "_Scan":
        """The same of which `count` iterations count; a run with more or less than there are is an error."""
        c = Composition(self.node)
        fits = c.both(c.less(-1, count), c.less_equal(count, self.length))
        return replace(self, counted=c.checked(count, fits))

    @cached_property
    def length(self) -> Value:
        return _sizes_along(self.node, self.xs, self.axes)

    def build(self, states: Sequence[Value]) -> list[Value]:
        """The states at the end, and what is stacked along a new first axis."""
        node, c = self.node, Composition(self.node)
        if len(node.body("body").outputs) < len(states):
            raise node.error("XC1011", f"the body gives less than {len(states)} values")
        true, count = node.constant(np.array(True)), self.counted
        end = self.length if count is None else count
        last = c.sub(end, 1) if any(self.backward) else None

        def step(index: Value, carried: Sequence[Value]) -> tuple[Value, list[Value], list[Value]]:
            places = {False: index}
            if last is not None:
                places[True] = c.maximum(c.sub(last, index), 0)
            parts = [
                c.gather(x, places[bool(backward)], axis)
                for x, axis, backward in zip(self.xs, self.axes, self.backward, strict=True)
            ]
            found = node.run_body("body", [*carried, *parts])
            values = [node.tensor(v, "a result of Scan") for v in found]
            if count is not None:
                counts = c.less(index, count)
                behind = [*carried, *[0] * (len(values) - len(carried))]
                values = [c.where(counts, v, b) for v, b in zip(values, behind, strict=True)]
            return true, values[: len(states)], values[len(states) :]

        return build_loop(node, self.length, None, states, step).results


def _sizes_along(node: NodeContext, values: Sequence[Value], axes: Sequence[int]) -> Value:
    """The size, which must be the same, of an axis of each value, as a scalar.

    Where sizes are not known it is the largest: places behind the end of a shorter value are an error when it is read.
    """
    known = {
        size
        for value, axis in zip(values, axes, strict=True)
        for size in [ir.ShapedType(value.type).shape[axis]]
        if size != ir.ShapedType.get_dynamic_size()
    }
    if len(known) > 1:
        raise node.error(
            "XC2004", f"the inputs have {' and '.join(map(str, sorted(known)))} elements to scan"
        )
    sizes = [
        node.one_element(node.make(ShapeOf, x=value, start=axis, end=axis + 1).y)
        for value, axis in zip(values, axes, strict=True)
    ]
    longest = sizes[0]
    for size in sizes[1:]:
        longest = node.make(Maximum, a=longest, b=size).y
    return longest


def _per(node: NodeContext, name: str, count: int, ranks: Sequence[int] | None = None) -> list[int]:
    """An attribute with a number for each of `count` values, 0 when it is missing; axes when `ranks` are given."""
    numbers = node.attr(name, (0,) * count)
    if len(numbers) != count:
        raise node.error("XC1010", f"'{name}' has {len(numbers)} numbers for {count} values")
    if ranks is None:
        return list(numbers)
    return [node.axis(axis, rank) for axis, rank in zip(numbers, ranks, strict=True)]


def _turned(node: NodeContext, stacked: Value, axis: int, backward: int) -> Value:
    """A stacked result with its first axis reversed, and moved to another place."""
    if backward:
        bounds = {"starts": [-1], "ends": [_FIRST], "axes": [0], "steps": [-1]}
        given = {name: node.constant(np.array(v, np.int64)) for name, v in bounds.items()}
        stacked = node.make(Slice, x=stacked, **given).y
    if axis == 0:
        return stacked
    order = list(range(1, rank_of(stacked)))
    order.insert(axis, 0)
    return node.make(Transpose, x=stacked, perm=tuple(order)).y
