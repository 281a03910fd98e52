"""Reads the parts of an ELF file that decide whether it may be loaded. Any bytes are safe to give.

Nothing is trusted: each offset, size and name is checked against the bytes before it is followed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from xcompile.runtime.errors import RuntimeModelError

MACHINES: Final[Mapping[int, str]] = {62: "x86_64", 183: "aarch64"}
SHARED_OBJECT: Final = 3

_HEADER: Final = "<16sHHIQQQIHHHHHH"
_SECTION: Final = "<IIQQQQIIQQ"
_SYMBOL: Final = "<IBBHQQ"
_SYMTAB, _DYNSYM, _NOBITS = 2, 11, 8
_MAX_SYMBOLS = 1 << 16
_MAX_NAME = 256


@dataclass(frozen=True)
class Section:
    """A section header: where its bytes are, and what they are."""

    name: str
    kind: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True)
class ElfSymbol:
    """An entry of a symbol table. A dynamic one is what a library offers (defined) or asks for."""

    name: str
    defined: bool
    size: int
    address: int = 0


@dataclass(frozen=True)
class ElfImage:
    """What was read of an ELF file.

    Attributes:
        kind: the type, 3 for a shared library.
        machine: the machine number, a key of `MACHINES` for those supported.
        sections: by name, the first where there are several.
        symbols: the dynamic symbols by name.
    """

    kind: int
    machine: int
    sections: dict[str, Section]
    symbols: dict[str, ElfSymbol]


def read_elf(data: memoryview) -> ElfImage:
    """Reads the header, the sections and the dynamic symbols of a 64-bit little-endian ELF file.

    Raises:
        RuntimeModelError: XC7002, the bytes are not such a file or contradict themselves.
    """
    kind, machine, listed = _sections(data)
    by_name = {section.name: section for section in reversed(listed)}
    return ElfImage(kind, machine, by_name, _symbols(data, listed, _DYNSYM))


def all_symbols(data: memoryview) -> dict[str, ElfSymbol]:
    """The symbols by name, those that a library does not offer included, with their addresses in it.

    Raises:
        RuntimeModelError: as `read_elf`.
    """
    return _symbols(data, _sections(data)[2], _SYMTAB)


def _sections(data: memoryview) -> tuple[int, int, list[Section]]:
    """Type, machine and sections of an ELF file."""
    if len(data) < struct.calcsize(_HEADER) or bytes(data[:4]) != b"\x7fELF":
        raise _refuse("it is not an ELF file")
    fields = struct.unpack_from(_HEADER, data)
    identity, kind, machine, headers_at = fields[0], fields[1], fields[2], fields[6]
    entry_bytes, count, names_index = fields[11], fields[12], fields[13]
    if identity[4:6] != b"\x02\x01":
        raise _refuse("it is not 64-bit little-endian")
    if entry_bytes != struct.calcsize(_SECTION) or not names_index < count:
        raise _refuse("its section headers are malformed or stripped")
    table = _part(data, headers_at, count * entry_bytes)
    headers = list(struct.iter_unpack(_SECTION, table))
    names = _part(data, headers[names_index][4], headers[names_index][5])
    listed = [Section(_name(names, h[0]), h[1], offset=h[4], size=h[5], link=h[6]) for h in headers]
    for section in listed:
        if section.kind != _NOBITS:
            _part(data, section.offset, section.size)
    return kind, machine, listed


def section_bytes(data: memoryview, section: Section) -> memoryview:
    """The bytes of a section of an image that was read from the same data."""
    return _part(data, section.offset, section.size)


def _symbols(data: memoryview, sections: list[Section], kind: int) -> dict[str, ElfSymbol]:
    found: dict[str, ElfSymbol] = {}
    for section in sections:
        if section.kind != kind:
            continue
        rows = section_bytes(data, section)
        row_bytes = struct.calcsize(_SYMBOL)
        if len(rows) % row_bytes or len(rows) > _MAX_SYMBOLS * row_bytes:
            raise _refuse("its symbol table is malformed")
        if section.link >= len(sections):
            raise _refuse("its symbol table has no names")
        names = section_bytes(data, sections[section.link])
        for name_at, _, _, home, address, size in struct.iter_unpack(_SYMBOL, rows):
            name = _name(names, name_at)
            found[name] = ElfSymbol(name, home != 0, size, address)
    found.pop("", None)
    return found


def _part(data: memoryview, offset: int, size: int) -> memoryview:
    if offset + size > len(data):
        raise _refuse("a part lies outside the file; it may be truncated")
    return data[offset : offset + size]


def _name(names: memoryview, offset: int) -> str:
    text = bytes(names[offset : offset + _MAX_NAME])
    end = text.find(b"\0")
    if end < 0:
        raise _refuse("a name is too long or lies outside the file")
    return text[:end].decode("latin-1")


def _refuse(what: str) -> RuntimeModelError:
    return RuntimeModelError("XC7002", f"the file is not a compiled model: {what}")
