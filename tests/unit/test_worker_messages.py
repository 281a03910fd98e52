"""The wire format between pool and workers."""

import pytest

from xcompile.compiler.codegen.job import Job, MachineSpec
from xcompile.compiler.worker.messages import Message, MessageError, MessageReader

MESSAGE = Message({"a": [1, "ß"], "b": None}, {"code": b"\0\xff" * 9, "text": b""})


def test_messages_survive_any_split_of_the_stream() -> None:
    stream = MESSAGE.encode() * 2
    for size in (1, 7, 1000):
        reader = MessageReader()
        parts = [stream[i : i + size] for i in range(0, len(stream), size)]
        assert [m for part in parts for m in reader.feed(part)] == [MESSAGE, MESSAGE]


@pytest.mark.parametrize(
    "stream",
    [
        b"g",
        b"garbage",
        MESSAGE.encode() + b"\n",
        b"XCW1" + b"\xff" * 12,
        b"XCW1\2\0\0\0" + b"\0" * 8 + b"{}",
        b"XCW1\2\0\0\0" + b"\0" * 8 + b"][",
        b"XCW1\x1a\0\0\0" + b"\0" * 8 + b'{"fields": 3, "blobs": {}}',
        b"XCW1\x22\0\0\0" + b"\0" * 8 + b'{"fields": {}, "blobs": {"a": 5}} ',
    ],
)
def test_what_is_not_a_message_is_an_error(stream: bytes) -> None:
    with pytest.raises(MessageError):
        list(MessageReader().feed(stream))


def test_jobs_survive_json() -> None:
    job = Job("m:f", {"n": [1]}, MachineSpec("t", "c", "+f"), "k", ("a", "b"), True, ("p.py",))
    assert Job.from_json(job.to_json()) == job
