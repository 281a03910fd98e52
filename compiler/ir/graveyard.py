"""Where erased ops go: out of the module, but readable until the compile ends.

MLIR frees an erased op at once, and a handle that still points to it crashes the process at the
next touch. An op that is *buried* is only moved to a side module: an old handle reads stale but
valid memory, and whoever is asked to use it can say which pattern replaced it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch_mlir import ir

from xcompile.compiler.ir.op import identity


class Graveyard:
    """The erased ops of one module."""

    def __init__(self) -> None:
        self._module = ir.Module.create(loc=ir.Location.unknown())
        self._why: dict[int, str] = {}
        self._poisons: dict[str, ir.Value] = {}
        self._poison_why: dict[ir.Value, str] = {}

    def bury(self, operation: ir.Operation, why: str) -> None:
        """Take the op and what its regions hold out of its block and cut their operands.

        Args:
            operation: its results have no uses any more.
            why: who erased it.
        """
        poison = self._poison(why)
        for each in _with_nested(operation):
            for position in range(len(each.operands)):
                each.operands[position] = poison
            self._why[identity(each)] = why
        operation.detach_from_parent()
        self._module.body.append(operation)

    def why(self, operation: ir.Operation) -> str | None:
        """Who erased the op; None when it is alive."""
        return self._why.get(identity(operation))

    def why_gone(self, value: ir.Value) -> str | None:
        """Who erased the op that made the value, or the op that it was read from; None when it is alive."""
        if value in self._poison_why:
            return self._poison_why[value]
        owner = value.owner
        return None if isinstance(owner, ir.Block) else self._why.get(identity(owner))

    @contextmanager
    def catching_erase(self, who: Callable[[], str]) -> Iterator[None]:
        """Meanwhile MLIR's own `operation.erase()` buries too, so that other handles to the op stay valid.

        Args:
            who: gives the name of whoever is at work.
        """
        catchers = _catchers()
        catchers.append((self, who))
        try:
            yield
        finally:
            catchers.pop()

    def _poison(self, why: str) -> ir.Value:
        """The operand of the ops that `why` erased."""
        if why not in self._poisons:
            with ir.InsertionPoint(self._module.body):
                made = ir.Operation.create(
                    "builtin.unrealized_conversion_cast",
                    results=[ir.NoneType.get(self._module.context)],
                    loc=ir.Location.unknown(self._module.context),
                ).results[0]
            self._poisons[why] = made
            self._poison_why[made] = why
        return self._poisons[why]


def _with_nested(operation: ir.Operation) -> list[ir.Operation]:
    found = [operation]
    for each in found:
        for region in each.regions:
            for block in region.blocks:
                found += [child.operation for child in block.operations]
    return found


# -- MLIR's erase ---------------------------------------------------------------------------------

_LOCAL = threading.local()


def _catchers() -> list[tuple[Graveyard, Callable[[], str]]]:
    """The graveyards that catch erased ops in this thread, the innermost last."""
    if not hasattr(_LOCAL, "catchers"):
        _LOCAL.catchers = []
    return _LOCAL.catchers


def _catch(erase: Callable[[Any], None]) -> Callable[[Any], None]:
    """MLIR's `erase`, or a burial while a graveyard catches."""

    def catching(operation: ir.Operation | ir.OpView) -> None:
        catchers = _catchers()
        if not catchers:
            return erase(operation)
        grave, who = catchers[-1]
        inner = operation.operation
        if any(True for result in inner.results for _ in result.uses):
            raise ValueError(f"{inner.name} is still used and can't be erased")
        return grave.bury(inner, who())

    return catching


for _cls in (ir.Operation, ir.OpView):
    _cls.erase = _catch(_cls.erase)  # type: ignore[method-assign]
