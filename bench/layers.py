"""How close the kernels of a model come to the machine's peak, launch by launch.

    python -m bench.layers [NAME] [--record FILE]

The peak is measured in the same run: a loop of independent fused multiply-adds. Winograd convolutions count the
operations of the
direct algorithm, so they can exceed it; the FLOP-weighted mean is taken over the direct kernels alone.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import xcompile
from bench import corpus
from bench.entries import ENTRIES
from bench.kernel_cases.winograd import multiply_add_peak
from xcompile.compiler.peak import Peak, measure_peak
from xcompile.compiler.profile import measure
from xcompile.compiler.profile_report import Row
from xcompile.compiler.target.host import host_target


def weighted(rows: Sequence[Row], family: str, peak: float) -> float:
    """The FLOP-weighted mean share of peak of a family: all its operations over all its time."""
    chosen = [r for r in rows if r.family == family and r.flops]
    seconds = sum(r.seconds for r in chosen)
    return sum(r.flops for r in chosen) / seconds / peak if seconds else float("nan")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="?", default="resnet50", choices=list(ENTRIES))
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    target = host_target()
    model = xcompile.compile(corpus.model(arguments.name), threads=1)
    feeds = ENTRIES[arguments.name](1)
    inputs = [feeds[spec.name] for spec in model.artifact.manifest.inputs]
    reference = multiply_add_peak(target)
    for _ in range(20):
        reference.step()
    profile = measure(model.artifact, inputs, repeats=15)
    rows = profile.rows
    for _ in range(20):
        reference.step()
    peak = 1e9 * reference.gflops
    print(profile.table(Peak(peak, measure_peak(target).bandwidth)))
    print(f"FMA peak {peak / 1e9:.1f} GFLOP/s ({target.vector_bits}-bit vectors)")
    shares = {f: weighted(rows, f, peak) for f in sorted({r.family for r in rows if r.flops})}
    for family, share in shares.items():
        print(f"{family}: FLOP-weighted mean {share:.1%} of peak")
    if arguments.record:
        record: dict[str, Any] = {"model": arguments.name, "peak": peak, "shares": shares}
        record["rows"] = [[r.family, r.node, r.seconds, r.flops, r.bytes] for r in rows]
        arguments.record.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
