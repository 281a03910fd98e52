"""What the commands print: errors in red, progress on a terminal, tables of text."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_LONGEST = 60
"""Characters of a cell in a table of names from models."""

_WORDS = {"import": "reading the model", "passes": "optimizing", "kernels": "compiling kernels",
          "calibration": "calibrating", "budget": "trying models",
          "sensitivity": "quantizing each product alone",
          "reference": "running the reference", "comparing": "comparing"}  # fmt: skip


def print_error(message: str) -> None:
    """Print one line to stderr, red on a terminal."""
    from rich.console import Console

    text = "".join(c if c.isprintable() else " " for c in message)
    Console(stderr=True).print(
        f"error: {text}", style="red", markup=False, highlight=False, soft_wrap=True
    )


@contextmanager
def progress_bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """A function for the `progress` argument of `compile`, None where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("", total=None)

        def report(what: str, done: int, total: int) -> None:
            bar.update(task, description=_WORDS.get(what, what), completed=done, total=total)

        yield report


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns of text: fitted to a terminal, else as `table` makes them.

    Names come from models: control characters are escaped, and what is longer than 60 characters is cut.
    """
    plain = [[_short(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        print(table(header, plain))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False)
    for word in header:
        made.add_column(word, overflow="fold")
    for row in plain:
        made.add_row(*map(Text, row))
    Console().print(made)


def _short(cell: str) -> str:
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cell)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, those of numbers aligned on the right; an empty header is left out."""
    cells = [list(row) for row in (header, *rows) if row]
    columns = list(zip(*cells, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(_is_number(cell) for cell in column[bool(header) :]) for column in columns]
    lines: list[str] = []
    for row in cells:
        aligned = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(aligned).rstrip())
    return "\n".join(lines)


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell in ("", "-")


def bytes_text(count: int) -> str:
    """A size for people: "812 B", "39.4 KB", "97.5 MB"."""
    size = float(count)
    for unit in ("B", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
