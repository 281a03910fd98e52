"""Canonical forms of branches and loops: patterns of nn-canonicalize."""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.regions import nested, uses_of
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.compiler.support.dims import Dim, has_signed, known_nonnegative
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import InnerShape, NnOp, Shape, dtype_of, numpy_dtype
from xcompile.dialects.nn.control import If, Loop, Yield, fails, yielded
from xcompile.dialects.nn.reshape import Unsqueeze
from xcompile.dialects.nn.shapes import ShapeAnalysis
from xcompile.passes.common.constants import constant
from xcompile.passes.common.shapes import shapes


class DecidedBranch(Pattern[If]):
    """Put the branch that always runs in place of the op.

        %y = "nn.if"(%true) ({ %0 = "nn.relu"(%x)  "nn.yield"(%0) }, { … })
    ->
        %y = "nn.relu"(%x)
    """

    def rewrite(self, op: If, rewriter: Rewriter) -> None:
        decided = op.decided(rewriter.analysis(shapes))
        if decided is None:
            no_match("the condition is not known")
        block = op.blocks[decided]
        if fails(block):
            no_match("the branch fails")
        given = yielded(block) or []
        _check_replaceable(op, given)
        _inline(op, block, rewriter)
        rewriter.replace(op, given)


class UnusedOfBranches(Pattern[If]):
    """Drop results that nobody uses, and those that are the same value in both branches.

        %y, %z = "nn.if"(%c) ({ … "nn.yield"(%a, %x) }, { … "nn.yield"(%b, %x) })
    ->
        %y = "nn.if"(%c) ({ … "nn.yield"(%a) }, { … "nn.yield"(%b) })        and %x for %z
    """

    def rewrite(self, op: If, rewriter: Rewriter) -> None:
        given = [yielded(block) or [] for block in op.live]
        instead = [
            _same(op, result, values) for result, *values in zip(op.results, *given, strict=True)
        ]
        keep = [i for i, result in enumerate(op.results) if _is_used(result) and instead[i] is None]
        if len(keep) == len(op.results):
            no_match("every result is used")
        if not keep and len(op.live) < 2:
            no_match("a branch fails")
        for block in op.live:
            _yield_only(block, keep, rewriter)
        with rewriter.here():
            made = If.build({"cond": op.cond}, [op.results[i].type for i in keep], loc=op.location)
        _take_blocks(op, made)
        rewriter.note(made.operation)
        results = iter(made.results)
        rewriter.replace(op, [next(results) if i in keep else v for i, v in enumerate(instead)])


def _same(op: If, result: Value, values: Sequence[Value]) -> Value | None:
    """The value from outside that a result always is."""
    first = values[0]
    alike = len(values) == 2 and first == values[1] and first.type == result.type
    return first if alike and not _is_inside(first, op) and _is_used(result) else None


class NoIteration(Pattern[Loop]):
    """Put the initial values in place of a loop that never runs; what it stacks is empty.

        %y, %all = "nn.loop"(%zero, %x) ({ … })
    ->
        %all = "nn.const"()        and %x for %y
    """

    def rewrite(self, op: Loop, rewriter: Rewriter) -> None:
        trip = _known(op.trip, rewriter)
        if (trip is None or trip > 0) and _known(op.cond, rewriter) != 0:
            no_match("it may run")
        _check_replaceable(op, op.initial)
        empty: list[np.ndarray] = []
        for result in op.stacked:
            kind = ir.ShapedType(result.type)
            if any(kind.is_dynamic_dim(axis) for axis in range(1, kind.rank)):
                no_match("the size of what it stacks is not known")
            empty.append(np.empty((0, *kind.shape[1:]), numpy_dtype(result)))
        rewriter.replace(op, [*op.initial, *(constant(rewriter, array) for array in empty)])


class OneIteration(Pattern[Loop]):
    """Put the body in place of a loop that runs once.

        %y = "nn.loop"(%one, %x) ({ ^body(%i, %a): %0 = "nn.exp"(%a)  "nn.yield"(%go, %0) })
    ->
        %y = "nn.exp"(%x)
    """

    def rewrite(self, op: Loop, rewriter: Rewriter) -> None:
        if op.cond is not None or _known(op.trip, rewriter) != 1:
            no_match("it may not run exactly once")
        _check_replaceable(op, op.next)
        number = constant(rewriter, np.array(0))
        for argument, value in zip(op.block.arguments, (number, *op.initial), strict=True):
            argument.replace_all_uses_with(value)
        following, parts = op.next, op.parts
        _inline(op, op.block, rewriter)
        stacked = [rewriter.create(Unsqueeze, x=part, axes=(0,)).y for part in parts]
        rewriter.replace(op, [*following, *stacked])


class ConditionAlwaysHolds(Pattern[Loop]):
    """Drop a condition that always holds, so that the number of iterations is known.

        "nn.loop"(%trip, %true, …) ({ … "nn.yield"(%true, …) })
    ->
        "nn.loop"(%trip, …) ({ … "nn.yield"(%true, …) })
    """

    def rewrite(self, op: Loop, rewriter: Rewriter) -> None:
        if op.cond is None or op.trip is None:
            no_match("it has no condition or needs it")
        if _known(op.cond, rewriter) != 1 or _known(op.going_on, rewriter) != 1:
            no_match("the condition is not known")
        _rebuild(op, rewriter, None, range(len(op.initial)), range(len(op.stacked)))


class UnusedOfLoop(Pattern[Loop]):
    """Drop carried values that nothing needs or that never change, and stacked values that nobody uses.

        %y, %z = "nn.loop"(%n, %a, %b) ({ ^body(%i, %c, %d): %0 = "nn.add"(%c, %d)  "nn.yield"(%go, %0, %d) })
    ->
        %y = "nn.loop"(%n, %a) ({ ^body(%i, %c): %0 = "nn.add"(%c, %b)  "nn.yield"(%go, %0) })      and %b for %z
    """

    def rewrite(self, op: Loop, rewriter: Rewriter) -> None:
        fixed = [i for i in range(len(op.initial)) if _is_fixed(op, i)]
        needed = _needed(op, fixed)
        carried = [i for i in needed if i not in fixed]
        stacked = [i for i, result in enumerate(op.stacked) if _is_used(result)]
        if len(carried) == len(op.initial) and len(stacked) == len(op.stacked):
            no_match("all that it carries and stacks is needed")
        _rebuild(op, rewriter, op.cond, carried, stacked)


def _is_fixed(op: Loop, position: int) -> bool:
    """Whether a carried value is always the initial one."""
    initial, argument = op.initial[position], op.carried[position]
    same_type = initial.type == argument.type == op.finals[position].type
    return same_type and op.next[position] in (argument, initial)


def _needed(op: Loop, fixed: Sequence[int]) -> list[int]:
    """The carried values that results, the condition or other needed ones are computed from."""
    positions = {argument: i for i, argument in enumerate(op.carried)}
    needed = {i for i, result in enumerate(op.finals) if _is_used(result) and i not in fixed}
    pending = [op.next[i] for i in needed]
    pending += [v for v, result in zip(op.parts, op.stacked, strict=True) if _is_used(result)]
    if op.cond is not None:
        pending.append(op.going_on)
    seen: set[Value] = set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in positions:
            if positions[value] not in needed:
                needed.add(positions[value])
                pending.append(op.next[positions[value]])
        elif not isinstance(value.owner, ir.Block) and value.owner.operation.block == op.block:
            pending += uses_of(value.owner.operation)
    return sorted(needed)


class HoistInvariant(Pattern[Loop]):
    """Move ops that compute the same in each iteration out of the loop.

        %y = "nn.loop"(%n, %x) ({ ^body(%i, %a): %0 = "nn.exp"(%x)  … })
    ->
        %0 = "nn.exp"(%x)
        %y = "nn.loop"(%n, %x) ({ ^body(%i, %a): … })

    Where the loop may not run at all, only those that cannot fail.
    """

    def rewrite(self, op: Loop, rewriter: Rewriter) -> None:
        trip = _known(op.trip, rewriter)
        runs = op.cond is None and trip is not None and trip > 0
        moved: list[ir.Operation] = []
        varying: set[Value] = set(op.block.arguments)
        analysis = rewriter.analysis(shapes)
        for operation in [o.operation for o in op.block.operations][:-1]:
            inner = view(operation)
            fixed = varying.isdisjoint(uses_of(operation))
            if (
                fixed
                and isinstance(inner, NnOp)
                and inner.PURE
                and (runs or _cannot_fail(inner, analysis))
            ):
                moved.append(operation)
            else:
                varying.update(operation.results)
        if not moved:
            no_match("everything depends on the iteration or may fail")
        rewriter.hoist(moved)


_MAY_FAIL = ("nn.gather", "nn.scatter", "nn.range", "nn.tensor_scatter", "nn.max_unpool")
"""Beginnings of the names of ops that check elements of their operands when they run."""


def _cannot_fail(op: NnOp, analysis: ShapeAnalysis) -> bool:
    """Whether the op may be computed for nothing: whatever the sizes and elements, it gives a result."""
    if op.operation.regions or op.NAME.startswith(_MAY_FAIL):
        return False
    if op.NAME in ("nn.div", "nn.mod") and not dtype_of(op.operands[0]).startswith(("f", "bf")):
        return False
    try:
        inferred = op.infer(_Unconditional(analysis))
    except (_ConditionalError, CompileError):
        return False
    return all(known_nonnegative(d) for shape in inferred for d in shape)


class _ConditionalError(Exception):
    """Sizes must fit for an op, and it is not known that they do."""


class _Unconditional:
    """Sizes in which everything is known: inference raises `_ConditionalError` where a check would be needed."""

    def __init__(self, analysis: ShapeAnalysis) -> None:
        self._analysis = analysis

    def shape(self, value: Value) -> Shape:
        return self._analysis.shape(value)

    def content(self, value: Value) -> Shape | None:
        return self._analysis.content(value)

    def equal(self, a: Dim, b: Dim, what: str) -> Dim:
        return a if a == b else _conditional()

    def broadcast(self, a: Dim, b: Dim, what: str) -> Dim:
        if a == b or b == 1:
            return a
        return b if a == 1 else _conditional()

    def elements(self, value: Value, count: int | None = None) -> Shape | None:
        known = self.content(value)
        return _conditional() if known is None or any(map(has_signed, known)) else known

    def define(self, dim: Dim, hint: str) -> Dim:
        return dim

    def fresh(self, hint: str) -> Dim:
        return _conditional()

    def block(self, block: ir.Block, arguments: Sequence[Shape]) -> list[InnerShape]:
        return _conditional()

    def open(self, value: Value, axis: int) -> Dim:
        return _conditional()

    def is_open(self, value: Value, axis: int) -> bool:
        return _conditional()


def _conditional() -> NoReturn:
    raise _ConditionalError


# -- helpers --------------------------------------------------------------------------------------


def _known(value: Value | None, rewriter: Rewriter) -> int | None:
    """The one element of a value, when it is known."""
    if value is None:
        return None
    content = rewriter.analysis(shapes).content(value)
    return content[0] if content is not None and isinstance(content[0], int) else None


def _is_used(value: Value) -> bool:
    return any(True for _ in value.uses)


def _is_inside(value: Value, op: Op) -> bool:
    """Whether a region of the op makes the value."""
    inside = nested(op.operation)
    return not isinstance(value.owner, ir.Block) and value.owner.operation in inside


def _check_replaceable(op: Op, values: Sequence[Value]) -> None:
    """Leave the pattern unless the results, as far as they are used, have exactly the types of the values."""
    for result, value in zip(op.results, values, strict=False):
        if result.type != value.type and _is_used(result):
            no_match("a region gives another type than the result's")


def _inline(op: Op, block: ir.Block, rewriter: Rewriter) -> None:
    """Move the ops of a block to before the op that holds it, apart from the last one."""
    rewriter.hoist([o.operation for o in block.operations][:-1])


def _yield_only(block: ir.Block, keep: Sequence[int], rewriter: Rewriter) -> None:
    """Let a block yield only some of its values."""
    last = Yield.of(list(block.operations)[-1])
    assert last is not None
    values = last.operands
    with rewriter.before(last):
        made = Yield.build({"values": [values[i] for i in keep]}, [], loc=last.location)
    rewriter.note(made.operation)
    rewriter.erase(last)


def _take_blocks(old: Op, new: Op) -> None:
    for source, target in zip(old.operation.regions, new.operation.regions, strict=True):
        source.blocks[0].append_to(target)


def _rebuild(
    op: Loop, rewriter: Rewriter, cond: Value | None, carried: Sequence[int], stacked: Sequence[int]
) -> None:
    """Replace a loop by one that carries and stacks less; what is dropped keeps its initial value in the body."""
    count, block = len(op.initial), op.block
    initial, results = op.initial, op.results
    for i in range(count):
        if i not in carried:
            op.carried[i].replace_all_uses_with(initial[i])
    kept = [*carried, *(count + i for i in stacked)]
    _yield_only(block, [0, *(1 + i for i in kept)], rewriter)
    for i in reversed(range(count)):
        if i not in carried:
            block.erase_argument(1 + i)
    fields = {"trip": op.trip, "cond": cond, "initial": [initial[i] for i in carried]}
    with rewriter.here():
        made = Loop.build(fields, [results[i].type for i in kept], loc=op.location)
    _take_blocks(op, made)
    rewriter.note(made.operation)
    new = dict(zip(kept, made.results, strict=True))
    instead = [
        new.get(i, initial[i] if i < count and _is_used(r) else None) for i, r in enumerate(results)
    ]
    rewriter.replace(op, instead)
