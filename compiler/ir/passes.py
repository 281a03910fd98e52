"""What a pass is, and what it may ask for.

    @dataclass(frozen=True)
    class FoldBatchNorm(PatternPass):
        '''Fold inference batch normalization into the convolution that feeds it.'''

        NAME: ClassVar[str] = "nn-fold-batch-norm"
        PATTERNS: ClassVar = (FoldIntoConv,)

Fields are the pass's options: `nn-fold-batch-norm{eps-limit=1e-3}`.
"""

import importlib
import re
import types
import typing
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, dataclass, field, fields
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any, ClassVar

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.rewrite import Pattern, RewriteStats, apply_patterns
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.fingerprint import PASSES_GROUP, note_extension
from xcompile.compiler.support.precision_map import ALL_FLOAT, PrecisionMap
from xcompile.compiler.target.target import Target


class Instrument:
    """Something that watches passes; override what is of interest (`instruments.py` has the usual ones).

    An instrument may raise `CompileError` and thereby end the compile.
    """

    def before(self, pass_: "Pass", module: Module, context: "PassContext") -> None:
        """Called before each pass, also those inside a fixpoint."""

    def after(self, pass_: "Pass", module: Module, context: "PassContext") -> None:
        """Called after each pass that succeeded; `context.last` says what its patterns did."""

    def failed(
        self, pass_: "Pass", module: Module, context: "PassContext", error: CompileError
    ) -> None:
        """Called when the pass or an instrument after it has raised; may add to the error."""


@dataclass
class PassContext:
    """What passes share during one compile.

    Attributes:
        target: the hardware, as data.
        explain: passes whose missed rewrites are recorded with reasons; "*" means all.
        stats: what each pass that ran did, by the order of running.
        instruments: who watches, in the order of calling.
        last: what the last pass did; None when it is not made of patterns and did not say.
        calibration: the calibration table that the compile was given, as JSON text; empty when there is none.
        precisions: of the model and parts of it; passes for a precision ask it what to do with an op.
    """

    target: Target
    explain: frozenset[str] = frozenset()
    stats: list[tuple[str, RewriteStats]] = field(default_factory=list[tuple[str, RewriteStats]])
    instruments: Sequence[Instrument] = ()
    last: RewriteStats | None = None
    calibration: str = ""
    precisions: PrecisionMap = ALL_FLOAT

    def wants_reasons(self, name: str) -> bool:
        return name in self.explain or "*" in self.explain

    def record(self, name: str, stats: RewriteStats) -> None:
        """Keep what the pass that is running did."""
        self.stats.append((name, stats))
        self.last = stats


@dataclass(frozen=True)
class Pass:
    """Base of all passes: a frozen dataclass whose fields are its options."""

    NAME: ClassVar[str] = ""
    TRANSPARENT: ClassVar[bool] = False
    """Only runs other passes: instruments see those, not this one."""
    CHANGES_VALUES: ClassVar[bool] = False
    """Is meant to change what the model computes: numbers are compared with what it leaves, not with what it found."""

    def run(self, module: Module, context: PassContext) -> None:
        """Change the module in place."""
        raise NotImplementedError

    def __str__(self) -> str:
        """The pass as pipeline text, options that differ from their defaults included."""
        given = [
            f"{f.name.replace('_', '-')}={_option_text(getattr(self, f.name))}"
            for f in fields(self)
            if getattr(self, f.name) != f.default
        ]
        return self.NAME + (f"{{{' '.join(given)}}}" if given else "")


@dataclass(frozen=True)
class PatternPass(Pass):
    """A pass that applies patterns until none fires."""

    PATTERNS: ClassVar[tuple[type[Pattern[Any]], ...]] = ()

    def patterns(self, context: PassContext) -> list[Pattern[Any]]:
        """The pattern instances; override to give them options or the target."""
        return [make() for make in self.PATTERNS]

    def run(self, module: Module, context: PassContext) -> None:
        stats = apply_patterns(
            module, self.patterns(context), explain=context.wants_reasons(self.NAME)
        )
        context.record(self.NAME, stats)


def run_pass(each: Pass, module: Module, context: PassContext) -> None:
    """Run one pass with the instruments around it.

    Raises:
        CompileError: of the pass or an instrument, the pass's name filled in; XC3004 when it raises anything else.
    """
    if each.TRANSPARENT:
        each.run(module, context)
        return
    try:
        for instrument in context.instruments:
            instrument.before(each, module, context)
        context.last = None
        each.run(module, context)
        for instrument in context.instruments:
            instrument.after(each, module, context)
    except CompileError as error:
        _report(each, module, context, error)
        raise
    except Exception as raised:
        error = CompileError("XC3004", f"the pass failed: {type(raised).__name__}: {raised}")
        _report(each, module, context, error)
        raise error from raised


def _report(each: Pass, module: Module, context: PassContext, error: CompileError) -> None:
    """Tell the instruments, once: an error that names its pass comes from inside a fixpoint."""
    if error.pass_name is None:
        error.pass_name = each.NAME
        for instrument in context.instruments:
            instrument.failed(each, module, context, error)


def _option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- the registry ---------------------------------------------------------------------------------


_NAME = re.compile(r"[A-Za-z][\w.-]*")


class PassRegistry:
    """Pass classes by name. Entries are `module:Class` strings, imported when first asked for, or classes."""

    def __init__(self) -> None:
        self._entries: dict[str, str | type[Pass]] = {}
        self._discovered = False

    def add(self, entries: Mapping[str, str]) -> None:
        """Add lazy entries."""
        for entry in entries.values():
            note_extension(entry.partition(":")[0])
        self._entries.update(entries)

    def register(self, cls: type[Pass]) -> type[Pass]:
        """Class decorator for passes that are loaded from a user's file; a later one of the same name wins.

        Raises:
            CompileError: XC3009, it is no pass or its name can't stand in a pipeline.
        """
        if not (isinstance(cls, type) and issubclass(cls, Pass)):
            raise CompileError("XC3009", f"{cls!r} is registered as a pass but is none")
        if not _NAME.fullmatch(cls.NAME) or cls.NAME == "fixpoint":
            raise CompileError(
                "XC3009", f"the pass {cls.__name__} has the name '{cls.NAME}'",
                help="names are words of letters and digits joined by '-'",
            )  # fmt: skip
        note_extension(cls.__module__)
        self._entries[cls.NAME] = cls
        return cls

    def names(self) -> list[str]:
        """All passes, those of other packages included."""
        self._discover()
        return sorted(self._entries)

    def foreign(self, names: AbstractSet[str]) -> dict[str, str]:
        """Of the passes of these names, those that are not our own: "module:Class" by name."""
        if not self._entries.keys() >= names:
            self._discover()
        found: dict[str, str] = {}
        for name in sorted(self._entries.keys() & names):
            entry = self._entries[name]
            where = entry if isinstance(entry, str) else f"{entry.__module__}:{entry.__qualname__}"
            if not where.startswith("xcompile."):
                found[name] = where
        return found

    def _discover(self) -> None:
        """Add the passes that installed packages name in their entry points `xcompile.passes`."""
        if not self._discovered:
            self._discovered = True
            for point in entry_points(group=PASSES_GROUP):
                self._entries.setdefault(point.name, point.value)

    def get(self, name: str) -> type[Pass]:
        """The class of a pass; CompileError XC3001 with near names when there is none."""
        if name not in self._entries:
            self._discover()
        entry = self._entries.get(name)
        if entry is None:
            near = get_close_matches(name, self._entries, 3)
            raise CompileError(
                "XC3001", f"there is no pass '{name}'",
                help=f"did you mean {' or '.join(near)}?" if near else "`xcompile passes` lists them",
            )  # fmt: skip
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            try:
                entry = self._entries[name] = getattr(importlib.import_module(module), attribute)
            except (ImportError, AttributeError) as error:
                raise CompileError(
                    "XC3009", f"the pass '{name}' cannot be loaded from {module}: {error}"
                ) from error
        return typing.cast(type[Pass], entry)


PASS_REGISTRY = PassRegistry()
"""Every pass that can be named in a pipeline."""


def make_pass(name: str, options: Mapping[str, str]) -> Pass:
    """A pass from its name and option texts.

    Raises:
        CompileError: XC3001 there is no such pass; XC3003 for options that it does not have, lacks, or can't read.
    """
    cls = PASS_REGISTRY.get(name)
    hints = typing.get_type_hints(cls)
    known = {f.name.replace("_", "-"): f for f in fields(cls)}
    values: dict[str, Any] = {}
    for key, text in options.items():
        if key not in known:
            raise CompileError(
                "XC3003", f"the pass {name} has no option '{key}'",
                help=f"it has {', '.join(known) or 'no options'}",
            )  # fmt: skip
        values[known[key].name] = _parse_option(name, key, text, hints[known[key].name])
    for key, option in known.items():
        if option.default is MISSING and option.default_factory is MISSING and key not in options:
            raise CompileError("XC3003", f"the pass {name} needs the option '{key}'")
    try:
        return cls(**values)
    except ValueError as error:
        raise CompileError("XC3003", f"the pass {name} refuses its options: {error}") from error


def _parse_option(name: str, key: str, text: str, hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        hint = next(h for h in typing.get_args(hint) if h is not type(None))
    if hint not in (bool, int, float, str):
        raise CompileError("XC3003", f"the option {key} of {name} can't be given as text")
    try:
        return _parse_bool(text) if hint is bool else hint(text)
    except ValueError:
        raise CompileError(
            "XC3003", f"the option {key} of {name} must be a {hint.__name__}, not '{text}'"
        ) from None


def _parse_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"
