"""How near the heuristics' schedules come to the best of all legal ones.

    python -m bench.choices [resnet50|squeezenet|same3x3|groups] [--most 24] [--rounds 40] [--record FILE]

For each direct convolution of a network: up to `--most` schedules drawn from the whole space (a seeded sample, the
heuristic's among them) are compiled and run in turns, and the heuristic's time is given as a multiple of the best.
"""

import argparse
import json
import random
from pathlib import Path

from bench.kernel_cases.conv import LAYERS, row
from xcompile.compiler.schedule import conv
from xcompile.compiler.schedule.conv import ConvSchedule
from xcompile.compiler.target.host import host_target


def candidates(layer: int, most: int) -> list[ConvSchedule]:
    """The heuristic's schedule and a sample of the others."""
    first, *others = conv.space(LAYERS[layer].problem, host_target())
    distinct = sorted({str(each): each for each in others if each != first}.items())
    random.Random(layer).shuffle(distinct)
    return [first, *(each for _, each in distinct[: most - 1])]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network", nargs="?", default="resnet50")
    parser.add_argument("--most", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    target, found = host_target(), []
    for number, layer in enumerate(LAYERS):
        if arguments.network not in layer.name:
            continue
        schedules = candidates(number, arguments.most)
        rows = [row(layer.name, layer.problem, target, each) for each in schedules]
        for _ in range(arguments.rounds):
            for each in rows:
                each.step()
        best = min(range(len(rows)), key=lambda i: rows[i].best)
        ratio = rows[0].best / rows[best].best
        better = "" if best == 0 else f"  {schedules[best]}"
        print(f"{layer.name:34} {ratio:5.2f} of {len(rows)} schedules{better}", flush=True)
        found.append({"layer": layer.name, "ratio": ratio, "best": str(schedules[best])})
    within = sum(each["ratio"] <= 1.1 for each in found)
    print(f"within 10 % of the best: {within} of {len(found)}")
    if arguments.record:
        arguments.record.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
