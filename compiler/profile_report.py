"""The times of a model's launches: as text, and as a trace that Perfetto opens."""

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from xcompile.compiler.peak import Peak
from xcompile.compiler.support.errors import CompileError


@dataclass(frozen=True)
class Row:
    """One launch of the program.

    Attributes:
        node: the model nodes that it computes.
        family: the kernel's family.
        symbol: the kernel.
        seconds: median time that it takes in a run, all calls together; of the thread's own work when there is one
            thread, so that neighbours matter less.
        calls: how often a run launches it: once, but for branches and loops.
        flops: floating-point operations of a call; 0 when they depend on data.
        bytes: bytes of operands and results of a call; 0 when they depend on data.
    """

    node: str
    family: str
    symbol: str
    seconds: float
    calls: int
    flops: int
    bytes: int

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops * self.calls / self.seconds if self.seconds else 0.0

    @property
    def intensity(self) -> float:
        """Operations for each byte of operands and results."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def traffic(self) -> float:
        """Bytes a second."""
        return self.bytes * self.calls / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Span:
    """A part of a launch, as one thread did it.

    Attributes:
        row: which of the profile's rows it belongs to.
        part: its number.
        thread: the number of the thread.
        start: nanoseconds since the run began.
        stop: nanoseconds since the run began.
    """

    row: int
    part: int
    thread: int
    start: int
    stop: int


@dataclass(frozen=True)
class Profile:
    """The times of a model.

    Attributes:
        rows: a launch each, in the order of the program.
        spans: the parts of the launches of the last run.
        threads: what it ran on.
    """

    rows: tuple[Row, ...]
    spans: tuple[Span, ...]
    threads: int

    @property
    def seconds(self) -> float:
        """The time of all launches of a run."""
        return sum(row.seconds for row in self.rows)

    def table(self, peak: Peak) -> str:
        """The rows as text, the slowest first, with shares of the time and of what this machine can do."""
        total = self.seconds or 1.0
        titles = (
            f"{'ms':>9} {'share':>6} {'calls':>5} {'MFLOP':>9} {'MB':>7} {'FLOP/B':>7} "
            f"{'GFLOP/s':>8} {'of peak':>7} {'GB/s':>6} {'of peak':>7}  kernel"
        )
        lines = [titles]
        for row in sorted(self.rows, key=lambda r: -r.seconds):
            lines.append(
                f"{row.seconds * 1e3:9.4f} {row.seconds / total:6.1%} {row.calls:5} "
                f"{row.flops / 1e6:9.3f} {row.bytes / 1e6:7.3f} {row.intensity:7.1f} "
                f"{row.rate / 1e9:8.1f} {row.rate / peak.flops:7.1%} "
                f"{row.traffic / 1e9:6.1f} {row.traffic / peak.bandwidth:7.1%}  {row.family}: {_short(row.node)}"
            )
        generic = sum(r.seconds for r in self.rows if r.family == "fallback")
        lines.append(f"{total * 1e3:9.4f} total; {generic / total:.1%} of it in fallback kernels")
        lines.append(
            f"measured peaks on {self.threads} threads: {peak.flops / 1e9:.0f} GFLOP/s, "
            f"{peak.bandwidth / 1e9:.0f} GB/s from memory (float32; integers and caches are faster)"
        )
        return "\n".join(lines)

    def to_trace(self) -> dict[str, Any]:
        """The last run in the Trace Event Format, which Perfetto and chrome://tracing open."""
        threads = sorted({span.thread for span in self.spans})
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "xcompile"}}
        ]
        events += [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": t, "args": {"name": f"thread {t}"}}
            for t in threads
        ]
        for span in self.spans:
            row = self.rows[span.row]
            arguments = {
                "kernel": row.symbol,
                "part": span.part,
                "flops": row.flops,
                "bytes": row.bytes,
            }
            events.append(
                {
                    "ph": "X", "name": row.node, "cat": row.family, "pid": 1, "tid": span.thread,
                    "ts": span.start / 1e3, "dur": (span.stop - span.start) / 1e3, "args": arguments,
                }
            )  # fmt: skip
        return {"traceEvents": events, "displayTimeUnit": "ns"}

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Write the trace, whole or not at all.

        Raises:
            CompileError: XC7001 when it cannot be written.
        """
        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f"{target.name}.tmp")
            temporary.write_text(json.dumps(self.to_trace()), encoding="utf-8")
            temporary.replace(target)
        except OSError as error:
            raise CompileError("XC7001", f"{path} cannot be written: {error.strerror}") from error


def _short(node: str) -> str:
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in node)
    return text[:80]
