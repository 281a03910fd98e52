"""The worklist driver that applies Python patterns.

MLIR's own greedy driver crashes the process when a pattern touches an op that is gone, so ours
never frees an op while a pass runs: an erased op is *buried* in a side module, still readable, and
using it is an error message. Patterns say why they did not fire; rewrites are counted; a set of
patterns that never comes to rest is named.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, NoReturn, TypeVar, get_args

from torch_mlir import ir

from xcompile.compiler.ir.location import describe, fuse
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.support.errors import CompileError

OpT = TypeVar("OpT", bound=Op)


class NoMatch(Exception):
    """Raised by a pattern that does not apply; carries the reason."""


def no_match(reason: str) -> NoReturn:
    """Leave the pattern: it does not apply, because of `reason`."""
    raise NoMatch(reason)


def producer(value: Value | None, kind: type[OpT]) -> OpT | None:
    """The view of the op that makes `value`, when it is a `kind`."""
    owner = None if value is None else value.owner
    return kind.of(owner) if isinstance(owner, ir.Operation | ir.OpView) else None


def users(value: Value) -> list[ir.Operation]:
    """The ops that use `value`, one entry a use."""
    return [use.owner.operation for use in value.uses]


def has_one_use(value: Value) -> bool:
    """Whether exactly one operand of one op is `value`."""
    return len(list(value.uses)) == 1


class Pattern(Generic[OpT]):
    """One rewrite of ops of one class; subclass as `Pattern[MatMul]`.

    `rewrite` either changes the IR through the rewriter or leaves by `no_match(reason)`, before any change.
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

    def rewrite(self, op: OpT, rewriter: "Rewriter") -> None:
        raise NotImplementedError


@dataclass
class RewriteStats:
    """What a driver run did: rewrites by pattern, and why patterns did not fire."""

    fired: Counter[str] = field(default_factory=Counter[str])
    fired_at: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    missed: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """(pattern, model node, reason) of the last try on each op."""


class Graveyard:
    """Where erased ops go until the pass ends."""

    def __init__(self) -> None:
        self._module = ir.Module.create(loc=ir.Location.unknown())
        with ir.InsertionPoint(self._module.body):
            self._poison = ir.Operation.create(
                "builtin.unrealized_conversion_cast",
                results=[ir.NoneType.get()],
                loc=ir.Location.unknown(),
            ).results[0]
        self._why: dict[ir.Operation, str] = {}

    def bury(self, operation: ir.Operation, why: str) -> None:
        """Detach the op, cut its operands, keep it readable."""
        for position in range(len(operation.operands)):
            operation.operands[position] = self._poison
        operation.detach_from_parent()
        self._module.body.append(operation)
        self._why[operation] = why

    def holds(self, operation: ir.Operation) -> bool:
        return operation in self._why

    def why(self, operation: ir.Operation) -> str:
        return self._why[operation]


class Rewriter:
    """What a pattern changes the IR with. One rewriter serves one run of the driver."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.weights = module.weights
        self._grave = Graveyard()
        self._root: ir.Operation | None = None
        self._created: list[ir.Operation] = []
        self._gone: list[ir.Location] = []
        self._by = ""
        self.changed = False
        self._touched: list[ir.Operation] = []

    # -- for patterns -------------------------------------------------------------------------

    def create(self, cls: type[OpT], **fields: Any) -> OpT:
        """Create an op before the root op; its location names the root and all ops erased in this rewrite."""
        assert self._root is not None
        make = getattr(cls, "create", None) or cls.build
        with ir.InsertionPoint(self._root):
            made = make(loc=self._root.location, **fields)
        self.note(made.operation)
        return made

    def note(self, operation: ir.Operation) -> None:
        """Tell the driver of an op that was created by other means."""
        self._created.append(operation)
        self.changed = True

    def before(self, op: Op) -> AbstractContextManager[Any]:
        """An insertion point just before `op`."""
        self._alive(op.operation)
        return ir.InsertionPoint(op.operation)

    def replace(self, op: Op, by: Op | Value | Sequence[Value]) -> None:
        """Make every user of the op's results use `by` instead, and erase the op."""
        self._alive(op.operation)
        values = (
            by.results if isinstance(by, Op) else list(by) if isinstance(by, Sequence) else [by]
        )
        results = op.results
        if len(values) != len(results):
            raise ValueError(
                f"{op.NAME} has {len(results)} results, {len(values)} replacements were given"
            )
        for old, new in zip(results, values, strict=True):
            self._touched += users(old)
            old.replace_all_uses_with(new)
        self.erase(op)

    def erase(self, op: Op) -> None:
        """Erase an op whose results are not used."""
        self._alive(op.operation)
        if any(True for r in op.results for _ in r.uses):
            raise ValueError(f"{op.NAME} is still used and can't be erased")
        self._touched += [o.owner for o in op.operands if isinstance(o.owner, ir.Operation)]
        self._gone.append(op.location)
        self._grave.bury(op.operation, self._by)
        self.changed = True

    def set_operand(self, op: Op, position: int, value: Value) -> None:
        """Change one operand (flat position) in place."""
        self._alive(op.operation)
        old = op.operation.operands[position]
        op.operation.operands[position] = value
        self._touched.append(op.operation)
        if isinstance(old.owner, ir.Operation):
            self._touched.append(old.owner)
        self.changed = True

    # -- for the driver -----------------------------------------------------------------------

    def _alive(self, operation: ir.Operation) -> None:
        if self._grave.holds(operation):
            raise CompileError(
                "XC3007", f"{operation.name} was already replaced by {self._grave.why(operation)}",
                node=describe(operation.location), pass_name=self._by,
            )  # fmt: skip

    def is_gone(self, operation: ir.Operation) -> bool:
        return self._grave.holds(operation)

    def begin(self, root: ir.Operation, by: str) -> None:
        self._root, self._by, self.changed = root, by, False
        self._created, self._gone, self._touched = [], [], []

    def finish(self) -> list[ir.Operation]:
        """Give new ops their fused locations; the ops worth another look."""
        assert self._root is not None
        if self._created:
            location = fuse([self._root.location, *self._gone])
            for operation in self._created:
                operation.location = location
        return [o for o in [*self._touched, *self._created] if not self.is_gone(o)]


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
        CompileError: XC3006 when the limit is reached (names the patterns that keep firing).
    """
    by_root: dict[str, list[Pattern[Any]]] = {}
    for pattern in patterns:
        by_root.setdefault(pattern.root().NAME, []).append(pattern)
    stats, rewriter = RewriteStats(), Rewriter(module)
    queue: deque[ir.Operation] = deque(o for o in walk(module) if view(o) is not None)
    queued = set(queue)
    most = limit if limit is not None else 20 * len(queue) + 1000
    while queue:
        operation = queue.popleft()
        queued.discard(operation)
        op = None if rewriter.is_gone(operation) else view(operation)
        if op is None:
            continue
        again = _try_patterns(op, by_root.get(op.NAME, ()), rewriter, stats, explain)
        for each in again:
            if each not in queued and view(each) is not None:
                queued.add(each)
                queue.append(each)
        if stats.fired.total() > most:
            names = ", ".join(f"{name} ({count}×)" for name, count in stats.fired.most_common(3))
            raise CompileError(
                "XC3006", f"patterns keep firing after {most} rewrites: {names}", node=describe(op.location),
                help="two patterns probably undo each other's work",
            )  # fmt: skip
    return stats


def _try_patterns(
    op: Op, patterns: Sequence[Pattern[Any]], rewriter: Rewriter, stats: RewriteStats, explain: bool
) -> list[ir.Operation]:
    if is_dead(op):
        rewriter.begin(op.operation, "dead-code elimination")
        rewriter.erase(op)
        return rewriter.finish()
    for pattern in patterns:
        rewriter.begin(op.operation, pattern.name)
        location = op.location
        try:
            pattern.rewrite(op, rewriter)
        except NoMatch as reason:
            if explain:
                stats.missed.append((pattern.name, describe(location) or "?", str(reason)))
            continue
        except CompileError:
            raise
        except Exception as error:
            raise CompileError(
                "XC3004", f"the pattern {pattern.name} failed: {type(error).__name__}: {error}",
                node=describe(location), pass_name=pattern.name,
            ) from error  # fmt: skip
        if rewriter.changed:
            stats.fired[pattern.name] += 1
            if explain:
                stats.fired_at.append((pattern.name, describe(location) or "?"))
            return rewriter.finish()
    return []
