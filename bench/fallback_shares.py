"""How much of each model's time kernels of last resort take.

    python -m bench.fallback_shares [NAME…]

prints a line a model: its milliseconds with one thread, the share of fallback kernels in them, and the largest ones.
"""

import sys
from collections.abc import Iterable

import xcompile
from bench import corpus
from bench.entries import ENTRIES
from xcompile.compiler.profile import measure
from xcompile.compiler.profile_report import Row

REPEATS = 9
MOST_NAMED = 3


def fallbacks(rows: Iterable[Row]) -> list[Row]:
    """The rows of kernels that have no schedule of their own, slowest first."""
    return sorted((r for r in rows if r.family == "fallback"), key=lambda r: -r.seconds)


def line(name: str) -> str:
    """The line of one model."""
    model = xcompile.compile(corpus.model(name), threads=1)
    feeds = ENTRIES[name](1)
    rows = measure(
        model.artifact, [feeds[s.name] for s in model.artifact.manifest.inputs], repeats=REPEATS
    ).rows
    total, slow = sum(r.seconds for r in rows), fallbacks(rows)
    share = sum(r.seconds for r in slow) / total
    named = ", ".join(f"{r.node} {r.seconds / total:.1%}" for r in slow[:MOST_NAMED])
    return f"{name:13} {total * 1e3:9.3f} ms {share:7.2%}  {len(slow):3} of {len(rows):3} {named}"


def main(names: list[str]) -> None:
    """Run from the command line."""
    for name in names or ENTRIES:
        print(line(name), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
