"""How good the heuristics' schedules are: the chosen one against the best of its design space.

    python -m bench.schedules [conv|contraction|winograd] [--most 16] [--record FILE]

For each problem the heuristic's schedule and a seeded sample of the space's others are compiled and run in turns; each
one's time is the minimum of many rounds, by the thread's CPU time. Printed is the chosen one's over the best one's.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.kernel_cases import contraction as contraction_cases
from bench.kernel_cases import conv as conv_cases
from bench.kernel_cases import winograd as winograd_cases
from bench.kernel_cases.winograd import Row
from xcompile.compiler.schedule import contraction, conv, winograd
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.target import Target

ROUNDS = 25
Candidates = Iterator[tuple[str, list[tuple[Any, Row]]]]


def sample(space: Iterator[Any], most: int) -> list[Any]:
    """The space's first schedule, which is the heuristic's, and some of the others."""
    first = next(space)
    others = sorted({str(each): each for each in space if each != first}.items())
    random.Random(0).shuffle(others)
    return [first, *(each for _, each in others[: most - 1])]


def convolutions(target: Target, most: int) -> Candidates:
    """Direct convolutions of ResNet-50, SqueezeNet and others."""
    for layer in conv_cases.LAYERS:
        problem = layer.problem
        chosen = sample(conv.space(problem, target), most)
        yield f"conv {layer.name}", [(s, conv_cases.row("", problem, target, s)) for s in chosen]


def contractions(target: Target, most: int) -> Candidates:
    """The matrix products of MiniLM and a large one."""
    for case in contraction_cases.CASES[:6]:
        chosen = sample(contraction.space(case.problem, target), most)
        yield (
            f"contraction {case.name}",
            [(s, contraction_cases.row(case, target, s)) for s in chosen],
        )


def winograds(target: Target, most: int) -> Candidates:
    """3×3 convolutions of ResNet-50 and SqueezeNet."""
    for c, h, oc in winograd_cases.SHAPES[:4]:
        problem = winograd.WinogradProblem(1, c, h, h, oc, target.lanes(32))
        chosen = sample(winograd.space(problem, target), most)
        rows = [(s, winograd_cases.row(problem, s, target)) for s in chosen]
        yield f"winograd {c}x{h}x{h} -> {oc}", rows


FAMILIES = {"conv": convolutions, "contraction": contractions, "winograd": winograds}


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", default=list(FAMILIES))
    parser.add_argument("--most", type=int, default=16)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    target = host_target()
    records: list[dict[str, Any]] = []
    for family in arguments.families:
        for name, candidates in FAMILIES[family](target, arguments.most):
            for _ in range(ROUNDS):
                for _, row in candidates:
                    row.step()
            chosen = candidates[0][1].best
            schedule, best = min(candidates, key=lambda c: c[1].best)
            ratio = chosen / best.best
            print(
                f"{ratio:5.2f}  {name}: {chosen * 1e6:.0f} µs of {len(candidates)}, best {schedule}",
                flush=True,
            )
            records.append({"problem": name, "ratio": ratio, "candidates": len(candidates)})
    if arguments.record:
        arguments.record.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
