"""How long it takes to check every pass by the numpy reference: importing and planning, with and without.

Most of it is the convolutions and products of numpy's BLAS, which runs on all cores and waits for them in loops: on a
machine where other programs run it takes several times as long. How many ops were evaluated says what was checked.

python -m bench.verify_numerics [NAME ...] [--record FILE]
"""

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path

from bench import corpus
from xcompile.compiler.driver import plan_module
from xcompile.compiler.numerics.check import VerifyNumerics
from xcompile.compiler.request import Request
from xcompile.compiler.target.host import host_target
from xcompile.frontends.onnx.importer import import_onnx


@dataclass(frozen=True)
class Timed:
    """One compile up to planned kernels.

    Attributes:
        seconds: from the file to the plan.
        executed: ops that the reference ran.
    """

    seconds: float
    executed: int


def planned(model: Path, verify: bool) -> Timed:
    """Import a model and plan its kernels, on an instrument of the same kind as the option adds."""
    start = time.perf_counter()
    check = VerifyNumerics()
    request = Request(host_target(), instruments=(check,) if verify else ())
    plan_module(import_onnx(model), request)
    elapsed = time.perf_counter() - start
    return Timed(elapsed, check.recording.executed if check.recording else 0)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=["squeezenet", "minilm", "resnet50"])
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, object]] = []
    for name in arguments.names:
        plain, verified = (planned(corpus.model(name), verify) for verify in (False, True))
        print(
            f"{name}: {plain.seconds:.1f} s, with every pass checked {verified.seconds:.1f} s"
            f" ({verified.executed} ops evaluated)",
            flush=True,
        )
        rows.append(
            {
                "model": name,
                "plain_s": plain.seconds,
                "verified_s": verified.seconds,
                "evaluated": verified.executed,
            }
        )
    if arguments.record:
        arguments.record.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
