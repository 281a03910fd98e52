"""The pool: starts workers, gives them jobs, turns their deaths into errors, replaces them."""

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xcompile.compiler.codegen.cache import ObjectCache
from xcompile.compiler.codegen.job import Job, JobResult
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.worker.messages import Message, MessageError, MessageReader

Outcome = JobResult | CompileError
Progress = Callable[[Job, Outcome, int, int], None]

# -P and the path of this process: a worker sees the same modules, and none of a folder it happens to run in.
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from xcompile.compiler.worker.process import serve; serve()"
)
_STDERR_BYTES = 16384
_PHASES = {"emit": "emitting", "lower": "lowering", "compile": "compiling"}


class WorkerPool:
    """Worker processes for jobs that may do anything.

    Workers start when the first jobs come and stay until `close`, which a `with` block does. One thread at a
    time may use a pool.
    """

    def __init__(
        self,
        count: int | None = None,
        *,
        timeout_s: float = 120.0,
        memory_limit_bytes: int = 8 << 30,
        cache: ObjectCache | None = None,
        reproducers: Path | None = None,
        keep_reproducers: bool = True,
    ) -> None:
        """Start nothing yet.

        Args:
            count: the most workers at a time; as many as there are cores by default.
            timeout_s: the longest a job may take, in seconds.
            memory_limit_bytes: the largest address space of a worker.
            cache: where results are looked up and kept.
            reproducers: the folder in which a failed job leaves a folder of its own; by default the system's
                folder for temporary files.
            keep_reproducers: whether failed jobs leave anything.
        """
        self._count = count or len(os.sched_getaffinity(0))
        self._limits = {"timeout_s": timeout_s, "memory_bytes": memory_limit_bytes}
        self._cache = cache
        self._reproducers = reproducers
        self._keep_reproducers = keep_reproducers
        self._workers: list[_Worker] = []
        self._close = weakref.finalize(self, _stop_all, self._workers, os.getpid())

    def __enter__(self) -> "WorkerPool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and wait for them; harmless when done twice."""
        self._close()

    def map(self, jobs: Sequence[Job], progress: Progress | None = None) -> list[JobResult]:
        """Return the results of `jobs` in order; see `outcomes`.

        Raises:
            CompileError: of the first job that failed, after all others are done.
        """
        results: list[JobResult] = []
        for outcome in self.outcomes(jobs, progress):
            if isinstance(outcome, CompileError):
                raise outcome
            results.append(outcome)
        return results

    def outcomes(self, jobs: Sequence[Job], progress: Progress | None = None) -> list[Outcome]:
        """Do `jobs` and return each one's result or error, in order. Identical jobs are done once.

        Args:
            jobs: what to do.
            progress: called after each job with the job, its outcome, the number of jobs done and their total.
        """
        groups: dict[str, list[Job]] = {}
        for job in jobs:
            groups.setdefault(job.identity(), []).append(job)
        done: dict[str, Outcome] = {}
        count = 0

        def finish(identity: str, outcome: Outcome) -> None:
            nonlocal count
            done[identity] = outcome
            for job in groups[identity]:
                count += 1
                if progress is not None:
                    progress(job, outcome, count, len(jobs))

        waiting: deque[Job] = deque()
        for identity, (job, *_) in groups.items():
            cached = self._cache.get(job) if self._cache is not None else None
            if cached is None:
                waiting.append(job)
            else:
                finish(identity, cached)
        if waiting:
            self._run(waiting, finish)
        return [done[job.identity()] for job in jobs]

    def _run(self, waiting: deque[Job], finish: Callable[[str, Outcome], None]) -> None:
        """Feed the workers until every job has an outcome; whatever interrupts this ends the busy workers."""
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or any(worker.task for worker in self._workers):
                    self._feed(waiting, selector)
                    self._wait(selector)
                    for worker in list(self._workers):
                        if worker.task is not None and worker.task.outcome is not None:
                            self._finish(worker, worker.task, worker.task.outcome, finish)
            finally:
                for worker in [w for w in self._workers if w.task is not None]:
                    self._discard(worker)

    def _feed(self, waiting: deque[Job], selector: selectors.BaseSelector) -> None:
        for worker in [w for w in self._workers if w.task is None and not w.alive()]:
            self._discard(worker)
        while waiting:
            worker = next((w for w in self._workers if w.task is None), None)
            if worker is None:
                if len(self._workers) >= self._count:
                    return
                worker = _Worker()
                self._workers.append(worker)
            worker.start(waiting.popleft(), self._limits, selector)

    def _wait(self, selector: selectors.BaseSelector) -> None:
        """Wait for news of the workers or for the next deadline, and take in what there is."""
        tasks = [worker.task for worker in self._workers if worker.task is not None]
        remaining = min(task.deadline for task in tasks) - time.monotonic()
        for key, _ in selector.select(max(remaining, 0)):
            key.data()
        now = time.monotonic()
        for task in tasks:
            if task.outcome is None and now > task.deadline:
                limit = self._limits["timeout_s"]
                task.fail("XC4002", f"{task.doing} took longer than {limit:g} s", retire=True)

    def _finish(
        self,
        worker: "_Worker",
        task: "_Task",
        outcome: Outcome,
        finish: Callable[[str, Outcome], None],
    ) -> None:
        if task.retire:
            self._discard(worker)
        else:
            worker.release()
        if isinstance(outcome, CompileError):
            outcome = self._explain(task, outcome)
        elif self._cache is not None:
            self._cache.put(task.job, outcome)
        finish(task.job.identity(), outcome)

    def _explain(self, task: "_Task", error: CompileError) -> CompileError:
        """Return the error with kernel, nodes and reproducer."""
        message = error.message
        if task.job.kernel:
            message = f"kernel '{task.job.kernel}': {message}"
        node = error.node or ", ".join(task.job.nodes[:4]) or None
        advice = error.help
        if self._keep_reproducers:
            folder = task.write_reproducer(self._reproducers, error)
            advice = f"{advice}; reproducer: {folder}" if advice else f"reproducer: {folder}"
        return CompileError(error.code, message, node=node, pass_name=error.pass_name, help=advice)

    def _discard(self, worker: "_Worker") -> None:
        worker.stop()
        self._workers.remove(worker)


@dataclass
class _Task:
    """A job that a worker has.

    Attributes:
        job: the job.
        deadline: when it must be done, by the monotonic clock.
        phase: the phase it is in.
        known: texts that the worker has sent on the way, by name.
        stderr: the end of what the worker has written to standard error.
        outcome: its result or error, once there is one.
        retire: whether the worker must go afterwards.
    """

    job: Job
    deadline: float
    phase: str
    known: dict[str, bytes]
    stderr: bytes = b""
    outcome: Outcome | None = None
    retire: bool = False

    @property
    def doing(self) -> str:
        return _PHASES.get(self.phase, self.phase)

    def fail(self, code: str, message: str, *, retire: bool) -> None:
        self.outcome = CompileError(code, message)
        self.retire = retire

    def receive(self, message: Message) -> None:
        """Take in what the worker says."""
        fields = message.fields
        if "phase" in fields:
            self.phase = str(fields["phase"])
            self.known.update(message.blobs)
        elif "error" in fields:
            self.known["trace"] = str(fields["trace"]).encode()
            self.outcome = CompileError.from_json(fields["error"])
            self.retire = bool(fields.get("retire"))
        else:
            texts = {
                name: message.blobs[name].decode()
                for name in ("text", "assembly")
                if name in message.blobs
            }
            self.outcome = JobResult(
                message.blobs.get("code", b""),
                fields["metadata"],
                seconds=fields["seconds"],
                **texts,
            )

    def died(self, status: int) -> None:
        """Say why the worker is gone."""
        text = self.stderr.decode(errors="replace")
        if "out of memory" in text or "bad_alloc" in text:
            self.fail("XC4003", f"{self.doing} ran out of memory", retire=True)
            return
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        message = f"the worker process died while {self.doing} ({how})"
        reason = _last_words(text)
        self.fail("XC4001", f"{message}: {reason}" if reason else message, retire=True)

    def write_reproducer(self, parent: Path | None, error: CompileError) -> Path:
        """Write all that is known about the failure into a new folder and return it."""
        if parent is not None:
            parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="xcompile-job-", dir=parent))
        (folder / "job.json").write_text(json.dumps(self.job.to_json(), indent=2))
        (folder / "error.txt").write_text(
            f"{error}\n\nRun it again: python -m xcompile.compiler.worker job.json\n"
        )
        names = {"text": "emitted.mlir", "ir": "module.ll", "trace": "trace.txt"}
        for name, data in {**self.known, "stderr": self.stderr}.items():
            if data:
                (folder / names.get(name, f"{name}.txt")).write_bytes(data)
        return folder


class _Worker:
    """One process and its three pipes."""

    def __init__(self) -> None:
        path = json.dumps(sys.path)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
            )
        except OSError as error:
            message = f"a worker process cannot be started: {error.strerror}"
            raise CompileError("XC4001", message) from error
        self._files = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._descriptors = [file.fileno() for file in self._files if file is not None]
        for descriptor in self._descriptors:
            os.set_blocking(descriptor, False)
        self._reader = MessageReader()
        self._selector: selectors.BaseSelector | None = None
        self._unsent = memoryview(b"")
        self.task: _Task | None = None

    def alive(self) -> bool:
        return self._process.poll() is None

    def start(self, job: Job, limits: Mapping[str, Any], selector: selectors.BaseSelector) -> None:
        """Give the worker a job and have the selector call back when it says something."""
        deadline = time.monotonic() + float(limits["timeout_s"])
        self.task = _Task(job, deadline, "emit", {})
        self._unsent = memoryview(Message({"job": job.to_json(), **limits}).encode())
        self._selector = selector
        stdin, stdout, stderr = self._descriptors
        selector.register(stdin, selectors.EVENT_WRITE, self._write)
        selector.register(stdout, selectors.EVENT_READ, self._read)
        selector.register(stderr, selectors.EVENT_READ, self._read_stderr)

    def release(self) -> None:
        """Let go of the task that is done."""
        self.task = None
        selector, self._selector = self._selector, None
        if selector is None:
            return
        for descriptor in self._descriptors:
            if descriptor in selector.get_map():
                selector.unregister(descriptor)

    def stop(self) -> None:
        """End the process at once and wait for it."""
        self.release()
        self._process.kill()
        self._process.wait()
        for file in self._files:
            if file is not None:
                file.close()

    def _write(self) -> None:
        assert self._selector is not None
        try:
            self._unsent = self._unsent[os.write(self._descriptors[0], self._unsent) :]
        except BrokenPipeError:
            self._unsent = memoryview(b"")  # it died: reading will tell
        if not self._unsent:
            self._selector.unregister(self._descriptors[0])

    def _read(self) -> None:
        assert self.task is not None
        data = os.read(self._descriptors[1], 1 << 20)
        if not data:
            self._read_stderr()
            self.task.died(self._exit_status())
            return
        try:
            for message in self._reader.feed(data):
                self.task.receive(message)
        except (MessageError, KeyError, TypeError, ValueError) as error:
            self.task.fail(
                "XC4009", f"the worker's answer cannot be understood: {error}", retire=True
            )

    def _exit_status(self) -> int:
        try:
            return self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:  # it has closed its pipe and lives on
            self._process.kill()
            return self._process.wait()

    def _read_stderr(self) -> None:
        assert self.task is not None
        assert self._selector is not None
        try:
            while data := os.read(self._descriptors[2], 1 << 16):
                self.task.stderr = (self.task.stderr + data)[-_STDERR_BYTES:]
        except BlockingIOError:
            return
        if self._descriptors[2] in self._selector.get_map():
            self._selector.unregister(self._descriptors[2])


def _last_words(stderr: str) -> str:
    """The line that says most about a death: LLVM's own, else the interpreter's, else the last."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    for mark in ("LLVM ERROR", "error:", "Fatal Python error"):
        for line in lines:
            if mark in line:
                return line
    return lines[-1] if lines else ""


def _stop_all(workers: list[_Worker], owner: int) -> None:
    while workers and os.getpid() == owner:  # a forked copy of the pool owns no processes
        workers.pop().stop()
