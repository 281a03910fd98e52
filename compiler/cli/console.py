"""What the commands print: errors in red, progress on a terminal, tables of text."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

_WORDS = {"import": "reading the model", "passes": "optimizing", "kernels": "compiling kernels"}


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
