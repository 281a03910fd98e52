"""The cache of compiled models: right or a miss, whole or absent, and bounded."""

import os
from pathlib import Path

import pytest

from xcompile.compiler.artifact import Artifact, KernelFacts
from xcompile.compiler.artifact_cache import ArtifactCache
from xcompile.compiler.codegen.program.program import Check, Launch, Place, Program
from xcompile.compiler.source import facts_of
from xcompile.compiler.support.dims import symbol
from xcompile.runtime.abi import Manifest, TensorSpec

KEY = "ab" * 32
OTHER = "cd" * 32


def artifact(weights: bytes = bytes(range(256))) -> Artifact:
    n = symbol("N")
    step = Launch(
        "xk",
        (Place("input", 0), Place("output", 0)),
        (n,),
        n * 3,
        8,
        64,
        "node",
        n * 2,
        (n * 12, n * 12),
    )
    shapes = ((n, 3),)
    return Artifact(
        manifest=Manifest(
            "model",
            (TensorSpec("x", "float32", ("N", "3")),),
            (TensorSpec("y", "float32", ("N", "3")),),
            table_slots=4,
            weights_bytes=len(weights),
            checks=("N is not M",),
        ),
        objects={"b": b"second", "a": b"", "c": b"third"},
        weights=weights,
        program=Program(
            "model",
            inputs=shapes,
            outputs=shapes,
            arena=0,
            checks=(Check(n, 4, "N is not M"),),
            steps=(step,),
            prepared=16,
        ),
        architecture="x86_64",
        kernels={"xk": KernelFacts("map", "unroll=2")},
        explanations=("cse: nothing",),
    )


def test_an_artifact_comes_back_equal(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    assert cache.get(KEY, None) is None
    cache.put(KEY, artifact(), {})
    assert cache.get(KEY, None) == artifact()
    assert cache.get(OTHER, None) is None


def test_weights_are_mapped_at_a_cache_line_and_not_copied(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    cache.put(KEY, artifact(bytes(1 << 20)), {})
    found = cache.get(KEY, None)
    assert found is not None
    assert type(found.weights.obj).__name__ == "mmap"
    assert str(tmp_path) in Path("/proc/self/maps").read_text()


def test_an_artifact_without_weights_comes_back(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    cache.put(KEY, artifact(b""), {})
    assert cache.get(KEY, None) == artifact(b"")


@pytest.mark.parametrize("name", ["artifact.json", "objects.bin", "weights.bin"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "missing"])
def test_a_damaged_entry_is_a_miss_and_is_replaced(tmp_path: Path, name: str, damage: str) -> None:
    cache = ArtifactCache(tmp_path)
    cache.put(KEY, artifact(), {})
    file = tmp_path / KEY[:2] / KEY[2:] / name
    data = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        flipped = data[:-1] + bytes([data[-1] ^ 1])
        file.write_bytes({"flipped": flipped, "cut": data[:-1], "empty": b""}[damage])
    assert cache.get(KEY, None) is None
    cache.put(KEY, artifact(), {})
    assert cache.get(KEY, None) == artifact()


def test_an_entry_under_another_key_is_a_miss(tmp_path: Path) -> None:
    cache = ArtifactCache(tmp_path)
    cache.put(KEY, artifact(), {})
    (tmp_path / OTHER[:2]).mkdir()
    (tmp_path / KEY[:2] / KEY[2:]).rename(tmp_path / OTHER[:2] / OTHER[2:])
    assert cache.get(OTHER, None) is None


def test_external_data_must_be_what_it_was(tmp_path: Path) -> None:
    cache, model = ArtifactCache(tmp_path / "cache"), tmp_path / "model"
    model.mkdir()
    (model / "data").write_bytes(b"0123")
    cache.put(KEY, artifact(), facts_of({"data": b"0123"}))
    assert cache.get(KEY, model) == artifact()
    assert cache.get(KEY, None) is None
    for other in (b"0124", b"012", b""):
        (model / "data").write_bytes(other)
        assert cache.get(KEY, model) is None
    (model / "elsewhere").write_bytes(b"0123")
    (model / "data").unlink()
    (model / "data").symlink_to(model / "elsewhere")
    assert cache.get(KEY, model) is None


def test_nothing_half_written_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cache = ArtifactCache(tmp_path)
    monkeypatch.setattr(Path, "write_bytes", full)
    cache.put(KEY, artifact(), {})
    assert cache.get(KEY, None) is None
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_entries_unused_for_longest_go_first(tmp_path: Path) -> None:
    keys = [f"{i:064x}" for i in range(4)]
    cache = ArtifactCache(tmp_path, max_bytes=250_000)
    for age, key in enumerate(keys[:3]):
        cache.put(key, artifact(bytes(70_000)), {})
        folder = tmp_path / key[:2] / key[2:]
        os.utime(folder, (1000 + age, 1000 + age))
    assert cache.get(keys[0], None) is not None  # used, and so the youngest
    cache.put(keys[3], artifact(bytes(70_000)), {})
    kept = [cache.get(key, None) is not None for key in keys]
    assert kept == [True, False, True, True]
