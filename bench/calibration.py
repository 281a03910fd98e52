"""How long quantizing a model takes, and that the memory of calibration does not grow with the samples.

    python -m bench.calibration [--samples 200] [--name resnet50]

Times the calibration of a model by random images (observing them, choosing ranges by entropy, compiling for int8,
with an empty cache), and prints the resident memory of a process that calibrates the digits network after 100 and
after 10,000 samples.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import xcompile
from bench import corpus
from xcompile.compiler.calibration.calibrator import Calibrator
from xcompile.compiler.precisions import summary

DIGITS = Path(__file__).parents[1] / "examples" / "digits" / "digits.onnx"


def resident() -> float:
    """MiB of memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def images(count: int, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Random images, one after another."""
    generator = np.random.default_rng(0)
    for _ in range(count):
        yield generator.standard_normal(shape, np.float32)


def quantize(path: Path, samples: int) -> None:
    """Print the seconds of each part of quantizing a model with one image as its input."""
    with tempfile.TemporaryDirectory() as cache:
        options = {"cache": cache}
        start = time.perf_counter()
        calibrator = Calibrator(path, options=options)
        shape = tuple(size or 1 for size in calibrator.inputs[0].static_dims)
        compiled = time.perf_counter()
        calibrator.observe_all(images(samples, shape))
        observed = time.perf_counter()
        table = calibrator.table("entropy")
        chosen = time.perf_counter()
        model = xcompile.compile(path, "cpu-int8", calibration_table=table, options=options)
        end = time.perf_counter()
    print(
        f"{path.stem}: {end - start:.1f} s = {compiled - start:.1f} compiling for calibration"
        f" + {observed - compiled:.1f} observing {samples} samples + {chosen - observed:.1f} choosing ranges"
        f" + {end - chosen:.1f} compiling for int8; {summary(model.precisions())}"
    )


def memory(counts: tuple[int, ...] = (100, 10_000)) -> None:
    """Print the resident memory while the digits network is calibrated."""
    calibrator, before = Calibrator(DIGITS), 0
    for count in counts:
        start = time.perf_counter()
        calibrator.observe_all(images(count - before, (1, 1, 8, 8)))
        before = count
        seconds = time.perf_counter() - start
        print(f"digits, {count:,} samples: {resident():.1f} MiB, {seconds:.1f} s")


def main() -> None:
    """Reads the command line and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--name", default="resnet50", choices=sorted(corpus.TOPOLOGIES))
    given = parser.parse_args()
    memory()
    quantize(corpus.model(given.name), given.samples)


if __name__ == "__main__":
    main()
