"""What a compile is doing, noted where another process can read it when this one has died.

The note is a file that is mapped into memory: it holds what was written last, however the process ended. Nothing is
noted, and nothing costs anything, before `TRACE.start`.
"""

import json
import mmap
from pathlib import Path
from typing import Final

_BYTES = 4096
_LONGEST = 200


class Trace:
    """The notes of one process."""

    def __init__(self) -> None:
        self._note: mmap.mmap | None = None
        self._fields: dict[str, str | None] = {}

    @property
    def active(self) -> bool:
        """Whether notes are taken, so that callers need not compute what nobody reads."""
        return self._note is not None

    def start(self, path: Path) -> None:
        """Note everything from now on in the file at `path`, which is made."""
        with path.open("w+b") as file:
            file.truncate(_BYTES)
            self._note = mmap.mmap(file.fileno(), _BYTES)

    def stop(self) -> None:
        """Note nothing any more."""
        if self._note is not None:
            self._note.close()
        self._note = None
        self._fields.clear()

    def enter(self, name: str | None) -> None:
        """A pass begins; None: no pass is running."""
        self._fields = {"pass": name}
        self._write()

    def doing(self, what: str, node: str | None) -> None:
        """Something inside the pass begins, such as "the pattern FoldNorm" at a model node."""
        self._fields |= {"doing": what, "node": node}
        self._write()

    def _write(self) -> None:
        if self._note is not None:
            shortened = {n: text and text[:_LONGEST] for n, text in self._fields.items()}
            self._note[:_BYTES] = json.dumps(shortened).encode().ljust(_BYTES, b"\0")


TRACE: Final = Trace()
"""What this process notes."""


def read(path: Path) -> dict[str, str | None]:
    """What was noted last: "pass", "doing" and "node", as far as they are known."""
    try:
        return json.loads(path.read_bytes().rstrip(b"\0") or b"{}")
    except (OSError, ValueError):
        return {}
