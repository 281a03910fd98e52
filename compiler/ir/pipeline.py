"""Pipelines as text: `@cpu,nn-fold-batch-norm{eps-limit=1e-3},fixpoint{max=4}(nn-canonicalize,nn-cse)`.

`@name` stands for a named pipeline; `fixpoint` repeats its passes until the module no longer
changes. Edits are text too: `+after(nn-fuse):my-pass{x=1}`, `+before(nn-fuse):my-pass`,
`-nn-fuse-attention`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import Pass, PassContext, make_pass
from xcompile.compiler.support.errors import CompileError

_TOKEN = re.compile(r"\s*(?:(@?[A-Za-z][\w.-]*)|(\{[^{}]*\})|([(),]))")
_EDIT = re.compile(r"(?:\+(before|after)\(([\w.-]+)\):(.+)|-([\w.-]+))\Z", re.DOTALL)


@dataclass(frozen=True)
class Fixpoint(Pass):
    """Repeat the inner passes until the module's text stays the same, at most `max` times."""

    NAME = "fixpoint"

    passes: tuple[Pass, ...] = ()
    max: int = 8

    def run(self, module: Module, context: PassContext) -> None:
        before = module.text()
        for _ in range(self.max):
            for each in self.passes:
                each.run(module, context)
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
        """Apply comma-free edits separated by `;`: `+after(a):b{x=1};-c`."""
        passes = list(self.passes)
        for edit in filter(None, (e.strip() for e in edits.split(";"))):
            found = _EDIT.match(edit)
            if found is None:
                raise CompileError(
                    "XC3002", f"'{edit}' is no edit of a pipeline",
                    help="write +after(PASS):NEW, +before(PASS):NEW or -PASS; separate edits by ';'",
                )  # fmt: skip
            where, anchor, text, removed = found.groups()
            position = _position(passes, anchor or removed)
            if removed:
                del passes[position]
            else:
                at = position + (where == "after")
                passes[at:at] = parse_pipeline(text, named or {}).passes
        return Pipeline(tuple(passes))


def _position(passes: Sequence[Pass], name: str) -> int:
    for position, each in enumerate(passes):
        if name == each.NAME:
            return position
    raise CompileError(
        "XC3001",
        f"the pipeline has no pass '{name}'",
        help=f"it has {', '.join(p.NAME for p in passes)}",
    )


def parse_pipeline(text: str, named: Mapping[str, str]) -> Pipeline:
    """Parse pipeline text.

    Args:
        text: see the module's docstring.
        named: what `@name` stands for.

    Raises:
        CompileError: XC3002 with the place of the mistake, XC3001 for unknown passes, XC3003 for wrong options.
    """
    parser = _Parser(text, named)
    passes = parser.sequence()
    if parser.peek() is not None:
        parser.fail("expected ',' or the end")
    return Pipeline(tuple(passes))


class _Parser:
    def __init__(self, text: str, named: Mapping[str, str]) -> None:
        self._text, self._named = text, named
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
            return list(parse_pipeline(self._named[token[1:]], self._named))
        options = self.options()
        if token != "fixpoint":
            return [make_pass(token, options)]
        if self.take() != "(":
            self._next -= 1
            self.fail("expected '(' after fixpoint")
        inner = self.sequence()
        if self.take() != ")":
            self._next -= 1
            self.fail("expected ')'")
        return [Fixpoint(tuple(inner), int(options.get("max", "8")))]

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
