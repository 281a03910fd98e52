"""How long it takes to check every pass by the numpy reference: importing and planning, with and without.

python -m bench.verify_numerics [NAME ...] [--record FILE]
"""

import argparse
import json
import time
from pathlib import Path

from bench import corpus
from xcompile.compiler.driver import plan_module
from xcompile.compiler.request import Request
from xcompile.compiler.support.options import Options
from xcompile.compiler.target.host import host_target
from xcompile.frontends.onnx.importer import import_onnx


def seconds(model: Path, verify: bool) -> float:
    """The time from a file to a model whose kernels are planned."""
    start = time.perf_counter()
    request = Request(host_target(), options=Options({"verify-numerics": verify}))
    plan_module(import_onnx(model), request)
    return time.perf_counter() - start


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
        plain, verified = (seconds(corpus.model(name), verify) for verify in (False, True))
        print(f"{name}: {plain:.1f} s, with every pass checked {verified:.1f} s", flush=True)
        rows.append({"model": name, "plain_s": plain, "verified_s": verified})
    if arguments.record:
        arguments.record.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
