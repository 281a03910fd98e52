"""The worker: reads jobs from a pipe, calls emitters, lowers, compiles, answers.

MLIR and LLVM are imported when the first job needs them, so a worker is up in a few hundredths of a second.
"""

import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from xcompile.compiler.codegen.job import EmittedKernel, EmittedModule, Job
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.plugins import load_plugin
from xcompile.compiler.worker.messages import Message, MessageReader

T = TypeVar("T")
Send = Callable[[Message], None]


def serve() -> None:
    """Answer jobs from standard input until it ends. What jobs print goes to standard error."""
    source, sink = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pool's matter
    faulthandler.enable()
    threading.Thread(target=_exit_with_parent, args=(os.getppid(),), daemon=True).start()

    def send(message: Message) -> None:
        data = memoryview(message.encode())
        while data:
            data = data[os.write(sink, data) :]

    reader = MessageReader()
    while data := os.read(source, 1 << 20):
        for message in reader.feed(data):
            _limit(message.fields["timeout_s"], message.fields["memory_bytes"])
            answer = _Run(Job.from_json(message.fields["job"]), send).answer()
            signal.setitimer(signal.ITIMER_REAL, 0)
            send(answer)


def reproduce(path: str) -> int:
    """Run the job in the file at `path` here, print how it ends, and return an exit status."""
    job = Job.from_json(json.loads(Path(path).read_text()))
    answer = _Run(job, lambda message: None).answer()
    sys.stdout.write(f"{json.dumps(answer.fields, indent=2)}\n")
    return 1 if "error" in answer.fields else 0


@dataclass
class _Run:
    """The way of one job through the phases.

    Attributes:
        job: the job.
        send: where news of a finished phase goes, so that a death can be told with what was known.
        seconds: the time of each phase that has ended.
    """

    job: Job
    send: Send
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def answer(self) -> Message:
        """Do the job and return the message that answers it; nothing that the job raises escapes."""
        try:
            message = self._work()
            message.encode()  # the emitter's metadata may not be JSON
            return message
        except CompileError as error:
            return Message({"error": error.to_json(), "trace": ""})
        except MemoryError:
            error = CompileError("XC4003", "the worker process ran out of memory")
            return Message({"error": error.to_json(), "trace": "", "retire": True})
        except BaseException as error:  # noqa: BLE001 - an emitter may be any code, and may call sys.exit
            text = f"{self.job.emitter} failed: {type(error).__name__}: {error}"
            trace = "".join(traceback.format_exception(error))
            failure = CompileError("XC4004", text[:2000])
            return Message({"error": failure.to_json(), "trace": trace[-20000:]})

    def _work(self) -> Message:
        emitted = self._phase("emit", self._emit)
        if isinstance(emitted, dict):
            return Message({"metadata": emitted, "seconds": self.seconds})
        self.send(Message({"phase": "lower"}, {"text": emitted.text.encode()}))
        ir = self._phase("lower", lambda: _lower(emitted, self.job))
        self.send(Message({"phase": "compile"}, {"ir": ir.encode()}))
        code, assembly = self._phase("compile", lambda: _compile(ir, self.job))
        blobs = {"code": code}
        if assembly is not None:
            blobs |= {"text": emitted.text.encode(), "assembly": assembly.encode()}
        return Message({"metadata": emitted.metadata, "seconds": self.seconds}, blobs)

    def _emit(self) -> EmittedKernel | EmittedModule | dict[str, Any]:
        for path in self.job.load:
            load_plugin(Path(path))
        module, _, name = self.job.emitter.partition(":")
        emitted = getattr(importlib.import_module(module), name)(self.job.payload)
        if isinstance(emitted, (EmittedKernel, EmittedModule, dict)):
            return cast(EmittedKernel | EmittedModule | dict[str, Any], emitted)
        raise TypeError(f"it returned {type(emitted).__name__}, not an EmittedKernel")

    def _phase(self, name: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        self.seconds[name] = time.perf_counter() - start
        return result


def _lower(emitted: EmittedKernel | EmittedModule, job: Job) -> str:
    from xcompile.compiler.codegen.lowering import lower_device, lower_kernel, lower_module

    if isinstance(emitted, EmittedModule):
        return lower_module(emitted.text)
    if job.machine.is_device:
        return lower_device(
            emitted.text,
            emitted.symbol,
            buffers=emitted.buffers,
            sizes=emitted.sizes,
            threads=emitted.threads,
        )
    return lower_kernel(
        emitted.text,
        emitted.symbol,
        buffers=emitted.buffers,
        sizes=emitted.sizes,
        scratch=emitted.scratch,
    )


def _compile(ir: str, job: Job) -> tuple[bytes, str | None]:
    from xcompile.compiler.codegen.llvm import compile_object, compile_ptx

    if job.machine.is_device:
        ptx = compile_ptx(ir, job.machine)
        return ptx, ptx.decode() if job.listing else None
    return compile_object(ir, job.machine, listing=job.listing)


def _limit(timeout_s: float, memory_bytes: int) -> None:
    """Bound this process by the system's means, which also work when native code holds the interpreter."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(
        signal.ITIMER_REAL, 2 * timeout_s + 5
    )  # the pool acts first, unless it is gone
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
