"""Every option and environment variable, declared once; nothing else reads the environment.

An option has a type, a default, a help text, and says whether it affects the code that is made: those that
do are part of `Options.code_key`, and so of every cache key, without anyone having to remember it.
`docs/options.md` is this table printed (`python -m xcompile.compiler.support.options > docs/options.md`).
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar, cast

from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.abi import MAX_THREADS

T = TypeVar("T")


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option.

    Attributes:
        name: in kebab case.
        read: turns a text into a value; raises ValueError with what is wrong with the text.
        default: the value where nobody gives one.
        help: one sentence.
        affects_code: whether another value can give another artifact.
        shown_default: the default in words, where its value says too little.
        optional: whether None, which no text means, is a value too; a default of None always is.
    """

    name: str
    read: Callable[[str], T]
    default: T
    help: str
    affects_code: bool = False
    shown_default: str | None = None
    optional: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that sets the option: "XCOMPILE_WORKER_TIMEOUT"."""
        return f"XCOMPILE_{self.name.upper().replace('-', '_')}"

    def parse(self, value: object, source: str | None = None) -> T:
        """The value of the option that a text, or a Python value written as text, means.

        Args:
            value: what a user gave.
            source: where, for the error: the option's name unless given.

        Raises:
            CompileError: XC6005, the value is not one of the option's.
        """
        if value is None and (self.optional or self.default is None):
            return cast(T, None)
        try:
            return self.read(str(value))
        except ValueError as error:
            where = source or f"option '{self.name}'"
            raise CompileError("XC6005", f"{where}: '{value}' {error}", help=self.help) from error

    def from_environment(self) -> T:
        """The value of the environment variable, the default where it is unset or empty.

        Raises:
            CompileError: XC6005, the variable's text is not a value of the option.
        """
        text = os.environ.get(self.variable)
        return self.parse(text, self.variable) if text else self.default


def integer(minimum: int, maximum: int) -> Callable[[str], int]:
    """Reads integers from `minimum` to `maximum`."""

    def read(text: str) -> int:
        digits = text.isascii() and text.isdigit() and len(text) <= len(str(maximum))
        if not digits or not minimum <= int(text) <= maximum:
            raise ValueError(f"is not an integer from {minimum} to {maximum}")
        return int(text)

    return read


def choice(*choices: str) -> Callable[[str], str]:
    """Reads one of some words."""

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"is not one of {', '.join(choices)}")
        return text

    return read


def switch(text: str) -> bool:
    """Reads "1", "true", "on", "yes" and their opposites, in any case."""
    words = {"1": True, "true": True, "on": True, "yes": True}
    words |= {"0": False, "false": False, "off": False, "no": False}
    if text.lower() not in words:
        raise ValueError("is neither on nor off")
    return words[text.lower()]


def folder(text: str) -> Path:
    """Reads a path; "~" is the user's home."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise ValueError("lies in a home folder that is not known") from None


def _default_cache() -> Path | None:
    """Where the XDG base directory specification puts caches; nowhere for a user without a home."""
    try:
        return folder(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "xcompile"
    except ValueError:
        return None


CACHE: Final = Option[Path | None](
    "cache",
    folder,
    _default_cache(),
    "the folder that keeps compiled kernels and models between runs",
    shown_default="`$XDG_CACHE_HOME/xcompile`, or `~/.cache/xcompile`",
    optional=True,
)
CORPUS: Final = Option[Path | None](
    "corpus", folder, None, "a folder with models that tests and benchmarks use when it is given"
)
THREADS: Final = Option[int | None](
    "threads",
    integer(1, MAX_THREADS),
    None,
    "the number of threads a model runs on",
    shown_default="every core the process may use",
)
JOBS: Final = Option[int | None](
    "jobs",
    integer(1, 1024),
    None,
    "the number of worker processes that compile kernels",
    shown_default="every core the process may use",
)
WORKER_TIMEOUT: Final = Option(
    "worker-timeout", integer(1, 86_400), 120, "the seconds a worker may spend on one kernel"
)
VERIFY_EACH: Final = Option(
    "verify-each", switch, False, "verify the whole module after every pass, not only what changed"
)
VERIFY_NUMERICS: Final = Option(
    "verify-numerics",
    switch,
    False,
    "after every pass, compare by the numpy reference what it changed; nothing comes from the cache then",
)
ISOLATE: Final = Option(
    "isolate", switch, True, "run passes of files that are loaded in a process of their own"
)

OPTIONS: Final[dict[str, Option[Any]]] = {
    option.name: option
    for option in (
        CACHE,
        CORPUS,
        THREADS,
        JOBS,
        WORKER_TIMEOUT,
        VERIFY_EACH,
        VERIFY_NUMERICS,
        ISOLATE,
    )
}


class Options:
    """The options of one compilation: what was given, else the environment's, else the defaults.

    Look a value up by its declaration: `options[THREADS]`.
    """

    def __init__(
        self,
        given: Mapping[str, object] | None = None,
        *,
        declared: Mapping[str, Option[Any]] = OPTIONS,
    ) -> None:
        """Resolves every declared option.

        Args:
            given: values by option name, as texts or Python values.
            declared: the options there are.

        Raises:
            CompileError: XC6004 for an unknown name, XC6005 for a wrong value.
        """
        given = {} if given is None else given
        if not isinstance(given, Mapping):
            what = type(given).__name__
            raise CompileError("XC6005", f"options are values by name, not {what}")
        for name in given:
            if name not in declared:
                close = difflib.get_close_matches(str(name), declared) or sorted(declared)
                raise CompileError(
                    "XC6004", f"no option '{name}'", help=f"did you mean {' or '.join(close)}?"
                )
        self._declared = declared
        self._values = {
            name: option.parse(given[name]) if name in given else option.from_environment()
            for name, option in declared.items()
        }

    def __getitem__(self, option: Option[T]) -> T:
        return self._values[option.name]

    def code_key(self) -> str:
        """The options that affect code, as canonical JSON: a part of every cache key."""
        values = {
            name: self._values[name]
            for name, option in self._declared.items()
            if option.affects_code
        }
        return json.dumps(values, sort_keys=True, default=str)


def options_page() -> str:
    """The text of `docs/options.md`: every option with its variable, default and meaning."""
    lines = [
        "# Options",
        "",
        "Printed by `python -m xcompile.compiler.support.options > docs/options.md`; a test compares.",
        "",
        'Given to Python by name, `xcompile.compile(model, options={"jobs": 2})`, or to everything by the variable.',
        "The command line has `--threads`, `--jobs` and `--cache`.",
        "",
        "| option | variable | default | affects code | meaning |",
        "|---|---|---|---|---|",
    ]
    for option in OPTIONS.values():
        default = option.shown_default or (
            "none" if option.default is None else f"`{option.default}`"
        )
        code = "yes" if option.affects_code else "no"
        lines.append(
            f"| `{option.name}` | `{option.variable}` | {default} | {code} | {option.help} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(options_page(), end="")
