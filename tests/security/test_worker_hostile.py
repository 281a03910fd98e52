"""Whatever a job does, it ends in one error that names kernel and node, and the next job works."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from xcompile.compiler.codegen.cache import ObjectCache
from xcompile.compiler.codegen.job import Job, JobResult, MachineSpec
from xcompile.compiler.codegen.loader import LoadedObjects
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.plugins import plugin_module_name
from xcompile.compiler.worker.pool import WorkerPool

FILE = Path(__file__).with_name("hostile_emitters.py")
HOST = MachineSpec(llvm.get_process_triple(), llvm.get_host_cpu_name())
BASELINE = MachineSpec("x86_64-unknown-linux-gnu", "x86-64")
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def job(function: str, machine: MachineSpec = HOST, **payload: object) -> Job:
    return Job(
        f"{plugin_module_name(FILE)}:{function}",
        {"symbol": "k", "factor": 0.5, **payload},
        machine,
        kernel=f"kernel_{function}",
        nodes=("Conv_17", "Relu_18"),
        load=(str(FILE),),
    )


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    folder = tmp_path_factory.mktemp("reproducers")
    with WorkerPool(1, timeout_s=4.0, memory_limit_bytes=1 << 30, reproducers=folder) as pool:
        yield pool


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("raises", "XC4004", "ZeroDivisionError: no such"),
        ("calls_exit", "XC4004", "SystemExit: goodbye"),
        ("exits_at_once", "XC4001", "exit status 7"),
        ("recurses", "XC4004", "RecursionError"),
        ("loops", "XC4002", "emitting took longer than 4 s"),
        ("loops_in_native_code", "XC4002", "lowering took longer"),
        ("segfaults", "XC4001", "SIGSEGV"),
        ("aborts", "XC4001", "SIGABRT"),
        ("eats_memory", "XC4003", "out of memory"),
        ("eats_memory_in_native_code", "XC4003", "out of memory"),
        ("writes_into_the_pipe", "XC4009", "cannot be understood"),
        ("closes_the_pipe", "XC4001", "died while emitting"),
        ("returns_a_number", "XC4004", "returned int"),
        ("returns_what_is_not_json", "XC4004", "not JSON serializable"),
        ("returns_what_is_not_text", "XC4004", "NoneType"),
        ("nests_deep", "XC4004", "deeper than 256"),
        ("does_not_parse", "XC4004", "not valid"),
        ("does_not_lower", "XC4005", "math.erf"),
        ("names_an_unknown_intrinsic", "XC4001", "while lowering"),
        ("differs_from_its_announcement", "XC4004", "3 buffers"),
    ],
)
def test_a_hostile_job_is_one_error_and_the_next_job_works(
    pool: WorkerPool, function: str, code: str, reason: str
) -> None:
    failed, fine = pool.outcomes([job(function), job("echo", x=1)])
    assert isinstance(failed, CompileError)
    assert failed.code == code
    assert reason in failed.message
    assert f"kernel 'kernel_{function}'" in failed.message
    assert failed.node == "Conv_17, Relu_18"
    assert "\n" not in str(failed)
    assert isinstance(fine, JobResult)
    assert fine.metadata["x"] == 1


def test_an_instruction_the_machine_lacks_is_one_error(pool: WorkerPool) -> None:
    failed, fine = pool.outcomes([job("cannot_be_selected", BASELINE), job("scale")])
    assert isinstance(failed, CompileError)
    assert failed.code == "XC4001"
    assert "Cannot select" in failed.message
    assert isinstance(fine, JobResult)


def test_printing_harms_nothing(pool: WorkerPool) -> None:
    (result,) = pool.map([job("prints")])
    assert result.code[:4] == b"\x7fELF"


def test_a_reproducer_holds_the_job_and_what_was_known(tmp_path: Path) -> None:
    with WorkerPool(1, reproducers=tmp_path) as pool:
        (failed,) = pool.outcomes([job("cannot_be_selected", BASELINE)])
    assert isinstance(failed, CompileError)
    (folder,) = tmp_path.iterdir()
    assert str(folder) in str(failed)
    assert "ssse3" in (folder / "emitted.mlir").read_text()
    assert "define void @f" in (folder / "module.ll").read_text()
    assert "Cannot select" in (folder / "stderr.txt").read_text()
    again = subprocess.run(
        [sys.executable, "-m", "xcompile.compiler.worker", str(folder / "job.json")],
        capture_output=True,
        text=True,
        check=False,
        cwd=FILE.parents[2],
    )
    assert again.returncode == -signal.SIGABRT
    assert "Cannot select" in again.stderr


def test_no_reproducer_is_kept_when_none_is_wanted(tmp_path: Path) -> None:
    with WorkerPool(1, reproducers=tmp_path, keep_reproducers=False) as pool:
        pool.outcomes([job("raises")])
    assert list(tmp_path.iterdir()) == []


def test_a_compiled_kernel_computes_and_workers_agree_on_its_bytes() -> None:
    wanted = job("scale", factor=0.1)
    with WorkerPool(1) as first, WorkerPool(1) as second:
        (one,), (two,) = first.map([wanted]), second.map([wanted])
    assert one.code == two.code
    assert one.metadata == {"extent": 0.1}
    assert list(one.seconds) == ["emit", "lower", "compile"]
    loaded = LoadedObjects([one.code], {}, ["k_task"])
    x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    record = np.array([x.ctypes.data, y.ctypes.data, 16], np.int64)
    TASK(loaded.address("k_task"))(record.ctypes.data, 0, 16, None)
    np.testing.assert_array_equal(y, x * np.float32(0.1))


def test_results_come_in_order_and_equal_jobs_run_once() -> None:
    jobs = [job("echo", x=i % 5) for i in range(20)]
    seen: list[tuple[int, int]] = []
    with WorkerPool(2) as pool:
        results = pool.map(jobs, lambda job, outcome, done, total: seen.append((done, total)))
    assert [r.metadata["x"] for r in results] == [i % 5 for i in range(20)]
    assert sorted(seen) == [(i + 1, 20) for i in range(20)]
    assert len({r.metadata["pid"] for r in results}) <= 2


def test_map_raises_the_first_error_after_the_others_are_done() -> None:
    done: list[str] = []
    with WorkerPool(2, keep_reproducers=False) as pool, pytest.raises(CompileError, match="luck"):
        pool.map(
            [job("raises"), job("aborts"), job("echo")], lambda job, *_: done.append(job.kernel)
        )
    assert sorted(done) == ["kernel_aborts", "kernel_echo", "kernel_raises"]


def test_a_listing_comes_with_the_emitted_text() -> None:
    from dataclasses import replace

    with WorkerPool(1) as pool:
        (result,) = pool.map([replace(job("scale"), listing=True)])
    assert "vector.load" in (result.text or "")
    assert "k_task:" in (result.assembly or "")


def test_an_error_of_the_emitter_keeps_its_code(tmp_path: Path) -> None:
    plugin = tmp_path / "picky.py"
    plugin.write_text(
        "from xcompile.compiler.support.errors import CompileError\n"
        "def refuse(payload):\n"
        "    raise CompileError('XC4007', 'mr is 40', node='MatMul_3', help='take less')\n"
    )
    refused = Job(f"{plugin_module_name(plugin)}:refuse", {}, HOST, load=(str(plugin),))
    with WorkerPool(1, keep_reproducers=False) as pool:
        (error,) = pool.outcomes([refused])
    assert str(error) == "XC4007 mr is 40, at node 'MatMul_3' (help: take less)"


def test_an_edited_plugin_is_loaded_again(tmp_path: Path) -> None:
    plugin = tmp_path / "edited.py"
    answers: list[object] = []
    with WorkerPool(1) as pool:
        for value in (1, 2):
            plugin.write_text(f"def answer(payload):\n    return {{'x': {value}}}\n")
            name = f"{plugin_module_name(plugin)}:answer"
            (result,) = pool.map([Job(name, {}, HOST, load=(str(plugin),))])
            answers.append(result.metadata["x"])
    assert answers == [1, 2]


def test_a_broken_plugin_is_one_error(tmp_path: Path) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text("import no_such_module_at_all\n")
    with WorkerPool(1, keep_reproducers=False) as pool:
        (error,) = pool.outcomes([Job("broken:f", {}, HOST, load=(str(plugin),))])
    assert isinstance(error, CompileError)
    assert error.code == "XC3009"


def test_a_cached_result_needs_no_worker(tmp_path: Path) -> None:
    with WorkerPool(1, cache=ObjectCache(tmp_path)) as pool:
        (fresh,) = pool.map([job("scale")])
    with WorkerPool(1, cache=ObjectCache(tmp_path), timeout_s=0.0) as pool:
        (cached,) = pool.map([job("scale")])
    assert cached.code == fresh.code
    assert cached.metadata == fresh.metadata
    assert not cached.seconds


def test_closing_leaves_no_process() -> None:
    with WorkerPool(2) as pool:
        results = pool.map([job("echo", x=i) for i in range(8)])
    for pid in {r.metadata["pid"] for r in results}:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


PARENT = """
import sys
sys.path.insert(0, {root!r})
from xcompile.compiler.codegen.job import Job, MachineSpec
from xcompile.compiler.worker.pool import WorkerPool
pool = WorkerPool(1)
jobs = [Job({emitter!r}, {{"s": s}}, MachineSpec(""), load=({file!r},)) for s in (0, 60)]
try:
    pool.map(jobs, lambda *_: print(pool._workers[0]._process.pid, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.parametrize(("sent", "said"), [(signal.SIGKILL, ""), (signal.SIGINT, "interrupted\n")])
def test_workers_end_with_their_parent(sent: signal.Signals, said: str) -> None:
    emitter = f"{plugin_module_name(FILE)}:sleep"
    script = PARENT.format(root=str(FILE.parents[2]), emitter=emitter, file=str(FILE))
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    time.sleep(0.2)
    parent.send_signal(sent)
    assert parent.communicate(timeout=60)[0] == said
    deadline = time.monotonic() + 30
    while Path(f"/proc/{worker}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


def test_a_forked_copy_of_the_pool_leaves_the_workers_alone() -> None:
    with WorkerPool(1) as pool:
        (before,) = pool.map([job("echo")])
        child = os.fork()
        if child == 0:
            pool.close()
            os._exit(0)
        os.waitpid(child, 0)
        (after,) = pool.map([job("echo")])
    assert before.metadata["pid"] == after.metadata["pid"]
