"""The benchmarks of all kernel families.

    python -m bench.kernels [filter]

runs each module of `bench/kernel_cases` that has a `main`, with the rows whose name contains the filter.
"""

import importlib
import sys
from pathlib import Path


def main(pattern: str = "") -> None:
    """Run the benchmarks one after the other."""
    for path in sorted(Path(__file__).with_name("kernel_cases").glob("*.py")):
        run = getattr(importlib.import_module(f"bench.kernel_cases.{path.stem}"), "main", None)
        if run is not None:
            print(f"-- {path.stem}")
            run(pattern)


if __name__ == "__main__":
    main(*sys.argv[1:2])
