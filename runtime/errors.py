"""The one exception that running or loading a compiled model raises."""

from __future__ import annotations


class RuntimeModelError(Exception):
    """A failure that the person who calls a model can understand and act upon.

    The text is one line: code and message, then what to do. The codes are those of `docs/errors.md`,
    XC5xxx for a run and its arguments, XC7xxx for libraries.

    Attributes:
        code: such as "XC5002".
        message: what is wrong, naming the input or output.
        help: what the caller can do about it.
    """

    def __init__(self, code: str, message: str, help: str | None = None) -> None:
        super().__init__(code, message, help)
        self.code = code
        self.message = message
        self.help = help

    def __str__(self) -> str:
        text = f"{self.code} {self.message}"
        if self.help is not None:
            text += f" (help: {self.help})"
        return one_line(text)


def one_line(text: str) -> str:
    """The text with control characters escaped, which names in a hostile model may carry."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shorten(text: str, limit: int = 80) -> str:
    """The text, or its beginning and "…" when it is longer than `limit` characters."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
