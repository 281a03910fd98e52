"""What may watch a pipeline: verification, printing, dumps, time, reproducers (numbers: `compiler/numerics/check.py`).

context = PassContext(target, instruments=[Verify(), Timing()])
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import Instrument, Pass, PassContext
from xcompile.compiler.ir.verifier import verify_module
from xcompile.compiler.support.errors import CompileError


class Verify(Instrument):
    """Verifies after each pass what it changed, or the whole module.

    Attributes:
        each: verify everything after every pass, also after those that say they changed nothing.
    """

    def __init__(self, *, each: bool = False) -> None:
        self.each = each

    def after(self, pass_: Pass, module: Module, context: PassContext) -> None:
        done = context.last
        if done is not None and not done.any and not self.each:
            return
        try:
            verify_module(module, None if done is None or self.each else done.changed)
        except CompileError as error:
            raise CompileError(
                "XC3005", f"the module does not verify after the pass: {error.message}",
                node=error.node, help="the fault is the pass's, not the model's",
            ) from error  # fmt: skip


class PrintIR(Instrument):
    """Prints the module around passes.

    Attributes:
        when: "before", "after", or "after-change" (after passes that changed the text).
        passes: the names of the passes; all when empty.
        write: gets the text, with a heading.
    """

    def __init__(
        self, when: str, passes: Sequence[str] = (), write: Callable[[str], Any] = print
    ) -> None:
        if when not in ("before", "after", "after-change"):
            raise CompileError(
                "XC6005", f"IR can't be printed '{when}'", help="before, after or after-change"
            )
        self.when = when
        self.passes = frozenset(passes)
        self.write = write
        self._text = ""

    def before(self, pass_: Pass, module: Module, context: PassContext) -> None:
        if self.when == "before":
            self._print(pass_, module.text())
        elif self.when == "after-change" and self._wanted(pass_):
            self._text = module.text()

    def after(self, pass_: Pass, module: Module, context: PassContext) -> None:
        if self.when != "before" and self._wanted(pass_):
            text = module.text()
            if self.when == "after" or text != self._text:
                self._print(pass_, text)

    def _wanted(self, pass_: Pass) -> bool:
        return not self.passes or pass_.NAME in self.passes

    def _print(self, pass_: Pass, text: str) -> None:
        if self._wanted(pass_):
            self.write(f"// ----- {self.when} {pass_} -----\n{text}")


class DumpIR(Instrument):
    """Writes the module to a folder: `000-input.mlir`, then a numbered file after each pass, with node names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0

    def before(self, pass_: Pass, module: Module, context: PassContext) -> None:
        if self._number == 0:
            self._write("input", module)

    def after(self, pass_: Pass, module: Module, context: PassContext) -> None:
        self._write(pass_.NAME, module)

    def _write(self, name: str, module: Module) -> None:
        _write_text(self.folder / f"{self._number:03}-{name}.mlir", module.text(locations=True))
        self._number += 1


class Timing(Instrument):
    """Measures each pass.

    Attributes:
        seconds: (pass, wall seconds, rewrites) in the order of running.
    """

    def __init__(self) -> None:
        self.seconds: list[tuple[str, float, int]] = []
        self._started = 0.0

    def before(self, pass_: Pass, module: Module, context: PassContext) -> None:
        self._started = time.perf_counter()

    def after(self, pass_: Pass, module: Module, context: PassContext) -> None:
        rewrites = context.last.fired.total() if context.last is not None else 0
        self.seconds.append((pass_.NAME, time.perf_counter() - self._started, rewrites))

    def report(self) -> str:
        """A table: milliseconds, rewrites and name of each pass, and the sum."""
        lines = [f"{'ms':>9} {'rewrites':>9}  pass"]
        for name, seconds, rewrites in self.seconds:
            lines.append(f"{seconds * 1e3:9.2f} {rewrites:9}  {name}")
        total = sum(seconds for _, seconds, _ in self.seconds)
        lines.append(f"{total * 1e3:9.2f} {sum(r for *_, r in self.seconds):9}  total")
        return "\n".join(lines)


class Reproducer(Instrument):
    """When a pass fails, writes the module it was given and the pipeline of this one pass.

    The file's first line is `// pipeline: nn-example{x=1}`; the error says where the file is. Weights are not written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._text = ""

    def before(self, pass_: Pass, module: Module, context: PassContext) -> None:
        self._text = module.text(locations=True)

    def failed(
        self, pass_: Pass, module: Module, context: PassContext, error: CompileError
    ) -> None:
        path = self.folder / f"{pass_.NAME}.mlir"
        _write_text(path, f"// pipeline: {pass_}\n// {error}\n{self._text}")
        where = f"to reproduce: {path}"
        error.help = f"{error.help}; {where}" if error.help else where


def _write_text(path: Path, text: str) -> None:
    """Write a whole file or none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise CompileError("XC7001", f"{path} can't be written: {error.strerror}") from error
