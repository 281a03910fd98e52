"""The memory of a foreign machine, laid out here: libraries with their relocations applied, data, and calls.

The machine only reads it to its place, makes the calls and gives back what it is asked for; its side of the layout is
`native/image.h`.
"""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

BASE = 0x2000000
"""Where the memory begins in every machine."""
ARGUMENTS = 32
"""The most arguments of a call."""
MISSING = 0xDEAD0000_0000
"""The address of functions that no library has: a call ends the machine."""

_HEADER, _CALL, _RANGE = "<6Q", f"<{1 + ARGUMENTS}Q", "<2Q"
_PAGE = 4096
_LOAD = 1
# Relocations of shared objects by ELF's machine number: address of the library, and of a symbol.
_RELATIVE = {62: 8, 183: 1027}
_SYMBOLIC = {62: (1, 6, 7), 183: (257, 1025, 1026)}


@dataclass
class Image:
    """Memory from `BASE` on, and what to do with it.

    Attributes:
        memory: what is given to the machine, but for calls and ranges.
        calls: (function, arguments) in order.
        ranges: (address, bytes) of what it gives back.
        heap: bytes for the libc of the machine to allocate from.
        missing: names that libraries ask for and none has.
    """

    memory: bytearray = field(default_factory=lambda: bytearray(struct.calcsize(_HEADER)))
    calls: list[tuple[int, Sequence[int]]] = field(default_factory=list)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    heap: int = 0
    missing: set[str] = field(default_factory=set)

    def place(self, data: bytes | memoryview, alignment: int = 64, offset: int = 0) -> int:
        """Put bytes at an address that is `offset` more than a multiple of `alignment`, and return it."""
        address = BASE + len(self.memory)
        address += (offset - address) % alignment
        self.memory += bytes(address - BASE - len(self.memory))
        self.memory += data
        return address

    def load(self, library: bytes, known: Mapping[str, int] | None = None) -> dict[str, int]:
        """Put a shared object to its place.

        Args:
            library: the file.
            known: addresses of what it may ask for, by name.

        Returns:
            The addresses of what it exports, by name.
        """
        elf = _SharedObject(library)
        end = max(at + in_memory for _, at, _, in_memory in elf.segments)
        base = self.place(bytes(end), _PAGE)
        for offset, at, in_file, _ in elf.segments:
            start = base - BASE + at
            self.memory[start : start + in_file] = library[offset : offset + in_file]
        for place, kind, symbol, addend in elf.relocations:
            value = base + addend
            if kind in _SYMBOLIC[elf.machine]:
                name, address = elf.symbols[symbol]
                if not address and name not in (known or {}):
                    self.missing.add(name)
                value = addend + (base + address if address else (known or {}).get(name, MISSING))
            elif kind != _RELATIVE[elf.machine]:
                raise ValueError(f"a relocation of kind {kind}")
            struct.pack_into("<Q", self.memory, base - BASE + place, value % 2**64)
        return {name: base + address for name, address in elf.symbols if address}

    def call(self, function: int, *arguments: int) -> None:
        """Have a function called with integers and addresses."""
        if len(arguments) > ARGUMENTS:
            raise ValueError(f"{len(arguments)} arguments; {ARGUMENTS} are possible")
        self.calls.append((function, arguments))

    def encode(self) -> bytes:
        """What is given to the machine."""
        padded = bytes(-len(self.memory) % 8)
        calls = b"".join(
            struct.pack(_CALL, function, *(a % 2**64 for a in arguments), *[0] * (ARGUMENTS - len(arguments)))
            for function, arguments in self.calls
        )  # fmt: skip
        calls_at = len(self.memory) + len(padded)
        ranges_at = calls_at + len(calls)
        ranges = [(BASE + calls_at, len(calls)), *self.ranges]
        listed = b"".join(struct.pack(_RANGE, *pair) for pair in ranges)
        end = ranges_at + len(listed)
        header = struct.pack(
            _HEADER, end, end + self.heap, BASE + calls_at, len(self.calls), BASE + ranges_at, len(ranges)
        )  # fmt: skip
        return header + self.memory[len(header) :] + padded + calls + listed

    def decode(self, given: bytes) -> tuple[list[int], list[bytes]]:
        """What the calls returned, and the content of the ranges, of what a machine gave back."""
        returned = [c[0] for c in struct.iter_unpack(_CALL, given[: self._call_bytes])]
        parts: list[bytes] = []
        at = self._call_bytes
        for _, size in self.ranges:
            parts.append(given[at : at + size])
            at += size
        return returned, parts

    @property
    def given_bytes(self) -> int:
        """The length of what a machine gives back."""
        return self._call_bytes + sum(size for _, size in self.ranges)

    @property
    def _call_bytes(self) -> int:
        return len(self.calls) * struct.calcsize(_CALL)


class _SharedObject:
    """What a loader has to know of a shared object (ELF64, little endian) that lld made.

    Attributes:
        machine: ELF's number of the architecture.
        segments: (offset in the file, address, bytes in the file, bytes in memory).
        symbols: (name, address) of the dynamic symbols in order; address 0 where it is asked for.
        relocations: (address, kind, index of the symbol, addend).
    """

    def __init__(self, data: bytes) -> None:
        header = struct.unpack_from("<16sHHIQQQIHHHHHH", data)
        self.machine: int = header[2]
        programs, sections = header[5], header[6]
        program_count, section_count, names_index = header[10], header[12], header[13]
        rows = [
            struct.unpack_from("<IIQQQQQQ", data, programs + 56 * i) for i in range(program_count)
        ]
        self.segments = [(r[2], r[3], r[5], r[6]) for r in rows if r[0] == _LOAD]
        heads = [
            struct.unpack_from("<IIQQQQIIQQ", data, sections + 64 * i) for i in range(section_count)
        ]
        parts = {
            _text(data, heads[names_index][4] + head[0]): data[head[4] : head[4] + head[5]]
            for head in heads
        }
        self.symbols = [
            (_text(parts[".dynstr"], name), value if home else 0)
            for name, _, _, home, value, _ in struct.iter_unpack("<IBBHQQ", parts[".dynsym"])
        ]
        self.relocations = [
            (place, info & 0xFFFFFFFF, info >> 32, addend)
            for section in (".rela.dyn", ".rela.plt")
            for place, info, addend in struct.iter_unpack("<QQq", parts.get(section, b""))
        ]


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()
