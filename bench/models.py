"""Whole models against other engines, in one interleaved run.

    python -m bench.models [NAME ...] [--threads 1 2] [--rounds 15] [--record FILE]

Engines take turns; in each round every engine runs a few times and its median counts. A round during which other
processes used more than 3 % of the CPU is dropped and counted. What is printed are medians over the quiet rounds, in
milliseconds, and each engine's ratio to the best of the others.
"""

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import corpus
from bench.entries import ENTRIES
from bench.peers import ENGINES, Runner

QUIET = 0.03
"""The share of the machine's CPU time that other processes may use in a round."""


MNN = (
    "pp-ocr-det", "pp-ocr-rec", "pp-ocr-cls", "orientation", "opennsfw", "ddddocr-det", "mlsd", *corpus.TOPOLOGIES,
)  # fmt: skip
"""Models that MNN converts and runs; they have one input of float32."""


def foreign_time() -> tuple[float, float]:
    """CPU seconds that other processes have used, and seconds of all CPUs together."""
    fields = [int(f) for f in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
    tick = os.sysconf("SC_CLK_TCK")
    busy = sum(fields[:3]) + sum(fields[5:8])
    own = os.times()
    return busy / tick - (own.user + own.system), sum(fields[:8]) / tick


def compare(
    runners: Mapping[str, Runner], rounds: int, *, patience: int = 8, quiet: float = QUIET
) -> tuple[dict[str, list[float]], int]:
    """Times of each engine in seconds, one a quiet round, and how many rounds were dropped."""
    repeats = {name: _repeats(run) for name, run in runners.items()}
    times: dict[str, list[float]] = {name: [] for name in runners}
    dropped = kept = 0
    while kept < rounds and dropped < patience * rounds:
        foreign, total = foreign_time()
        found = {name: _median(run, repeats[name]) for name, run in runners.items()}
        foreign_after, total_after = foreign_time()
        if foreign_after - foreign > quiet * max(total_after - total, 1e-9):
            dropped += 1
            continue
        kept += 1
        for name, seconds in found.items():
            times[name].append(seconds)
    return times, dropped


def parser_of(description: str | None, names: Sequence[str]) -> argparse.ArgumentParser:
    """The arguments of benchmarks that compare engines on models of the corpus."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(names))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--noisy", action="store_true", help="count every round, also on a busy machine"
    )
    parser.add_argument("--record", type=Path)
    return parser


def measured(
    runners: Mapping[str, Runner], rounds: int, *, noisy: bool
) -> tuple[dict[str, float], int]:
    """Median milliseconds of each engine, NaN without a quiet round, and how many rounds were dropped."""
    times, dropped = compare(runners, rounds, quiet=1.0 if noisy else QUIET)
    medians = {
        engine: 1e3 * statistics.median(found) if found else math.nan
        for engine, found in times.items()
    }
    return medians, dropped


def write_record(path: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows with the machine that they were measured on, where a path is given."""
    if path is not None:
        machine = {"machine": platform.machine(), "cpus": os.cpu_count(), "cpu": _cpu_name()}
        path.write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")


def _repeats(run: Runner) -> int:
    """As many runs as take about 0.15 s, at least 2."""
    run()
    start = time.perf_counter()
    run()
    return max(2, min(50, int(0.15 / max(time.perf_counter() - start, 1e-6))))


def _median(run: Runner, repeats: int) -> float:
    time.sleep(0.01)
    found: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def main() -> None:
    """Compare the engines on each model and each number of threads."""
    parser = parser_of(__doc__, list(ENTRIES))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--engines", nargs="+", default=list(ENGINES))
    arguments = parser.parse_args()
    records: list[dict[str, Any]] = []
    for name in arguments.names:
        feeds, path = ENTRIES[name](1), corpus.model(name)
        chosen = [e for e in arguments.engines if e != "mnn" or name in MNN]
        for threads in arguments.threads:
            records.append(
                _row(name, path, feeds, chosen, threads, arguments.rounds, noisy=arguments.noisy)
            )
    for threads in arguments.threads:
        summarize([r for r in records if r["threads"] == threads], threads)
    write_record(arguments.record, records)


def summarize(rows: Sequence[Mapping[str, Any]], threads: int) -> None:
    """Print the geometric mean of the ratios to the best other engine, and the worst of them."""
    ratios = {row["model"]: row["ratio"] for row in rows if row["ratio"] is not None}
    if ratios:
        worst = max(ratios, key=lambda name: ratios[name])
        print(
            f"{len(ratios)} models, threads {threads}: ours / best other, geometric mean "
            f"{statistics.geometric_mean(ratios.values()):.2f}, worst {ratios[worst]:.2f} ({worst})"
        )


def _row(
    name: str,
    path: Path,
    feeds: Mapping[str, np.ndarray],
    engines: list[str],
    threads: int,
    rounds: int,
    *,
    noisy: bool,
) -> dict[str, Any]:
    runners: dict[str, Runner] = {}
    for engine in engines:
        try:
            runners[engine] = ENGINES[engine](path, feeds, threads)
            runners[engine]()
        except ImportError as missing:
            print(f"  {engine} is not installed ({missing})")
        except Exception as error:
            if engine == "xcompile":
                raise
            runners.pop(engine, None)
            print(f"  {engine} refuses {name}: {str(error).splitlines()[0]}")
    found, dropped = measured(runners, rounds, noisy=noisy)
    medians = {engine: ms for engine, ms in found.items() if not math.isnan(ms)}
    others = [ms for engine, ms in medians.items() if engine != "xcompile"]
    ratio = medians["xcompile"] / min(others) if others and "xcompile" in medians else None
    shown = "  ".join(f"{engine} {ms:.2f}" for engine, ms in medians.items()) or "no quiet round"
    compared = "" if ratio is None else f"  | ours / best other {ratio:.2f}"
    print(
        f"{name} threads {threads}: {shown}{compared}  ({dropped} rounds dropped)",
        flush=True,
    )
    return {
        "model": name,
        "threads": threads,
        "ms": medians,
        "ratio": ratio,
        "dropped": dropped,
        "rounds": rounds,
    }


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return ""


if __name__ == "__main__":
    main()
