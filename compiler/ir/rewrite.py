"""The worklist driver that applies Python patterns.

MLIR's own greedy driver crashes the process when a pattern touches an op that is gone, so ours
never frees an op during a compile: an erased op is *buried* (`graveyard.py`), and using it is an
error message. Patterns say why they did not fire; rewrites are counted; a set of patterns that
never comes to rest is named. A pattern that loops by itself is ended from outside: by Ctrl-C, or by
the limits of the process in which passes of a user's file run (`compiler/isolation.py`).
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar, get_args

from torch_mlir import ir

from xcompile.compiler.ir.location import describe, fuse
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, identity, op_class, view
from xcompile.compiler.ir.regions import parent, uses_of
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.trace import TRACE

OpT = TypeVar("OpT", bound=Op)
AnalysisT = TypeVar("AnalysisT")

MOST_CREATED = 100_000
"""Ops that one rewrite may create."""

_RECENT = 200
"""So many last rewrites tell which patterns keep firing."""


class NoMatch(Exception):
    """Raised by a pattern that does not apply; carries the reason."""


def no_match(reason: str) -> NoReturn:
    """Leave the pattern: it does not apply, because of `reason`, which is not reported when it is empty."""
    raise NoMatch(reason)


def producer(value: Value | None, kind: type[OpT]) -> OpT | None:
    """The view of the op that makes `value`, when it is a `kind`."""
    owner = None if value is None else value.owner
    return kind.of(owner) if isinstance(owner, ir.Operation | ir.OpView) else None


def maker(value: Value | None) -> Op | None:
    """The view of the op that makes `value`; None for an argument and for other dialects."""
    owner = None if value is None else value.owner
    return view(owner) if isinstance(owner, ir.Operation | ir.OpView) else None


def users(value: Value) -> list[ir.Operation]:
    """The ops that use `value`, one entry a use."""
    return [use.owner.operation for use in value.uses]


def has_one_use(value: Value) -> bool:
    """Whether exactly one operand of one op is `value`."""
    uses = iter(value.uses)
    return next(uses, None) is not None and next(uses, None) is None


class Pattern(Generic[OpT]):
    """One rewrite of ops of one class; subclass as `Pattern[MatMul]`.

    The class may be a base of several ops (`Pattern[Reduce]`): the pattern is then tried on each of
    them. `rewrite` either changes the IR through the rewriter or leaves by `no_match(reason)`,
    before it replaces or erases anything.
    """

    @classmethod
    def root(cls) -> type[Op]:
        """The op class that the pattern is tried on."""
        for base in getattr(cls, "__orig_bases__", ()):
            for argument in get_args(base):
                if isinstance(argument, type) and issubclass(argument, Op):
                    return argument
        raise TypeError(f"{cls.__name__} must subclass Pattern[SomeOp]")

    @property
    def name(self) -> str:
        return type(self).__name__

    def rewrite(self, op: OpT, rewriter: "Rewriter", /) -> None:
        """Apply the pattern to one op, or leave by `no_match(reason)`."""
        raise NotImplementedError


@dataclass
class RewriteStats:
    """What a driver run did: rewrites by pattern, and why patterns did not fire.

    Attributes:
        fired: how often each pattern did.
        fired_at: (pattern, model node) of each rewrite.
        missed: (pattern, model node, reason) of the last try on each op; only when explaining.
        removed: unused ops that were erased.
        changed: the ops that were made or changed and are still there.
    """

    fired: Counter[str] = field(default_factory=Counter[str])
    fired_at: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    missed: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    removed: int = 0
    changed: list[ir.Operation] = field(default_factory=list[ir.Operation])

    @property
    def any(self) -> bool:
        """Whether the run changed the module."""
        return bool(self.fired or self.removed)


class Rewriter:
    """What a pattern changes the IR with. One rewriter serves one run of the driver."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.weights = module.weights
        self.changed = False
        self._grave = module.graveyard
        self._analyses: dict[Any, Any] = {}
        self._root: ir.Operation | None = None
        self._by = ""
        self._created: list[ir.Operation] = []
        self._modified: list[ir.Operation] = []
        self._gone: list[ir.Location] = []
        self._touched: list[ir.Operation] = []

    # -- for patterns -------------------------------------------------------------------------

    def create(self, cls: type[OpT], **fields: Any) -> OpT:
        """Create an op before the root op; its location names the root and all ops erased in this rewrite."""
        assert self._root is not None
        self._alive(self._root)
        for given in fields.values():
            for value in given if isinstance(given, list | tuple) else (given,):
                if isinstance(value, ir.Value):
                    self._usable(value)
        make = getattr(cls, "create", None) or cls.build
        with ir.InsertionPoint(self._root):
            made = make(loc=self._root.location, **fields)
        self.note(made.operation)
        return made

    def note(self, operation: ir.Operation) -> None:
        """Tell the driver of an op that was created by other means."""
        self._created.append(operation)
        if len(self._created) > MOST_CREATED:
            raise CompileError(
                "XC3006", f"the pattern {self._by} has made {MOST_CREATED} ops in one rewrite"
            )

    def here(self) -> AbstractContextManager[Any]:
        """An insertion point before the root op, for ops that are made by other means."""
        assert self._root is not None
        self._alive(self._root)
        return ir.InsertionPoint(self._root)

    @property
    def location(self) -> ir.Location:
        """The root op's location."""
        assert self._root is not None
        return self._root.location

    def analysis(self, make: Callable[[Module], AnalysisT]) -> AnalysisT:
        """What `make(module)` gave when it was first asked for in this run of the driver."""
        if make not in self._analyses:
            self._analyses[make] = make(self.module)
        return self._analyses[make]

    def before(self, op: Op) -> AbstractContextManager[Any]:
        """An insertion point just before `op`."""
        self._alive(op.operation)
        return ir.InsertionPoint(op.operation)

    def replace(self, op: Op, by: Op | Value | Sequence[Value | None]) -> None:
        """Make every user of the op's results use `by` instead, and erase the op.

        The replacements have the same dtype and rank; where sizes are known on one side only, a new op takes them over.
        A result that nobody uses may be replaced by None.

        Raises:
            ValueError: their number or their types do not fit.
        """
        self._alive(op.operation)
        values = (
            by.results if isinstance(by, Op) else [by] if isinstance(by, ir.Value) else list(by)
        )
        results = op.results
        if len(values) != len(results):
            raise ValueError(
                f"{op.NAME} has {len(results)} results, {len(values)} replacements were given"
            )
        for old, new in zip(results, values, strict=True):
            if new is None:
                continue
            self._usable(new)
            readers = users(old)
            self._match_types(old, new, readers)
            self._touched += readers
            old.replace_all_uses_with(new)
        self.erase(op)

    def erase(self, op: Op) -> None:
        """Erase an op whose results are not used."""
        self._alive(op.operation)
        if any(True for r in op.results for _ in r.uses):
            raise ValueError(f"{op.NAME} is still used and can't be erased")
        self._touched += [
            o.owner.operation for o in uses_of(op.operation) if not isinstance(o.owner, ir.Block)
        ]
        self._gone.append(op.location)
        self._grave.bury(op.operation, self._by)
        self.changed = True

    def absorb(self, op: Op) -> None:
        """Have what this rewrite creates name the nodes of an op too, which it makes superfluous without erasing it."""
        self._gone.append(op.location)

    def hoist(self, operations: Sequence[ir.Operation]) -> None:
        """Move ops out of the root's regions, to before it, in order."""
        assert self._root is not None
        self._alive(self._root)
        for operation in operations:
            operation.move_before(self._root)
        self._touched += [*operations, self._root]
        around = parent(self._root)
        if around is not None:
            self._touched.append(around)
        self.changed = True

    def set_operand(self, op: Op, position: int, value: Value) -> None:
        """Change one operand (flat position) in place."""
        self._alive(op.operation)
        self._usable(value)
        old = op.operation.operands[position]
        op.operation.operands[position] = value
        self._modified.append(op.operation)
        if not isinstance(old.owner, ir.Block):
            self._touched.append(old.owner.operation)
        self.changed = True

    def _alive(self, operation: ir.Operation) -> None:
        why = self._grave.why(operation)
        if why is not None:
            raise CompileError(
                "XC3007",
                f"the pattern {self._by} uses {operation.name}, which {why} has replaced or erased",
                node=describe(operation.location),
            )

    def _usable(self, value: Value) -> None:
        why = self._grave.why_gone(value)
        if why is not None:
            raise CompileError(
                "XC3007",
                f"the pattern {self._by} uses a value of an op that {why} has replaced or erased",
                node=describe(self._root.location) if self._root is not None else None,
            )

    def may_replace(self, op: Op, value: Value) -> bool:
        """Whether `replace` would take the value for the op's one result."""
        (old,) = op.results
        if old.type == value.type:
            return True
        merged = merge_types(old.type, value.type)
        return merged is not None and not any(_ends_block(r) for r in users(old))

    def _match_types(self, old: Value, new: Value, readers: Sequence[ir.Operation]) -> None:
        if old.type == new.type:
            return
        merged = merge_types(old.type, new.type)
        if merged is None:
            raise ValueError(f"{old.type} is replaced by {new.type}")
        returned = any(_ends_block(r) for r in readers)
        if not isinstance(new.owner, ir.Block) and new.owner.operation in self._created:
            new.set_type(old.type if returned else merged)
        elif returned:
            raise ValueError(f"{old.type}, which is returned, is replaced by {new.type}")

    # -- for the driver -----------------------------------------------------------------------

    def begin(self, root: ir.Operation, by: str) -> None:
        """Start a rewrite of `root` by the pattern `by`."""
        self._root, self._by, self.changed = root, by, False
        self._created, self._modified, self._gone, self._touched = [], [], [], []

    def finish(self) -> list[ir.Operation]:
        """Give new and changed ops the names of what they replace; the ops worth another look."""
        assert self._root is not None
        if self._gone:
            replaced = fuse([self._root.location, *self._gone])
            for operation in self._created:
                operation.location = replaced
            for operation in self._modified:
                operation.location = fuse([operation.location, *self._gone])
        again = dict.fromkeys([*self._touched, *self._modified, *self._created])
        return [o for o in again if not self.is_gone(o)]

    def discard(self) -> None:
        """Erase what a pattern created before it left."""
        for operation in reversed(self._created):
            if not self.is_gone(operation):
                self._grave.bury(operation, self._by)

    def made(self) -> list[ir.Operation]:
        """The ops that this rewrite created or changed."""
        return [*self._created, *self._modified]

    def is_gone(self, operation: ir.Operation) -> bool:
        return self._grave.why(operation) is not None

    @property
    def by(self) -> str:
        return self._by


def merge_types(a: ir.Type, b: ir.Type) -> ir.Type | None:
    """The tensor type with the sizes that one of two types knows; None when they contradict each other."""
    if not isinstance(a, ir.RankedTensorType) or not isinstance(b, ir.RankedTensorType):
        return a if a == b else None
    if a.element_type != b.element_type or a.rank != b.rank:
        return None
    if (a.encoding is None) != (b.encoding is None):
        return None
    if a.encoding is not None and a.encoding != b.encoding:
        return None
    dynamic = ir.ShapedType.get_dynamic_size()
    sizes = [y if x == dynamic else x for x, y in zip(a.shape, b.shape, strict=True)]
    if any(y not in (x, dynamic) for x, y in zip(sizes, b.shape, strict=True)):
        return None
    return ir.RankedTensorType.get(sizes, a.element_type, a.encoding)


def _ends_block(operation: ir.Operation) -> bool:
    """Whether the op hands its operands to what is outside, which knows their exact types."""
    op = view(operation)
    return op is None or not op.results


def walk(module: Module) -> Iterable[ir.Operation]:
    """Every operation below the module, parents first; taken before the caller changes anything."""
    found: list[ir.Operation] = []
    pending = [module.module.operation]
    while pending:
        operation = pending.pop()
        children = [
            child.operation
            for region in operation.regions
            for block in region.blocks
            for child in block.operations
        ]
        found += children
        pending += reversed(children)
    return found


def is_dead(op: Op) -> bool:
    """Whether nothing would notice the op's absence."""
    return op.PURE and bool(op.results) and not any(True for r in op.results for _ in r.uses)


def apply_patterns(
    module: Module,
    patterns: Sequence[Pattern[Any]],
    *,
    limit: int | None = None,
    explain: bool = False,
) -> RewriteStats:
    """Apply patterns until none fires; unused pure ops are removed on the way.

    Args:
        module: changed in place.
        patterns: tried in order on each op of their root class.
        limit: most rewrites allowed; 20 an op plus 1,000 when None.
        explain: keep the reasons of patterns that did not fire, and where others did.

    Raises:
        CompileError: XC3006 when the limit is reached (names the patterns that keep firing); XC3007 when a
            pattern uses an op that is gone; XC3004 when a pattern fails in another way.
    """
    driver = _Driver(module, patterns, explain)
    with (
        module.context,
        ir.Location.unknown(),
        module.graveyard.catching_erase(lambda: driver.rewriter.by),
    ):
        driver.run(limit)
    return driver.finish()


def apply_phases(
    module: Module, phases: Sequence[Sequence[Pattern[Any]]], *, explain: bool = False
) -> RewriteStats:
    """Apply sets of patterns one after the other, each until none of it fires; what all of them did.

    Args:
        module: changed in place.
        phases: the sets, see `apply_patterns`.
        explain: keep the reasons of patterns that did not fire.

    Raises:
        CompileError: as `apply_patterns`.
    """
    done, changed = RewriteStats(), dict[int, ir.Operation]()
    for patterns in phases:
        stats = apply_patterns(module, patterns, explain=explain)
        done.fired += stats.fired
        done.fired_at += stats.fired_at
        done.missed += stats.missed
        done.removed += stats.removed
        changed.update((identity(o), o) for o in stats.changed)
    done.changed = [o for o in changed.values() if module.graveyard.why(o) is None]
    return done


class _Driver:
    def __init__(self, module: Module, patterns: Sequence[Pattern[Any]], explain: bool) -> None:
        self.rewriter = Rewriter(module)
        self._roots = [(pattern.root(), pattern) for pattern in patterns]
        self._for_op: dict[str, list[Pattern[Any]]] = {}
        self._explain = explain
        self._stats = RewriteStats()
        self._missed: dict[Op, dict[str, str]] = {}
        self._changed: dict[int, ir.Operation] = {}
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._queue: deque[ir.Operation] = deque(
            o for o in walk(module) if op_class(o.name) is not None
        )

    def run(self, limit: int | None) -> None:
        """Work the queue off."""
        queue, queued = self._queue, set(map(identity, self._queue))
        most = limit if limit is not None else 20 * len(queue) + 1000
        fired = 0
        while queue:
            operation = queue.popleft()
            queued.discard(identity(operation))
            op = None if self.rewriter.is_gone(operation) else view(operation)
            if op is None:
                continue
            again = self._visit(op)
            if again is None:
                continue
            for each in again:
                key = identity(each)
                if key not in queued and op_class(each.name) is not None:
                    queued.add(key)
                    queue.append(each)
            fired += 1
            if fired > most:
                self._give_up(op, most)

    def finish(self) -> RewriteStats:
        """What was done."""
        stats, gone = self._stats, self.rewriter.is_gone
        stats.changed = [o for o in self._changed.values() if not gone(o)]
        for op in self._missed:
            if not gone(op.operation):
                self._report_missed(op)
        return stats

    def _patterns(self, op: Op) -> list[Pattern[Any]]:
        if op.NAME not in self._for_op:
            self._for_op[op.NAME] = [p for root, p in self._roots if isinstance(op, root)]
        return self._for_op[op.NAME]

    def _visit(self, op: Op) -> list[ir.Operation] | None:
        """Try the patterns on one op; the ops to look at again, or None when nothing was changed."""
        rewriter = self.rewriter
        if is_dead(op):
            rewriter.begin(op.operation, "dead-code elimination")
            rewriter.erase(op)
            self._stats.removed += 1
            return rewriter.finish()
        for pattern in self._patterns(op):
            rewriter.begin(op.operation, pattern.name)
            reason = self._try(pattern, op)
            if reason is None:
                self._record(pattern, op)
                return rewriter.finish()
            if self._explain and reason:
                self._missed.setdefault(op, {})[pattern.name] = reason
        return None

    def _record(self, pattern: Pattern[Any], op: Op) -> None:
        self._stats.fired[pattern.name] += 1
        self._recent.append(pattern.name)
        self._changed.update((identity(o), o) for o in self.rewriter.made())
        self._stats.fired_at.append((pattern.name, describe(op.location) or "?"))
        if self._explain:
            self._missed.get(op, {}).pop(pattern.name, None)
            if self.rewriter.is_gone(op.operation):
                self._report_missed(op)

    def _report_missed(self, op: Op) -> None:
        node = describe(op.location) or "?"
        for pattern, reason in self._missed.get(op, {}).items():
            self._stats.missed.append((pattern, node, reason))

    def _try(self, pattern: Pattern[Any], op: Op) -> str | None:
        """Apply one pattern; None, or the reason why it did not change anything."""
        rewriter, name = self.rewriter, pattern.name
        if TRACE.active:
            TRACE.doing(f"the pattern {name}", describe(op.location))
        try:
            answer: Any = pattern.rewrite(op, rewriter)
        except NoMatch as reason:
            if rewriter.changed:
                raise CompileError(
                    "XC3004", f"the pattern {name} left by no_match after it had changed the graph",
                    node=describe(op.location),
                ) from reason  # fmt: skip
            rewriter.discard()
            return str(reason)
        except CompileError as error:
            if name not in error.message:
                error.message = f"{error.message} (in the pattern {name})"
            error.node = error.node or describe(op.location)
            raise
        except Exception as error:
            raise CompileError(
                "XC3004", f"the pattern {name} failed: {type(error).__name__}: {error}",
                node=describe(op.location),
            ) from error  # fmt: skip
        if answer is not None:
            raise CompileError(
                "XC3004", f"the pattern {name} returned a {type(answer).__name__}",
                node=describe(op.location),
                help="a pattern changes the graph by rewriter.replace and returns nothing",
            )  # fmt: skip
        if not rewriter.changed:
            rewriter.discard()
            return "it changed nothing and gave no reason"
        return None

    def _give_up(self, op: Op, most: int) -> NoReturn:
        counted = Counter(self._recent).most_common(3) or [("dead-code elimination", most)]
        names = " and ".join(f"{name} ({self._stats.fired[name]}×)" for name, _ in counted)
        raise CompileError(
            "XC3006", f"patterns keep firing after {most} rewrites: {names}",
            node=describe(op.location), help="they probably undo each other's work",
        )  # fmt: skip
