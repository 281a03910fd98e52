"""Compiled models on disk, under a key of everything they depend on.

An entry is a folder of three files: `artifact.json`, whose first line is the digest of the rest, `objects.bin` and
`weights.bin`, which is mapped into memory and never copied. It appears whole or not at all, so many processes may use
one folder.

The cache never fails a compile: what cannot be read, or is damaged, is a miss, and what cannot be written is lost.
Entries are trusted like the compiler's own files, so the folder must belong to the user alone.
"""

import contextlib
import hashlib
import json
import mmap
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from xcompile.compiler.artifact import Artifact, KernelFacts, NodeStatement
from xcompile.compiler.codegen.cuda.assembler import AssemblyFacts
from xcompile.compiler.codegen.program.program import Program
from xcompile.compiler.request import Request
from xcompile.compiler.source import FileFacts, identify
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.options import CACHE
from xcompile.runtime.abi import Manifest
from xcompile.runtime.errors import RuntimeModelError

_UNREADABLE = (OSError, ValueError, KeyError, TypeError, CompileError, RuntimeModelError)


class ArtifactCache:
    """A folder of compiled models, bounded in size; those that have not been used for longest go first."""

    def __init__(self, folder: Path, *, max_bytes: int = 4 << 30) -> None:
        """Use `folder`, which is made when first needed, up to about `max_bytes`."""
        self._folder = folder
        self._max_bytes = max_bytes

    def get(self, key: str, model_folder: Path | None) -> Artifact | None:
        """The artifact of a key, if there is one.

        Args:
            key: 64 hexadecimal digits.
            model_folder: where the model's external data lies; None when it has none.
        """
        folder = self._path(key)
        try:
            fields = _read_fields(folder / "artifact.json")
            if fields["key"] != key or not _same_files(fields["external"], model_folder):
                return None
            artifact = _artifact(fields, folder)
            os.utime(folder)
        except _UNREADABLE:
            return None
        return artifact

    def put(self, key: str, artifact: Artifact, external: Mapping[str, FileFacts]) -> None:
        """Keep an artifact.

        Args:
            key: 64 hexadecimal digits.
            artifact: what to keep.
            external: what the model's files of external data were, by their place in its folder.
        """
        with contextlib.suppress(OSError):
            path = self._path(key)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=path.parent, suffix=".tmp"))
            try:
                _write(temporary, key, artifact, external)
                if path.exists():  # it was no hit, so it is damaged or of other external data
                    path.rename(temporary / "before")
                temporary.rename(path)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
            shutil.rmtree(path / "before", ignore_errors=True)
            self._make_room()

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / key[2:]

    def _make_room(self) -> None:
        entries: list[tuple[int, int, Path]] = []
        for path in self._folder.glob("??/*"):
            with contextlib.suppress(OSError):  # another process made room too
                size = sum(file.stat().st_size for file in path.iterdir())
                entries.append((path.stat().st_mtime_ns, size, path))
        total = sum(size for _, size, _ in entries)
        if total <= self._max_bytes:
            return
        for _, size, path in sorted(entries):
            shutil.rmtree(path, ignore_errors=True)
            total -= size
            if total <= self._max_bytes * 9 // 10:
                return


def _write(folder: Path, key: str, artifact: Artifact, external: Mapping[str, FileFacts]) -> None:
    code = [
        (symbol, kind, data)
        for symbol, kinds in artifact.device_code.items()
        for kind, data in kinds.items()
    ]
    objects = b"".join([*artifact.objects.values(), *(data for _, _, data in code)])
    fields = {
        "key": key,
        "architecture": artifact.architecture,
        "explanations": artifact.explanations,
        "kept_float": artifact.kept_float,
        "statements": [asdict(statement) for statement in artifact.statements],
        "external": external,
        "kernels": {symbol: asdict(facts) for symbol, facts in artifact.kernels.items()},
        "manifest": artifact.manifest.to_json(),
        "objects": [[name, len(data)] for name, data in artifact.objects.items()],
        "assembly": {
            symbol: {arch: asdict(facts) for arch, facts in kinds.items()}
            for symbol, kinds in artifact.assembly.items()
        },
        "device_code": [[symbol, kind, len(data)] for symbol, kind, data in code],
        "objects_digest": _digest(objects),
        "program": artifact.program.to_json(),
        "weights_digest": _digest(artifact.weights),
    }
    text = json.dumps(fields).encode()
    (folder / "weights.bin").write_bytes(artifact.weights)
    (folder / "objects.bin").write_bytes(objects)
    (folder / "artifact.json").write_bytes(_digest(text).encode() + b"\n" + text)


def _read_fields(path: Path) -> dict[str, Any]:
    digest, _, text = path.read_bytes().partition(b"\n")
    if digest.decode() != _digest(text):
        raise ValueError("the entry is damaged")
    return json.loads(text)


def _artifact(fields: Mapping[str, Any], folder: Path) -> Artifact:
    objects, weights = _map(folder / "objects.bin"), _map(folder / "weights.bin")
    found = _digest(objects), _digest(weights)
    if found != (fields["objects_digest"], fields["weights_digest"]):
        raise ValueError("the entry is damaged")
    lengths = [length for _, length in fields["objects"]]
    lengths += [length for _, _, length in fields["device_code"]]
    parts = (bytes(objects[a:b]) for a, b in pairwise(accumulate(lengths, initial=0)))
    made = {name: next(parts) for name, _ in fields["objects"]}
    device_code: dict[str, dict[str, bytes]] = {}
    for symbol, kind, _ in fields["device_code"]:
        device_code.setdefault(symbol, {})[kind] = next(parts)
    return Artifact(
        manifest=Manifest.from_json(fields["manifest"]),
        objects=made,
        device_code=device_code,
        assembly={
            symbol: {arch: AssemblyFacts(**facts) for arch, facts in kinds.items()}
            for symbol, kinds in fields["assembly"].items()
        },
        weights=weights,
        program=Program.from_json(fields["program"]),
        architecture=fields["architecture"],
        kernels={symbol: KernelFacts(**facts) for symbol, facts in fields["kernels"].items()},
        explanations=tuple(fields["explanations"]),
        kept_float=tuple((node, why) for node, why in fields["kept_float"]),
        statements=tuple(NodeStatement(**statement) for statement in fields["statements"]),
    )


def _map(path: Path) -> memoryview:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _digest(data: memoryview | bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _same_files(external: Mapping[str, tuple[int, str]], folder: Path | None) -> bool:
    """Whether the files of external data are what they were when the model was compiled."""
    if folder is None:
        return not external
    return all(_is_file(folder / name, size, digest) for name, (size, digest) in external.items())


def _is_file(path: Path, size: int, digest: str) -> bool:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size != size:
            return False
        return hashlib.file_digest(file, "sha256").hexdigest() == digest


class Slot:
    """The place that the artifact of one compile has in the cache; without a folder or a key there is none.

    Args:
        source: the model.
        request: what to compile it for, and how.
    """

    def __init__(self, source: object, request: Request) -> None:
        folder = request.options[CACHE]
        self._source = source
        self._cache = ArtifactCache(folder / "models") if folder is not None else None
        self._identity = identify(source) if folder is not None else None
        described = request.key() if self._identity is not None else None
        if self._identity is not None and described is not None:
            self._key = _digest(f"{self._identity.digest} {described}".encode())
        else:
            self._key = None

    def get(self) -> Artifact | None:
        """The artifact of an equal compile, if it was kept."""
        if self._cache is None or self._key is None or self._identity is None:
            return None
        return self._cache.get(self._key, self._identity.folder)

    def put(self, artifact: Artifact, external: Mapping[str, FileFacts]) -> None:
        """Keep the artifact that was made, unless the model's file has changed meanwhile."""
        if self._cache is None or self._key is None or identify(self._source) != self._identity:
            return
        self._cache.put(self._key, artifact, external)
