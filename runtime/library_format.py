"""The section of a compiled library that says what it is: hash, manifest, signature.

Its layout, by offset in bytes:

offset  0  magic
        8  length of the manifest in bytes, uint64
       16  offset of the signature, uint64
       24  zero
       32  SHA-256 of the file in which these 32 bytes are zero
       64  manifest, JSON, and a NUL; P_manifest points here
           signature, at a multiple of 8; see `Manifest.signature`
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from typing import Final

from xcompile.runtime.abi import Manifest
from xcompile.runtime.elf_image import ElfImage, read_elf, section_bytes
from xcompile.runtime.errors import RuntimeModelError

SECTION: Final = ".xcompile"
LAUNCHES_SECTION: Final = ".xcompile_launches"
"""The section, in the file only, in which a compiler says what the launches of a run are."""
DEVICE_SECTION: Final = ".xcompile_device"
"""The section, in the file only, with the kernels of a model that runs on a device; see `runtime/device.py`."""
MANIFEST_AT: Final = 64
ENTRY_POINTS: Final = ("manifest", "weights", "prepare", "run", "init")
"""What P_… of a library Python uses."""
C_FUNCTIONS: Final = (
    *(
        "create",
        "destroy",
        "shapes",
        "required_bytes",
        "run_model",
        "release",
        "set_pool",
        "status_text",
    ),
)
"""What P_… of a library C uses."""

_MAGIC: Final = b"XCMODEL\0"
_PREAMBLE: Final = "<8sQQQ"
_HASH_AT: Final = 32
_HASH_BYTES: Final = 32


@dataclass(frozen=True)
class Description:
    """The content of the section before the file is hashed.

    Attributes:
        data: the bytes.
        manifest_bytes: length of the manifest with its NUL.
        signature_at: offset of the signature.
        signature_bytes: its length.
    """

    data: bytes
    manifest_bytes: int
    signature_at: int
    signature_bytes: int


def describe(manifest: Manifest) -> Description:
    """Makes the section for a manifest."""
    text = manifest.to_json().encode()
    padded = text + bytes(8 - len(text) % 8)  # one NUL at least
    signature = manifest.signature()
    signature_at = MANIFEST_AT + len(padded)
    preamble = struct.pack(_PREAMBLE, _MAGIC, len(text), signature_at, 0)
    data = preamble + bytes(_HASH_BYTES) + padded + signature
    return Description(data, len(text) + 1, signature_at, len(signature))


def seal(data: memoryview) -> None:
    """Writes the hash of a linked library into it.

    Raises:
        RuntimeModelError: XC7002, the file has no such section.
    """
    begin = _hash_position(data, read_elf(data))
    data[begin : begin + _HASH_BYTES] = _hash(data, begin)


def verify(data: memoryview) -> tuple[ElfImage, Manifest]:
    """Reads what a library says of itself, without loading it.

    Raises:
        RuntimeModelError: XC7002 when the file is no compiled model or is not as it was written, XC7003 when
            it is one of another version.
    """
    image = read_elf(data)
    begin = _hash_position(data, image)
    stored = bytes(data[begin : begin + _HASH_BYTES])
    if stored != _hash(data, begin):
        raise RuntimeModelError(
            "XC7002",
            "the library is not as it was compiled: its hash differs",
            help="copy it again, do not strip it, or compile the model again",
        )
    content = section_bytes(data, image.sections[SECTION])
    length = struct.unpack_from(_PREAMBLE, content)[1]
    if length > len(content) - MANIFEST_AT:
        raise _refuse("its manifest is cut off")
    manifest = Manifest.from_json(bytes(content[MANIFEST_AT : MANIFEST_AT + length]))
    _check_symbols(image, manifest)
    return image, manifest


def _check_symbols(image: ElfImage, manifest: Manifest) -> None:
    for name in ENTRY_POINTS:
        symbol = image.symbols.get(f"{manifest.prefix}_{name}")
        if symbol is None or not symbol.defined:
            raise _refuse(f"it has no symbol {manifest.prefix}_{name}")
    if image.symbols[f"{manifest.prefix}_weights"].size < manifest.weights_bytes:
        raise _refuse("its weights are shorter than its manifest says")


def _hash_position(data: memoryview, image: ElfImage) -> int:
    section = image.sections.get(SECTION)
    if section is None or section.size < MANIFEST_AT:
        raise _refuse(f"it has no section {SECTION}")
    if bytes(section_bytes(data, section)[: len(_MAGIC)]) != _MAGIC:
        raise _refuse(f"its section {SECTION} is not one of this program")
    return section.offset + _HASH_AT


def _hash(data: memoryview, begin: int) -> bytes:
    digest = hashlib.sha256(data[:begin])
    digest.update(bytes(_HASH_BYTES))
    digest.update(data[begin + _HASH_BYTES :])
    return digest.digest()


def _refuse(what: str) -> RuntimeModelError:
    return RuntimeModelError("XC7002", f"the file is not a compiled model: {what}")
