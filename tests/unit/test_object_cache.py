"""The cache of object files: right or a miss, bounded, and keyed by all that matters."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from xcompile.compiler.codegen import cache
from xcompile.compiler.codegen.cache import ObjectCache
from xcompile.compiler.codegen.job import Job, JobResult, MachineSpec
from xcompile.compiler.support.fingerprint import (
    code_fingerprint,
    folder_digest,
    package_fingerprint,
)

JOB = Job("m:f", {"n": 3}, MachineSpec("x86_64-unknown-linux-gnu", "", "+avx2"), kernel="k")
RESULT = JobResult(b"\x7fELF\0\xff", {"extent": "d0*8"}, "text", None, {"emit": 0.1})


def only_file(folder: Path) -> Path:
    (path,) = folder.glob("*/*")
    return path


def test_a_result_comes_back_without_its_times(tmp_path: Path) -> None:
    objects = ObjectCache(tmp_path)
    assert objects.get(JOB) is None
    objects.put(JOB, RESULT)
    assert ObjectCache(tmp_path).get(JOB) == replace(RESULT, seconds={})


@pytest.mark.parametrize(
    "other",
    [
        replace(JOB, emitter="m:g"),
        replace(JOB, payload={"n": 4}),
        replace(JOB, listing=True),
        replace(JOB, machine=MachineSpec("x86_64-unknown-linux-gnu", "", "+avx512f")),
        replace(JOB, machine=MachineSpec("x86_64-unknown-linux-gnu", "znver4", "+avx2")),
    ],
)
def test_another_job_is_a_miss(tmp_path: Path, other: Job) -> None:
    objects = ObjectCache(tmp_path)
    objects.put(JOB, RESULT)
    assert objects.get(other) is None


def test_names_for_errors_do_not_matter(tmp_path: Path) -> None:
    objects = ObjectCache(tmp_path)
    objects.put(JOB, RESULT)
    assert objects.get(replace(JOB, kernel="other", nodes=("Conv_1",))) is not None


def test_a_changed_plugin_or_compiler_is_a_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text("a = 1")
    job = replace(JOB, load=(str(plugin),))
    objects = ObjectCache(tmp_path / "cache")
    objects.put(job, RESULT)
    assert objects.get(job) is not None
    plugin.write_text("a = 2")
    assert objects.get(job) is None
    plugin.write_text("a = 1")
    monkeypatch.setattr(cache, "code_fingerprint", lambda: "another version")
    assert objects.get(job) is None


def test_a_changed_package_of_another_party_is_a_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "some_party"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "emit.py").write_text("a = 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    job = replace(JOB, emitter="some_party.emit:f")
    objects = ObjectCache(tmp_path / "cache")
    objects.put(job, RESULT)
    assert objects.get(job) is not None
    (package / "emit.py").write_text("a = 2")
    package_fingerprint.cache_clear()
    assert objects.get(job) is None


@pytest.mark.parametrize("position", [0, 5, 40, 50, -1])
def test_one_damaged_byte_anywhere_is_a_miss(tmp_path: Path, position: int) -> None:
    objects = ObjectCache(tmp_path)
    objects.put(JOB, RESULT)
    data = bytearray(only_file(tmp_path).read_bytes())
    data[position] ^= 1
    only_file(tmp_path).write_bytes(data)
    assert objects.get(JOB) is None


@pytest.mark.parametrize("length", [0, 3, 48, 60])
def test_a_truncated_entry_is_a_miss(tmp_path: Path, length: int) -> None:
    objects = ObjectCache(tmp_path)
    objects.put(JOB, RESULT)
    only_file(tmp_path).write_bytes(only_file(tmp_path).read_bytes()[:length])
    assert objects.get(JOB) is None


def test_the_entries_unused_for_longest_make_room(tmp_path: Path) -> None:
    objects = ObjectCache(tmp_path, max_bytes=5000)
    jobs = [replace(JOB, payload={"n": i}) for i in range(6)]
    for age, job in enumerate(jobs[:4]):
        objects.put(job, JobResult(bytes(1000), {}))
        newest = max(tmp_path.glob("*/*"), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (age, age))
    assert objects.get(jobs[0]) is not None
    objects.put(jobs[4], JobResult(bytes(1000), {}))
    kept = [objects.get(job) is not None for job in jobs]
    assert kept == [True, False, True, True, True, False]
    assert not list(tmp_path.glob("*/*.tmp"))


def test_a_folder_that_cannot_be_written_loses_the_entry(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    objects = ObjectCache(tmp_path / "file")
    objects.put(JOB, RESULT)
    assert objects.get(JOB) is None


def test_the_fingerprint_sees_names_and_bytes_of_sources(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1")
    before = folder_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("")
    assert folder_digest(tmp_path) == before
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    renamed = folder_digest(tmp_path)
    (tmp_path / "b.py").write_text("x = 2")
    assert len({before, renamed, folder_digest(tmp_path)}) == 3
    assert len(code_fingerprint()) == 64
