"""Pipelines as text: `@cpu,nn-fold-batch-norm{eps-limit=1e-3},fixpoint{max=4}(nn-canonicalize,nn-cse)`.

`@name` stands for a named pipeline; `fixpoint` repeats its passes until the module no longer
changes. Edits are text too: `+after(nn-fuse):my-pass{x=1}`, `+before(nn-fuse):my-pass`,
`-nn-fuse-attention`, and `nn-fuse{limit=2}` to give a pass other options.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import ClassVar

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import Pass, PassContext, make_pass, run_pass
from xcompile.compiler.support.errors import CompileError

_TOKEN = re.compile(r"\s*(?:(@?[A-Za-z][\w.-]*)|(\{[^{}]*\})|([(),]))")
_DEPTH_LIMIT = 16
_EDIT = re.compile(
    r"(?:\+(?P<where>before|after)\((?P<anchor>[\w.-]+)\):(?P<new>.+)"
    r"|-(?P<removed>[\w.-]+)|(?P<changed>[A-Za-z][\w.-]*)\{[^{}]*\})\Z",
    re.DOTALL,
)


@dataclass(frozen=True)
class Fixpoint(Pass):
    """Repeat the inner passes until the module's text stays the same, at most `max` times."""

    NAME: ClassVar[str] = "fixpoint"
    TRANSPARENT: ClassVar[bool] = True

    passes: tuple[Pass, ...] = ()
    max: int = 8

    def run(self, module: Module, context: PassContext) -> None:
        before = module.text()
        for _ in range(self.max):
            for each in self.passes:
                run_pass(each, module, context)
            after = module.text()
            if after == before:
                return
            before = after

    def __str__(self) -> str:
        options = "" if self.max == 8 else f"{{max={self.max}}}"
        return f"fixpoint{options}({','.join(map(str, self.passes))})"


@dataclass(frozen=True)
class Pipeline:
    """An ordered list of passes."""

    passes: tuple[Pass, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.passes))

    def __iter__(self) -> Iterator[Pass]:
        return iter(self.passes)

    def edited(self, edits: str, named: Mapping[str, str] | None = None) -> "Pipeline":
        """Apply edits separated by `;`: `+after(a):b{x=1},c;-d;e{y=2}`.

        An insertion is made at the first pass of the name, the others apply to all of them; all look into fixpoints.

        Raises:
            CompileError: XC3001 the pipeline has no such pass; XC3002 an edit can't be parsed.
        """
        passes = self.passes
        for edit in filter(None, (e.strip() for e in edits.split(";"))):
            found = _EDIT.match(edit)
            if found is None:
                raise CompileError(
                    "XC3002", f"'{edit}' is no edit of a pipeline",
                    help="write +after(PASS):NEW, +before(PASS):NEW, -PASS or PASS{OPTION=VALUE},"
                    " with ';' between edits",
                )  # fmt: skip
            name = found["anchor"] or found["removed"] or found["changed"]
            if name not in _names(passes):
                names = dict.fromkeys(_names(passes))
                near = get_close_matches(name, names, 3)
                raise CompileError(
                    "XC3001", f"the pipeline has no pass '{name}'",
                    help=f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names)}",
                )  # fmt: skip
            if found["removed"]:
                passes = _without(passes, name)
            elif found["changed"]:
                passes = _replaced(passes, name, parse_pipeline(edit, {}).passes[0])
            else:
                new = parse_pipeline(found["new"], named or {}).passes
                passes, _ = _inserted(passes, name, new, after=found["where"] == "after")
        return Pipeline(passes)


def _names(passes: Sequence[Pass]) -> list[str]:
    """The names of all passes, those inside fixpoints included."""
    found: list[str] = []
    for each in passes:
        found.append(each.NAME)
        if isinstance(each, Fixpoint):
            found += _names(each.passes)
    return found


def _without(passes: Sequence[Pass], name: str) -> tuple[Pass, ...]:
    kept: list[Pass] = []
    for each in passes:
        if name == each.NAME:
            continue
        if isinstance(each, Fixpoint):
            each = replace(each, passes=_without(each.passes, name))
            if not each.passes:
                continue
        kept.append(each)
    return tuple(kept)


def _replaced(passes: Sequence[Pass], name: str, new: Pass) -> tuple[Pass, ...]:
    """The passes with `new` in the place of each one called `name`."""
    return tuple(
        new
        if name == each.NAME
        else replace(each, passes=_replaced(each.passes, name, new))
        if isinstance(each, Fixpoint)
        else each
        for each in passes
    )


def _inserted(
    passes: Sequence[Pass], name: str, new: Sequence[Pass], *, after: bool
) -> tuple[tuple[Pass, ...], bool]:
    """The passes with `new` before or after the first one called `name`, and whether there was one."""
    for position, each in enumerate(passes):
        if name == each.NAME:
            at = position + after
            return (*passes[:at], *new, *passes[at:]), True
        if isinstance(each, Fixpoint):
            inner, done = _inserted(each.passes, name, new, after=after)
            if done:
                changed = replace(each, passes=inner)
                return (*passes[:position], changed, *passes[position + 1 :]), True
    return tuple(passes), False


def parse_pipeline(text: str, named: Mapping[str, str]) -> Pipeline:
    """Parse pipeline text.

    Args:
        text: see the module's docstring.
        named: what `@name` stands for.

    Raises:
        CompileError: XC3002 with the place of the mistake, XC3001 for unknown passes, XC3003 for wrong options.
    """
    parser = _Parser(text, named, 0)
    passes = parser.sequence()
    if parser.peek() is not None:
        parser.fail("expected ',' or the end")
    return Pipeline(tuple(passes))


class _Parser:
    def __init__(self, text: str, named: Mapping[str, str], depth: int) -> None:
        self._text, self._named, self._depth = text, named, depth
        self._tokens: list[tuple[str, int]] = []
        self._next = 0
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None:
                self._tokens.append(("", position))
                break
            self._tokens.append((found.group().strip(), found.start()))
            position = found.end()

    def peek(self) -> str | None:
        return self._tokens[self._next][0] if self._next < len(self._tokens) else None

    def take(self) -> str | None:
        token = self.peek()
        self._next += 1
        return token

    def fail(self, what: str) -> None:
        column = self._tokens[self._next][1] if self._next < len(self._tokens) else len(self._text)
        raise CompileError(
            "XC3002", f"cannot parse the pipeline at column {column + 1}: {what}: '{self._text}'"
        )

    def sequence(self) -> list[Pass]:
        passes = self.item()
        while self.peek() == ",":
            self.take()
            passes += self.item()
        return passes

    def item(self) -> list[Pass]:
        token = self.peek()
        if not token or not (token[0].isalpha() or token[0] == "@"):
            self.fail("expected a pass name")
        self.take()
        assert token is not None
        if token.startswith("@"):
            if token[1:] not in self._named:
                self._next -= 1
                self.fail(
                    f"there is no pipeline '{token}'; there are {', '.join('@' + n for n in self._named)}"
                )
            return self.named(token[1:])
        options = self.options()
        if token != "fixpoint":
            return [make_pass(token, options)]
        if self.take() != "(":
            self._next -= 1
            self.fail("expected '(' after fixpoint")
        self.nest()
        inner = self.sequence()
        self._depth -= 1
        if self.take() != ")":
            self._next -= 1
            self.fail("expected ')'")
        return [Fixpoint(tuple(inner), _rounds(options))]

    def named(self, name: str) -> list[Pass]:
        """The passes of a named pipeline."""
        self.nest()
        parser = _Parser(self._named[name], self._named, self._depth)
        passes = parser.sequence()
        if parser.peek() is not None:
            parser.fail("expected ',' or the end")
        self._depth -= 1
        return passes

    def nest(self) -> None:
        """Go one level deeper."""
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            self.fail(f"fixpoints and named pipelines nest more than {_DEPTH_LIMIT} deep")

    def options(self) -> dict[str, str]:
        token = self.peek()
        if token is None or not token.startswith("{"):
            return {}
        self.take()
        found: dict[str, str] = {}
        for part in token[1:-1].split():
            key, equals, value = part.partition("=")
            if not equals:
                self._next -= 1
                self.fail(f"'{part}' is not key=value")
            found[key] = value
        return found


def _rounds(options: Mapping[str, str]) -> int:
    """The option of a fixpoint."""
    unknown = options.keys() - {"max"}
    text = options.get("max", "8")
    if unknown or not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise CompileError(
            "XC3003",
            f"fixpoint takes max=ROUNDS, not {' '.join(f'{k}={v}' for k, v in options.items())}",
        )
    return int(text)
