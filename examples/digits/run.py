"""Compiles the digits network and runs it on the 1,000 digits that it was not trained on.

    python examples/digits/run.py

Prints the time to compile, the share of digits read right, and the latency of one image on one thread: the median
of many runs, beside onnxruntime's where that is installed.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from data import load

import xcompile

MODEL = Path(__file__).with_name("digits.onnx")
RUNS = 2000


def median_microseconds(run: Callable[[], object]) -> float:
    """The median time of a call, after some calls to warm up."""
    seconds: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[RUNS // 10 :]) * 1e6


def onnxruntime_microseconds(image: np.ndarray) -> float | None:
    """The same latency of onnxruntime, None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(MODEL), options, providers=["CPUExecutionProvider"])
    return median_microseconds(lambda: session.run(None, {"images": image}))


def main() -> None:
    """Compiles, runs and prints."""
    start = time.perf_counter()
    model = xcompile.compile(MODEL, threads=1)
    first = model(np.zeros((1, 1, 8, 8), np.float32))
    assert isinstance(first, np.ndarray)
    assert first.shape == (1, 10)
    print(f"compile    {time.perf_counter() - start:.2f} s, to the first result")

    _, held_out = load()
    scores = np.asarray(model(held_out.images))
    right = int((scores.argmax(axis=1) == held_out.labels).sum())
    print(f"accuracy   {right / len(held_out.labels):.1%} of {len(held_out.labels):,} digits")

    image = held_out.images[:1]
    print(f"latency    {median_microseconds(lambda: model(image)):.1f} µs an image, one thread")
    other = onnxruntime_microseconds(image)
    print(f"           {other:.1f} µs in onnxruntime" if other else "           (no onnxruntime)")


if __name__ == "__main__":
    main()
