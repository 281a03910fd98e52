"""Results of jobs on disk, under a key of everything they depend on.

The cache never fails a compile: what cannot be read, or is damaged, is a miss, and what cannot be written is lost.
Entries are trusted like the compiler's own files, so the folder must belong to the user alone.
"""

import contextlib
import hashlib
import json
import os
import struct
import tempfile
from pathlib import Path
from typing import Any, cast

from xcompile.compiler.codegen.job import Job, JobResult
from xcompile.compiler.support.fingerprint import code_fingerprint, package_fingerprint

_MAGIC = b"XCO1"
_HEAD = struct.Struct(
    "<4s32sQI"
)  # magic, digest of what follows the head, length of it, length of the JSON


class ObjectCache:
    """A folder of results, bounded in size; the entries that have not been used for longest go first.

    Many processes may use one folder: entries appear whole or not at all.
    """

    def __init__(self, folder: Path, *, max_bytes: int = 2 << 30) -> None:
        """Use `folder`, which is made when first needed, up to about `max_bytes`."""
        self._folder = folder
        self._max_bytes = max_bytes
        self._size: int | None = None

    def get(self, job: Job) -> JobResult | None:
        """Return the result of an identical job, if there is one, without the times it took."""
        try:
            path = self._path(job)
            result = _unpack(path.read_bytes())
            os.utime(path)
        except (OSError, ValueError, KeyError, TypeError, struct.error):
            return None
        return result

    def put(self, job: Job, result: JobResult) -> None:
        """Keep a result."""
        with contextlib.suppress(OSError):
            path = self._path(job)
            data = _pack(result)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_whole(path, data)
            self._grow(len(data))

    def _path(self, job: Job) -> Path:
        digest = hashlib.sha256(code_fingerprint().encode())
        digest.update(job.identity().encode())
        module = job.emitter.partition(":")[0]
        if not module.startswith("xcompile."):  # whose sources are in the first fingerprint
            digest.update(package_fingerprint(module).encode())
        for plugin in job.load:
            digest.update(hashlib.sha256(Path(plugin).read_bytes()).digest())
        key = digest.hexdigest()
        return self._folder / key[:2] / f"{key[2:]}.xco"

    def _grow(self, written: int) -> None:
        """Count what was written and make room when the bound is passed."""
        if self._size is not None:
            self._size += written
        if self._size is not None and self._size <= self._max_bytes:
            return
        entries = [(stat.st_mtime_ns, stat.st_size, path) for path, stat in self._entries()]
        self._size = sum(size for _, size, _ in entries)
        if self._size <= self._max_bytes:
            return
        for _, size, path in sorted(entries):
            path.unlink(missing_ok=True)
            self._size -= size
            if self._size <= self._max_bytes * 9 // 10:
                return

    def _entries(self) -> list[tuple[Path, os.stat_result]]:
        found: list[tuple[Path, os.stat_result]] = []
        for path in self._folder.glob("??/*"):
            with contextlib.suppress(FileNotFoundError):  # another process made room too
                found.append((path, path.stat()))
        return found


def _write_whole(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _pack(result: JobResult) -> bytes:
    fields = {"metadata": result.metadata, "text": result.text, "assembly": result.assembly}
    text = json.dumps(fields, sort_keys=True).encode()
    body = text + result.code
    return _HEAD.pack(_MAGIC, hashlib.sha256(body).digest(), len(body), len(text)) + body


def _unpack(data: bytes) -> JobResult:
    """Return the result in `data`; raises ValueError and others when it is damaged."""
    magic, digest, length, text_length = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC or length != len(body) or digest != hashlib.sha256(body).digest():
        raise ValueError("not a whole entry of this format")
    fields = cast(dict[str, Any], json.loads(body[:text_length]))
    return JobResult(body[text_length:], fields["metadata"], fields["text"], fields["assembly"])
