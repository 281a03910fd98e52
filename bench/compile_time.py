"""How long compiling takes, cold and warm, and how much memory all processes together need.

    python -m bench.compile_time [NAME ...] [--record FILE]
    python -m bench.compile_time --scaling

With `--scaling` made-up models of 1,000 and 8,000 ops are compiled instead, and what is printed is the
ratio of the CPU times.

Each figure is of a fresh process: cold with an empty cache, warm with the cache that the cold one left. Memory is
the largest sum,
sampled every 50 ms, of the proportional set sizes of the process and its workers.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import onnx

from bench import corpus, large
from bench.entries import ENTRIES

_PROGRAM = (
    "import sys, time; start = time.perf_counter(); import xcompile; m = xcompile.compile(sys.argv[1]); "
    "m.executable; print(time.perf_counter() - start)"
)


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for each in found:
        try:
            text = Path(f"/proc/{each}/task/{each}/children").read_text()
        except OSError:
            continue
        found += [int(child) for child in text.split()]
    return found


def memory(pid: int) -> int:
    """Bytes of memory of a process and all below it, shared pages counted once."""
    total = 0
    for each in tree(pid):
        try:
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
    return total


def compile_once(model: Path, cache: Path) -> tuple[float, int]:
    """Seconds from the start of the process to a model ready to run, and the most memory in bytes."""
    start, most = time.perf_counter(), 0
    environment = {**os.environ, "XCOMPILE_CACHE": str(cache)}
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, str(model)], env=environment, stdout=subprocess.PIPE
    )
    while process.poll() is None:
        most = max(most, memory(process.pid))
        time.sleep(0.05)
    if process.returncode:
        raise RuntimeError(f"compiling {model} failed")
    return time.perf_counter() - start, most


def scaling(kind: str) -> tuple[float, float]:
    """CPU seconds of compiling a made-up model of 1,000 ops and one of 8,000, all processes together."""
    found: list[float] = []
    for count in (1000, 8000):
        with tempfile.TemporaryDirectory() as scratch:
            model = Path(scratch) / "model.onnx"
            onnx.save(large.MODELS[kind](count), model)
            before = os.times()
            compile_once(model, Path(scratch) / "cold")
            after = os.times()
        spent = (after.children_user, after.children_system)
        found.append(sum(spent) - before.children_user - before.children_system)
    return found[0], found[1]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=list(ENTRIES))
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    if arguments.scaling:
        for kind in large.MODELS:
            small, big = scaling(kind)
            print(
                f"{kind}: 1,000 ops {small:.2f} s, 8,000 ops {big:.2f} s, ratio {big / small:.2f}",
                flush=True,
            )
        return
    rows: list[dict[str, object]] = []
    for name in arguments.names:
        path = corpus.model(name)
        with tempfile.TemporaryDirectory() as cache:
            cold, memory_cold = compile_once(path, Path(cache))
            warm, memory_warm = compile_once(path, Path(cache))
        print(
            f"{name}: cold {cold:.2f} s, {memory_cold / 2**20:.0f} MiB; "
            f"warm {warm:.2f} s, {memory_warm / 2**20:.0f} MiB",
            flush=True,
        )
        rows.append(
            {
                "model": name,
                "cold_s": cold,
                "warm_s": warm,
                "cold_bytes": memory_cold,
                "warm_bytes": memory_warm,
            }
        )
    if arguments.record:
        arguments.record.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
