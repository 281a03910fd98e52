"""Predicted against measured: how many times as fast ten models are in int8 as in float32, on one thread.

    python -m bench.predicted [NAME ...] [--rounds 15] [--record FILE]

Each model is quantized after training with three inputs. Predictions come from the cost model (`compiler/costs.py`)
before any code is made; both models then run in turns, and the least processor time of the rounds counts. The bar is
30 % of the measured ratio.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import xcompile
from bench import corpus
from bench.entries import ENTRIES
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.prediction import predict
from xcompile.compiler.support.options import Options

NAMES = (
    "resnet50", "squeezenet", "pp-ocr-rec", "pp-ocr-cls", "pp-ocr-det", "orientation", "minilm", "shufflenet",
    "densenet121", "opennsfw",
)  # fmt: skip
BAR = 0.3
_LEAST_SECONDS = 0.02
"""A round of a small model is several runs that take so long together."""


def seconds(model: xcompile.CompiledModel, feeds: Mapping[str, np.ndarray], runs: int) -> float:
    """The processor time of a run."""
    start = time.process_time()
    for _ in range(runs):
        model.run(feeds)
    return (time.process_time() - start) / runs


def compared(name: str, rounds: int, pool: Any) -> dict[str, Any]:
    """The predicted and the measured ratio of a model of the corpus."""
    path = corpus.model(name)
    feeds = ENTRIES[name](1)
    calibrator = xcompile.Calibrator(path, pool=pool)
    for size in (1, 2, 3):
        calibrator.observe(ENTRIES[name](size))
    table = calibrator.table()
    specs = calibrator.inputs
    sizes = {
        dim: size
        for spec in specs
        for dim, size in zip(spec.dims, feeds[spec.name].shape, strict=True)
        if not dim.isdigit()
    }
    predicted = predict(path, "cpu-int8", sizes=sizes, calibration_table=table)
    models = [
        xcompile.compile(path, target, threads=1, pool=pool, **arguments)
        for target, arguments in (("cpu", {}), ("cpu-int8", {"calibration_table": table}))
    ]
    runs = [max(1, round(_LEAST_SECONDS / max(seconds(m, feeds, 1), 1e-6))) for m in models]
    taken = [
        [seconds(m, feeds, n) for m, n in zip(models, runs, strict=True)] for _ in range(rounds)
    ]
    floating, integer = (min(column) for column in zip(*taken, strict=True))
    measured = floating / integer
    error = predicted.speedup / measured - 1
    return {
        "model": name, "float_ms": floating * 1e3, "int8_ms": integer * 1e3, "measured": measured,
        "predicted": predicted.speedup, "error": error,
    }  # fmt: skip


def main() -> None:
    """Compare the models."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(NAMES))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--record", type=Path, help="write the figures here")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    print(
        f"{'model':14} {'float ms':>9} {'int8 ms':>9} {'measured':>9} {'predicted':>9} {'error':>7}"
    )
    with worker_pool(Options()) as pool:
        for name in given.names:
            row = compared(name, given.rounds, pool)
            rows.append(row)
            print(
                f"{name:14} {row['float_ms']:9.3f} {row['int8_ms']:9.3f} {row['measured']:9.2f} "
                f"{row['predicted']:9.2f} {row['error']:+7.1%}",
                flush=True,
            )
    good = sum(abs(row["error"]) <= BAR for row in rows)
    print(f"{good} of {len(rows)} within {BAR:.0%}")
    if given.record is not None:
        given.record.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
