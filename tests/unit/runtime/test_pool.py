"""Partition, thread pool, and how many threads a process should have."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.unit.runtime import fake_model
from xcompile.compiler.target.host import host_target
from xcompile.runtime import native_library
from xcompile.runtime.native_library import Pool, cpu_has, default_threads, quota_cpus

Probe = Callable[..., tuple[int, list[int]]]


@pytest.fixture(scope="module")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Probe:
    folder = tmp_path_factory.mktemp("probe")
    fake_model.compile_c(fake_model.HERE / "pool_probe.c", folder / "probe.o")
    fake_model.zig("ld.lld", "-shared", str(folder / "probe.o"), "-o", str(folder / "probe.so"))
    function = ctypes.CDLL(str(folder / "probe.so")).probe
    function.restype = ctypes.c_int64
    parallel_for = native_library.symbols()["xc_parallel_for"]

    def run(
        pool: int | None,
        threads: int,
        extent: int,
        grain: int = 1,
        launches: int = 1,
        pause: int = 0,
        mode: int = 0,
    ) -> tuple[int, list[int]]:
        """Parts of a launch (-1: an error), and the first unit of each."""
        times, begins = np.zeros(max(extent, 1), np.int32), np.zeros(max(extent, 1), np.int64)
        scratch = np.zeros(64 * 256, np.uint8)
        numbers = map(ctypes.c_int64, (threads, extent, grain, launches, pause, mode))
        arrays = [ctypes.c_void_p(a.ctypes.data) for a in (times, begins, scratch)]
        parts = function(ctypes.c_void_p(parallel_for), ctypes.c_void_p(pool), *numbers, *arrays)
        return parts, sorted(set(begins.tolist())) if extent > 0 else []

    return run


@pytest.mark.parametrize(
    ("threads", "extent", "grain", "begins"),
    [
        (1, 10, 1, [0]),
        (2, 10, 1, [0, 5]),
        (3, 10, 1, [0, 4, 7]),
        (4, 10, 3, [0, 4, 7]),
        (4, 10, 6, [0]),
        (4, 3, 0, [0, 1, 2]),
        (4, 1, 1, [0]),
        (0, 10, 1, [0]),
        (1000, 512, 1, list(range(0, 512, 2))),
        (4, 0, 1, []),
        (4, -5, 1, []),
    ],
)
def test_parts_are_contiguous_even_and_at_least_a_grain(
    probe: Probe, threads: int, extent: int, grain: int, begins: list[int]
) -> None:
    for pool in (None, Pool(1), Pool(3), Pool(9)):
        address = pool.address if pool else None
        assert probe(address, threads, extent, grain) == (len(begins), begins)


def test_twenty_thousand_launches_do_each_unit_once(probe: Probe) -> None:
    pool = Pool(3)
    assert probe(pool.address, 5, 17, launches=20_000) == (5, [0, 4, 8, 11, 14])


def test_callers_that_find_the_pool_busy_get_the_same_parts(probe: Probe) -> None:
    pool = Pool(3)
    results: list[tuple[int, list[int]]] = []

    def call() -> None:
        results.append(probe(pool.address, 4, 16, launches=3000))

    callers = [threading.Thread(target=call) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [(4, [0, 4, 8, 12])] * 8


def test_parts_run_at_the_same_time(probe: Probe) -> None:
    pool = Pool(4)
    probe(pool.address, 4, 4)
    begin = time.monotonic()
    assert probe(pool.address, 4, 4, pause=100_000)[0] == 4
    assert time.monotonic() - begin < 0.35


def test_parts_compute_under_the_rounding_mode_of_the_caller(probe: Probe) -> None:
    pool = Pool(4)
    assert probe(pool.address, 4, 4, pause=1000, launches=5)[0] == 4
    assert probe(pool.address, 4, 4, pause=1000, launches=5, mode=1)[0] == 4
    assert probe(pool.address, 4, 4, pause=1000, launches=5)[0] == 4


def test_a_pool_ends_while_its_threads_sleep_and_while_they_spin(probe: Probe) -> None:
    for size in (1, 2, 4, 16) * 10:
        pool = Pool(size)
        assert probe(pool.address, size, 64)[0] == size
        del pool


def script(text: str, **environment: str) -> str:
    """The output of a Python program that runs on its own."""
    preamble = "import os, sys, threading, time\nfrom tests.unit.runtime import fake_model\nfrom pathlib import Path\n"
    done = subprocess.run(
        [sys.executable, "-c", preamble + text],
        cwd=fake_model.ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def model_code(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Lines that make `run(n)`, which is true when a model on a pool of four threads is right."""
    library = fake_model.bare_library(tmp_path_factory.mktemp("bare"))
    return f"""
from xcompile.runtime.executable import Executable
from xcompile.runtime.native_library import Pool
entry = fake_model.bare_entry(Path({str(library)!r}))
model = Executable(entry, fake_model.MANIFEST, fake_model.HALF_WEIGHTS, threads=4, pool=Pool(4))
def run(n):
    data = fake_model.inputs(n)
    got, wanted = model.run(data), fake_model.expected(**data)
    return all(got[name].tobytes() == wanted[name].tobytes() for name in wanted)
def threads():
    return len(os.listdir("/proc/self/task"))
"""


def test_a_forked_process_gets_threads_of_its_own(model_code: str) -> None:
    text = """
assert run(64) and threads() == 4
for generation in range(3):
    child = os.fork()
    if child == 0:
        ok = threads() == 1 and all(run(n) for n in range(200)) and threads() == 4
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert run(64) and threads() == 4
"""
    script(model_code + text)


def test_a_fork_in_the_middle_of_a_run_harms_neither_process(model_code: str) -> None:
    text = """
stop = False
def call():
    while not stop:
        assert run(5000)
assert run(64)  # imports what numpy leaves for later
callers = [threading.Thread(target=call, daemon=True) for _ in range(3)]
for caller in callers:
    caller.start()
for _ in range(20):
    time.sleep(0.003)
    child = os.fork()
    if child == 0:
        os._exit(0 if all(run(n) for n in range(0, 400, 20)) else 1)
    assert os.waitpid(child, 0)[1] == 0
stop = True
for caller in callers:
    caller.join()
assert run(64)
"""
    script(model_code + text, PYTHONWARNINGS="ignore")


def test_idle_threads_use_no_processor_time(model_code: str) -> None:
    text = """
assert run(4096) and threads() == 4
time.sleep(0.05)
before = time.process_time()
time.sleep(0.5)
print(time.process_time() - before)
"""
    assert float(script(model_code + text)) < 0.02


def test_signals_are_left_to_the_threads_of_the_program(model_code: str) -> None:
    text = """
assert run(64)
for task in os.listdir("/proc/self/task"):
    status = Path(f"/proc/self/task/{task}/status").read_text()
    blocked = int(status.split("SigBlk:")[1].split()[0], 16)
    print("main" if int(task) == os.getpid() else "pool", bool(blocked & 1 << 1))
"""
    assert sorted(script(model_code + text).split("\n")[:-1]) == ["main False"] + ["pool True"] * 3


COUNT = "from xcompile.runtime.native_library import default_threads\nprint(default_threads())"


def test_the_default_is_no_more_than_affinity_and_option_allow() -> None:
    cpus = len(os.sched_getaffinity(0))
    assert 1 <= default_threads() <= cpus
    assert script("os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + COUNT) == "1\n"
    assert script(COUNT, XCOMPILE_THREADS="1") == "1\n"
    for useless in ("1000", "0", "-3", "many", ""):
        assert script(COUNT, XCOMPILE_THREADS=useless) == script(COUNT)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_quota_of_version_two_is_the_least_of_the_group_and_those_around_it(
    tmp_path: Path,
) -> None:
    memberships = "0::/a/b/c\n"
    assert quota_cpus(memberships, tmp_path) is None
    write(tmp_path / "a/b/c/cpu.max", "max 100000\n")
    assert quota_cpus(memberships, tmp_path) is None
    write(tmp_path / "a/cpu.max", "250000 100000\n")
    assert quota_cpus(memberships, tmp_path) == 3
    write(tmp_path / "a/b/c/cpu.max", "50000 100000\n")
    assert quota_cpus(memberships, tmp_path) == 1
    write(tmp_path / "cpu.max", "10000 100000")
    assert quota_cpus("0::/not/mounted/here", tmp_path) == 1


def test_the_quota_of_version_one_is_read_where_the_controller_is_mounted(tmp_path: Path) -> None:
    memberships = "3:cpuset:/x\n2:cpu,cpuacct:/docker/1\n1:name=systemd:/\n"
    write(tmp_path / "cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n")
    write(tmp_path / "cpu,cpuacct/docker/1/cpu.cfs_quota_us", "-1\n")
    assert quota_cpus(memberships, tmp_path) is None
    write(tmp_path / "cpu,cpuacct/docker/1/cpu.cfs_quota_us", "200000\n")
    assert quota_cpus(memberships, tmp_path) == 2
    assert quota_cpus("3:cpuset,cpuacct:/docker/1\n", tmp_path) is None
    write(tmp_path / "unified/cpu.max", "100000 100000")
    assert quota_cpus(memberships + "0::/\n", tmp_path) == 1


@pytest.mark.parametrize(
    "memberships",
    ["", "\n\n", ":", "::", "0:", "0::", "x" * 20_000, "0::/" + "a/" * 10_000, "0::../..\n"],
)
def test_damaged_control_group_files_mean_no_quota(tmp_path: Path, memberships: str) -> None:
    assert quota_cpus(memberships, tmp_path / "nothing") is None
    write(tmp_path / "cpu.max", "99999999999999999999999 0 rubbish")
    assert quota_cpus("0::/", tmp_path) is None


FLAGS = {  # LLVM's names, and those of /proc/cpuinfo
    "avx2": "avx2",
    "avx512bf16": "avx512_bf16",
    "avx512f": "avx512f",
    "avx512vnni": "avx512_vnni",
    "avxvnni": "avx_vnni",
    "f16c": "f16c",
    "fma": "fma",
    "lzcnt": "abm",
    "sse2": "sse2",
    "sse4.2": "sse4_2",
}


@pytest.mark.skipif(native_library.host_architecture() != "x86_64", reason="the names are x86's")
def test_features_agree_with_the_system() -> None:
    flags = Path("/proc/cpuinfo").read_text().split("flags")[1].split("\n")[0].split()
    assert {name: cpu_has(name) for name in FLAGS} == {
        name: flag in flags for name, flag in FLAGS.items()
    }
    assert cpu_has("no such feature") is None


def test_every_feature_of_this_host_is_known_to_the_runtime() -> None:
    assert [name for name in host_target().features if not cpu_has(name)] == []
