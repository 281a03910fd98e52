"""What a pass is, and what it may ask for.

    @dataclass(frozen=True)
    class FoldBatchNorm(PatternPass):
        '''Fold inference batch normalization into the convolution that feeds it.'''

        NAME: ClassVar[str] = "nn-fold-batch-norm"
        PATTERNS: ClassVar = (FoldIntoConv,)

Fields are the pass's options: `nn-fold-batch-norm{eps-limit=1e-3}`.
"""

import importlib
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, ClassVar

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.rewrite import Pattern, RewriteStats, apply_patterns
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.target import Target


@dataclass
class PassContext:
    """What passes share during one compile.

    Attributes:
        target: the hardware, as data.
        explain: passes whose missed rewrites are recorded with reasons; "*" means all.
        stats: what each pass that ran did, by the order of running.
    """

    target: Target
    explain: frozenset[str] = frozenset()
    stats: list[tuple[str, RewriteStats]] = field(default_factory=list[tuple[str, RewriteStats]])

    def wants_reasons(self, name: str) -> bool:
        return name in self.explain or "*" in self.explain


@dataclass(frozen=True)
class Pass:
    """Base of all passes: a frozen dataclass whose fields are its options."""

    NAME: ClassVar[str] = ""

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
        context.stats.append((self.NAME, stats))


def _option_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- the registry ---------------------------------------------------------------------------------


class PassRegistry:
    """Pass classes by name. Entries are `module:Class` strings, imported when first asked for, or classes."""

    def __init__(self) -> None:
        self._entries: dict[str, str | type[Pass]] = {}

    def add(self, entries: Mapping[str, str]) -> None:
        """Add lazy entries."""
        self._entries.update(entries)

    def register(self, cls: type[Pass]) -> type[Pass]:
        """Class decorator for passes that are loaded from a user's file."""
        self._entries[cls.NAME] = cls
        return cls

    def names(self) -> list[str]:
        return sorted(self._entries)

    def get(self, name: str) -> type[Pass]:
        """The class of a pass; CompileError XC3001 with near names when there is none."""
        entry = self._entries.get(name)
        if entry is None:
            near = get_close_matches(name, self._entries, 3)
            raise CompileError(
                "XC3001", f"there is no pass '{name}'",
                help=f"did you mean {' or '.join(near)}?" if near else "`xcompile passes` lists them",
            )  # fmt: skip
        if isinstance(entry, str):
            module, _, attribute = entry.partition(":")
            entry = self._entries[name] = getattr(importlib.import_module(module), attribute)
        return typing.cast(type[Pass], entry)


PASS_REGISTRY = PassRegistry()
"""Every pass that can be named in a pipeline."""


def make_pass(name: str, options: Mapping[str, str]) -> Pass:
    """A pass from its name and option texts; CompileError XC3003 for options that it does not have."""
    cls = PASS_REGISTRY.get(name)
    hints = typing.get_type_hints(cls)
    known = {f.name.replace("_", "-"): f.name for f in fields(cls)}
    values: dict[str, Any] = {}
    for key, text in options.items():
        if key not in known:
            raise CompileError(
                "XC3003", f"the pass {name} has no option '{key}'",
                help=f"it has {', '.join(known) or 'no options'}",
            )  # fmt: skip
        values[known[key]] = _parse_option(name, key, text, hints[known[key]])
    return cls(**values)


def _parse_option(name: str, key: str, text: str, hint: Any) -> Any:
    if isinstance(hint, types.UnionType):
        hint = next(h for h in typing.get_args(hint) if h is not type(None))
    parse: Callable[[str], Any] = _parse_bool if hint is bool else hint
    try:
        return parse(text)
    except ValueError:
        raise CompileError(
            "XC3003", f"the option {key} of {name} must be a {hint.__name__}, not '{text}'"
        ) from None


def _parse_bool(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"
