"""The identity of a model that is to be compiled, found without parsing it."""

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

_MOST_BYTES = 2**31 - 1
"""Larger models are no protobuf messages; the front end says so."""


@dataclass(frozen=True)
class Identity:
    """Which model it is.

    Attributes:
        digest: of its bytes, and of the name that it gets from its path.
        folder: where its external data lies; None for a model without a path.
    """

    digest: str
    folder: Path | None = None


class FileFacts(NamedTuple):
    """What is remembered of a file: its size in bytes, and its digest."""

    size: int
    digest: str


def facts_of(files: Mapping[str, memoryview | bytes]) -> dict[str, FileFacts]:
    """What is remembered of the files with these contents."""
    return {
        name: FileFacts(len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()
    }


def identify(source: object) -> Identity | None:
    """Which model it is; None for what is no model or cannot be read, about which the front end has an error."""
    if isinstance(source, str | os.PathLike):
        try:
            return _of_file(Path(os.fspath(source)))
        except (OSError, ValueError):
            return None
    if isinstance(source, bytes | bytearray | memoryview):
        return Identity(_digest("bytes", hashlib.sha256(source).hexdigest()))
    message: Any = source
    if not hasattr(message, "SerializeToString") or message.ByteSize() > _MOST_BYTES:
        return None
    content = message.SerializeToString(deterministic=True)
    return Identity(_digest("bytes", hashlib.sha256(content).hexdigest()))


def _of_file(path: Path) -> Identity | None:
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        content = hashlib.file_digest(file, "sha256").hexdigest()
    return Identity(_digest("file", path.stem, content), path.parent)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()
