"""Writes data, such as a model's weights, as an ELF object that a linker takes.

The format is that of the System V ABI, chapters "Object Files" and "Sections" (ELF64, little endian). Data
is streamed: a hundred megabytes of weights never lie in memory a second time.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

MACHINES: Final[Mapping[str, int]] = {"x86_64": 62, "aarch64": 183}
"""ELF's machine numbers of the architectures."""
DATA_ALIGNMENT: Final = 64

_LARGE: Final = 1 << 30
_CHUNK: Final = 1 << 22
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC, _X86_64_LARGE = 0x2, 0x10000000
_HEADER, _SECTION, _SYMBOL = "<16sHHIQQQIHHHHHH", "<IIQQQQIIQQ", "<IBBHQQ"
_HEADER_BYTES = struct.calcsize(_HEADER)


@dataclass(frozen=True)
class DataSymbol:
    """A global symbol inside the data: bytes [offset, offset + size)."""

    name: str
    offset: int
    size: int


def write_data_object(
    target: BinaryIO,
    pieces: Iterable[bytes | bytearray | memoryview | Path],
    symbols: Sequence[DataSymbol],
    architecture: str,
    section: str = ".rodata.xcompile",
    *,
    loaded: bool = True,
) -> int:
    """Writes a relocatable object with one read-only section, aligned to 64 bytes.

    Args:
        target: a file opened for writing at its beginning, which can seek.
        pieces: the data: buffers, and files whose content is copied.
        symbols: names of parts of the data, as ASCII identifiers.
        architecture: a key of `MACHINES`.
        section: the name of the section. On x86-64, a gigabyte of data and more becomes `.lrodata`, which
            linkers place where it does not come between parts of the code that must be near each other.
        loaded: whether the data is in memory when the library is; otherwise it is only in the file.

    Returns:
        The bytes of data written.

    Raises:
        OSError: a file cannot be read, or the target not written.
    """
    target.write(bytes(DATA_ALIGNMENT))
    size = _copy(target, pieces)
    large = loaded and architecture == "x86_64" and size >= _LARGE
    names = b"\0" + b"".join(symbol.name.encode("ascii") + b"\0" for symbol in symbols)
    table = _symbol_table(symbols, names)
    section_names = [
        ".lrodata" if large else section,
        ".symtab",
        ".strtab",
        ".shstrtab",
        ".note.GNU-stack",
    ]
    section_texts = b"\0" + b"".join(name.encode("ascii") + b"\0" for name in section_names)
    table_at = _aligned(DATA_ALIGNMENT + size, 8)
    names_at = table_at + len(table)
    texts_at = names_at + len(names)
    headers_at = _aligned(texts_at + len(section_texts), 8)
    flags = (_ALLOC | (_X86_64_LARGE if large else 0)) if loaded else 0
    starts = [section_texts.index(b"\0" + name.encode() + b"\0") + 1 for name in section_names]
    headers = [  # name, type, flags, address, offset, size, link, info, alignment, entry size
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (starts[0], _PROGBITS, flags, 0, DATA_ALIGNMENT, size, 0, 0, DATA_ALIGNMENT, 0),
        (starts[1], _SYMTAB, 0, 0, table_at, len(table), 3, 2, 8, struct.calcsize(_SYMBOL)),
        (starts[2], _STRTAB, 0, 0, names_at, len(names), 0, 0, 1, 0),
        (starts[3], _STRTAB, 0, 0, texts_at, len(section_texts), 0, 0, 1, 0),
        (starts[4], _PROGBITS, 0, 0, texts_at, 0, 0, 0, 1, 0),
    ]
    target.seek(table_at)
    target.write(table + names + section_texts)
    target.seek(headers_at)
    target.write(b"".join(struct.pack(_SECTION, *header) for header in headers))
    target.seek(0)
    target.write(_header(MACHINES[architecture], headers_at, len(headers)))
    return size


def _header(machine: int, headers_at: int, header_count: int) -> bytes:
    identity = b"\x7fELF" + bytes([2, 1, 1])  # 64 bits, little endian, version 1
    section_bytes = struct.calcsize(_SECTION)
    fields = (1, machine, 1, 0, 0, headers_at, 0, _HEADER_BYTES, 0, 0)  # type 1: relocatable
    return struct.pack(_HEADER, identity, *fields, section_bytes, header_count, 4)


def _symbol_table(symbols: Sequence[DataSymbol], names: bytes) -> bytes:
    """The null symbol, the section's, and a global object each for the data."""
    rows = [struct.pack(_SYMBOL, 0, 0, 0, 0, 0, 0), struct.pack(_SYMBOL, 0, 3, 0, 1, 0, 0)]
    name_at = 1
    for symbol in symbols:
        rows.append(struct.pack(_SYMBOL, name_at, 0x11, 0, 1, symbol.offset, symbol.size))
        name_at += len(symbol.name) + 1
    assert name_at == len(names)
    return b"".join(rows)


def _copy(target: BinaryIO, pieces: Iterable[bytes | bytearray | memoryview | Path]) -> int:
    begin = target.tell()
    for piece in pieces:
        if isinstance(piece, Path):
            with piece.open("rb") as source:
                shutil.copyfileobj(source, target, _CHUNK)
        else:
            target.write(piece)
    return target.tell() - begin


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
