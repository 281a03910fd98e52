"""Text tests: `.mlir` files whose RUN lines are run in this process and whose CHECK lines are matched.

    // RUN: opt --passes='nn-canonicalize' --explain=nn-canonicalize %s | filecheck %s
    // RUN: not opt --passes=… %s | filecheck %s --check-prefix=ERROR

`%S` is the folder of the file. `not opt` must fail, and its output is the error's one line. A file may hold several
modules, separated by `// -----`.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser

from xcompile.compiler.opt import optimize
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.registry import targets

_RUN = re.compile(r"^// RUN: (not )?opt (.*) %s \| filecheck %s(?: --check-prefix=(\w+))?$", re.M)


class TextTest(pytest.Item):
    """One RUN line."""

    def __init__(self, *, fails: bool, arguments: str, prefix: str, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self._fails = fails
        words = [word.replace("%S", str(self.path.parent)) for word in shlex.split(arguments)]
        self._arguments = dict(word.removeprefix("--").split("=", 1) for word in words)
        self._prefix = prefix

    def runtest(self) -> None:
        output = self._output(self.path.read_text())
        options = Options(match_filename=str(self.path), check_prefixes=[self._prefix])
        matcher = Matcher(options, FInput("output", output), Parser.from_opts(options))
        matcher.stderr = messages = io.StringIO()
        with contextlib.redirect_stdout(messages):
            code = matcher.run()
        if code != 0:
            pytest.fail(f"{messages.getvalue()}\nthe output was:\n{output}", pytrace=False)

    def _output(self, text: str) -> str:
        given = dict(self._arguments)
        target = targets()[given.pop("target", "x86-avx2")]
        passes, explain = (
            given.pop("passes"),
            frozenset(filter(None, given.pop("explain", "").split(","))),
        )
        locations = given.pop("locations", "false") == "true"
        assert not given, f"unknown options {given}"
        try:
            output = optimize(text, passes, target, explain=explain, locations=locations)
        except CompileError as error:
            if not self._fails:
                raise
            return f"{error}\n"
        if self._fails:
            pytest.fail(f"opt should fail, but printed\n{output}", pytrace=False)
        return output

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}: {self.name}"


class TextFile(pytest.File):
    """A file of RUN and CHECK lines."""

    def collect(self) -> Iterator[TextTest]:
        text = self.path.read_text()
        runs = _RUN.findall(text)
        if not runs or len(runs) != text.count("RUN:"):
            raise self.CollectError(f"{self.path.name} has RUN lines that can't be understood")
        for number, (fails, arguments, prefix) in enumerate(runs):
            yield TextTest.from_parent(
                self, name=f"run{number}", fails=bool(fails), arguments=arguments, prefix=prefix or "CHECK"
            )  # fmt: skip


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> TextFile | None:
    return TextFile.from_parent(parent, path=file_path) if file_path.suffix == ".mlir" else None
