"""External data: memory-mapped slices of files that lie in the model's folder, and nothing else.

The location in a model is a claim by whoever wrote it. It must be a relative path of plain names;
every folder on the way and the file itself are opened without following links, and the file must be
a regular one with a single name (no hard links).
"""

import mmap
import os
import stat
from pathlib import Path

import onnx

from xcompile.compiler.support.errors import CompileError

_KEYS = ("location", "offset", "length", "checksum")


class ExternalData:
    """The external files of one model, each mapped once."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._maps: dict[str, tuple[mmap.mmap | bytes, int]] = {}

    def read(self, tensor: onnx.TensorProto, nbytes: int) -> memoryview:
        """The `nbytes` bytes of a tensor, read only, not copied.

        Raises:
            CompileError: XC1004.
        """
        location, offset, length = _entry(tensor)
        if length is not None and length != nbytes:
            raise CompileError(
                "XC1004",
                f"the tensor '{tensor.name}' needs {nbytes} bytes, its external data says {length}",
            )
        data, size = self._open(tensor.name, location)
        if offset > size or nbytes > size - offset:
            raise CompileError(
                "XC1004",
                f"the tensor '{tensor.name}' needs bytes {offset} to {offset + nbytes} "
                f"of '{location}', which has {size}",
            )
        return memoryview(data)[offset : offset + nbytes]

    def files(self) -> dict[str, memoryview | bytes]:
        """The files that were read so far, by their location."""
        return {location: memoryview(data) for location, (data, _) in self._maps.items()}

    def _open(self, name: str, location: str) -> tuple[mmap.mmap | bytes, int]:
        if location not in self._maps:
            if self._folder is None:
                raise CompileError(
                    "XC1004",
                    f"the tensor '{name}' lies in the external file '{location}', but the model was given as bytes",
                    help="give the path of the model",
                )
            self._maps[location] = _map(self._folder, name, location)
        return self._maps[location]


def _entry(tensor: onnx.TensorProto) -> tuple[str, int, int | None]:
    """Location, offset and length; CompileError XC1004 for unknown or repeated keys and bad numbers."""
    fields: dict[str, str] = {}
    for entry in tensor.external_data:
        if entry.key not in _KEYS or entry.key in fields:
            raise CompileError(
                "XC1004",
                f"the external data of '{tensor.name}' has an unknown or repeated key '{entry.key}'",
            )
        fields[entry.key] = entry.value
    length = fields.get("length")
    return (
        fields.get("location", ""),
        _number(tensor.name, fields.get("offset", "0")),
        None if length is None else _number(tensor.name, length),
    )


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise CompileError(
            "XC1004", f"the external data of '{name}' has the offset or length '{text[:40]}'"
        )
    return int(text)


def _parts(name: str, location: str) -> list[str]:
    """The path components of a location that stays inside the folder."""
    parts = location.split("/")
    parts = [part for i, part in enumerate(parts) if part != "." or i == len(parts) - 1]
    bad = any(
        part in ("", ".", "..") or "\0" in part or "\\" in part or ":" in part for part in parts
    )
    if bad or not parts:
        raise CompileError(
            "XC1004",
            f"the tensor '{name}' lies in the external file '{location}', which is no plain path below the model",
        )
    return parts


def _map(folder: Path, name: str, location: str) -> tuple[mmap.mmap | bytes, int]:
    *folders, file = _parts(name, location)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    opened: list[int] = []
    try:
        opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for part in folders:
            opened.append(os.open(part, flags | os.O_DIRECTORY, dir_fd=opened[-1]))
        opened.append(os.open(file, flags, dir_fd=opened[-1]))
        status = os.fstat(opened[-1])
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise CompileError(
                "XC1004",
                f"the external file '{location}' of '{name}' is not a regular file with a single name",
            )
        size = status.st_size
        return (mmap.mmap(opened[-1], size, access=mmap.ACCESS_READ) if size else b""), size
    except (OSError, ValueError) as error:
        raise CompileError(
            "XC1004",
            f"the external file '{location}' of the tensor '{name}' cannot be opened: {error}",
            help="it must lie in the model's folder and must not be a link",
        ) from error
    finally:
        for descriptor in opened:
            os.close(descriptor)
