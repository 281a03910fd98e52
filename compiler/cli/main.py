"""The entry point of `xcompile`: finds the command, and turns every failure into one line."""

import _thread
import difflib
import io
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from xcompile.compiler.cli.bench import bench
from xcompile.compiler.cli.compile import compile_command
from xcompile.compiler.cli.console import print_error
from xcompile.compiler.cli.diff import diff
from xcompile.compiler.cli.doctor import doctor
from xcompile.compiler.cli.opt import opt
from xcompile.compiler.cli.passes import passes
from xcompile.compiler.cli.profile import profile
from xcompile.compiler.cli.run import run
from xcompile.compiler.cli.targets import targets
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.errors import RuntimeModelError

COMMANDS = {
    "compile": compile_command,
    "run": run,
    "bench": bench,
    "diff": diff,
    "profile": profile,
    "opt": opt,
    "passes": passes,
    "targets": targets,
    "doctor": doctor,
}

FAILURE, USAGE, INTERRUPTED = 1, 2, 130
"""Exit codes: the work failed, the command line is wrong, the user pressed Ctrl-C."""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="A compiler for machine-learning models. `xcompile MODEL` is short for `xcompile compile MODEL`; "
    "--debug, anywhere, shows the traceback of an error.",
)
for _name, _function in COMMANDS.items():
    app.command(_name)(_function)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        import xcompile

        print(f"xcompile {xcompile.__version__}")
        raise typer.Exit


def main() -> None:
    """The console script."""
    _open_closed_streams()
    sys.unraisablehook = _interrupt_again
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a terminal that lacks a character gets its number
            stream.reconfigure(errors="backslashreplace")
    code = execute(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        if code == 0:
            message, code = _explained(error, ())
            print_error(message)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _interrupt_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Send Ctrl-C once more when it fell into code whose exceptions Python ignores, as callbacks of weak references."""
    if unraisable.exc_type is KeyboardInterrupt:
        threading.Timer(0.01, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(unraisable)


def _open_closed_streams() -> None:
    """Give the null device to standard streams that the caller closed, before files or pipes get their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 (lives as long as the process)


def execute(arguments: Sequence[str]) -> int:
    """Run a command line.

    Args:
        arguments: the words after `xcompile`.

    Returns:
        The exit code: 0, `FAILURE`, `USAGE` or `INTERRUPTED`; that of the worst finding for `doctor`.
    """
    debug = "--debug" in arguments
    words = [word for word in arguments if word != "--debug"] or ["--help"]
    try:
        words = _with_command(words)
        code = app(words, prog_name="xcompile", standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except Exception as error:  # noqa: BLE001 (the last resort: a fault of ours is one line too)
        if debug:
            traceback.print_exception(error)
        message, code = _explained(error, words)
        print_error(message)
    if code == INTERRUPTED:
        print_error("interrupted")
    return code


def _explained(error: Exception, words: Sequence[str]) -> tuple[str, int]:
    """The line that the user sees, and the exit code."""
    if isinstance(error, (CompileError, RuntimeModelError)):
        return str(error), FAILURE
    if isinstance(error, _UsageError):
        return _usage(error, words), USAGE
    if isinstance(error, OSError) and error.filename is None:
        return f"the output cannot be written: {error.strerror}", FAILURE
    name = type(error).__name__
    return f"internal error: {name}: {error} (help: --debug shows where)", FAILURE


_UsageError: Any = typer.BadParameter.__mro__[
    1
]  # its module's name depends on the version of typer


def _with_command(words: list[str]) -> list[str]:
    """The words with the command `compile` in front when the user left it out."""
    if words[0] in COMMANDS or words[0] in ("--help", "--version"):
        return words
    if not words[0].startswith("-") and not Path(words[0]).exists():
        close = difflib.get_close_matches(words[0], COMMANDS, 1)
        if close or not Path(words[0]).suffix:
            raise CompileError(
                "XC6006",
                f"there is no command and no model '{words[0]}'",
                help=f"did you mean `xcompile {close[0]}`?"
                if close
                else f"the commands are {', '.join(COMMANDS)}",
            )
    return ["compile", *words]


def _usage(error: Exception, words: Sequence[str]) -> str:
    """A mistake in the command line, as one line."""
    format_message = getattr(error, "format_message", error.__str__)
    message = " ".join(format_message().split()).rstrip(".")
    command = f"xcompile {words[0]}" if words and words[0] in COMMANDS else "xcompile"
    return str(CompileError("XC6006", message, help=f"`{command} --help` shows what it takes"))


if __name__ == "__main__":
    main()
