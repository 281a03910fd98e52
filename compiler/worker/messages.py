"""Messages between a pool and its workers: a JSON object and named blobs of bytes, over a pipe.

On the wire: the magic, the length of the JSON text (4 bytes) and of all blobs together (8 bytes), little endian,
then the text, which lists the blobs' names and lengths in `"blobs"`, then the blobs.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

_MAGIC = b"XCW1"
_HEAD = struct.Struct("<4sIQ")
MAX_BYTES = 1 << 30


class MessageError(Exception):
    """The bytes are not a message: something else wrote into the pipe."""


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        fields: JSON values.
        blobs: bytes, by name.
    """

    fields: Mapping[str, Any]
    blobs: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    def encode(self) -> bytes:
        """Return the message as bytes.

        Raises:
            TypeError, ValueError: a field is not JSON.
        """
        lengths = {name: len(blob) for name, blob in self.blobs.items()}
        text = json.dumps({"fields": self.fields, "blobs": lengths}).encode()
        head = _HEAD.pack(_MAGIC, len(text), sum(lengths.values()))
        return b"".join((head, text, *self.blobs.values()))


class MessageReader:
    """Collects the bytes of a pipe and gives out whole messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Message]:
        """Add `data` and yield the messages that are complete with it.

        Raises:
            MessageError: the bytes are not messages.
        """
        self._bytes += data
        while (message := self._take()) is not None:
            yield message

    def _take(self) -> Message | None:
        if not _MAGIC.startswith(self._bytes[:4]):
            raise MessageError("no message begins here")
        if len(self._bytes) < _HEAD.size:
            return None
        _, text_length, blob_length = _HEAD.unpack_from(self._bytes)
        end = _HEAD.size + text_length + blob_length
        if end > MAX_BYTES:
            raise MessageError("the message is too long")
        if len(self._bytes) < end:
            return None
        body = bytes(self._bytes[_HEAD.size : end])
        del self._bytes[:end]
        return _decode(body, text_length)


def _decode(body: bytes, text_length: int) -> Message:
    try:
        decoded = json.loads(body[:text_length])
        fields = dict(cast(Mapping[str, Any], decoded["fields"]))
        lengths = cast(dict[str, int], decoded["blobs"])
        blobs: dict[str, bytes] = {}
        start = text_length
        for name, length in lengths.items():
            blobs[name] = body[start : start + length]
            start += length
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MessageError(f"a message cannot be decoded: {error}") from error
    if start != len(body):
        raise MessageError("a message's lengths contradict each other")
    return Message(fields, blobs)
