"""Models in 16 bits: speed beside float32 and other engines in one interleaved run, and how far results are.

    python -m bench.narrow [NAME ...] [--threads 1] [--rounds 15] [--record FILE]

Errors are told by the least cosine of an output of floats with that of float32, over three sizes of input, and by how
many rows of the first output have their largest number at the same place.
"""

from typing import Any

import numpy as np

from bench import corpus
from bench.entries import ENTRIES
from bench.models import measured, parser_of, write_record
from bench.peers import onnxruntime_runner, openvino_runner, xcompile_runner

NAMES = ("squeezenet", "resnet50", "minilm")
PRECISIONS = ("bf16", "fp16")


def cosine(x: np.ndarray, y: np.ndarray) -> float:
    """The cosine of the angle between two arrays as vectors."""
    a, b = (v.astype(np.float64).reshape(-1) for v in (x, y))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def agreement(name: str, precision: str, target: str = "cpu") -> tuple[float, float]:
    """How a narrow model agrees with float32.

    Args:
        name: of a model of the corpus.
        precision: "bf16" or "fp16".
        target: the machine, in both.

    Returns:
        The least cosine, and the share of rows of the first output with their largest number at the same place.
    """
    import xcompile

    models = [
        xcompile.compile(corpus.model(name), each) for each in (target, f"{target}-{precision}")
    ]
    cosines: list[float] = []
    places: list[np.ndarray] = []
    for size in (1, 2, 3):
        wide, narrow = (list(m.run(ENTRIES[name](size)).values()) for m in models)
        pairs = zip(wide, narrow, strict=True)
        cosines += [cosine(x, y) for x, y in pairs if x.dtype.kind == "f"]
        tops = [y.reshape(len(y), -1).argmax(axis=1) for y in (wide[0], narrow[0])]
        places.append(tops[0] == tops[1])
    return min(cosines), float(np.concatenate(places).mean())


def main() -> None:
    """Compare precisions and engines on each model."""
    parser = parser_of(__doc__, NAMES)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.names:
        path, feeds, threads = corpus.model(name), ENTRIES[name](1), arguments.threads
        runners = {
            "xcompile": xcompile_runner(path, feeds, threads),
            **{p: xcompile_runner(path, feeds, threads, f"cpu-{p}") for p in PRECISIONS},
            "onnxruntime": onnxruntime_runner(path, feeds, threads),
            "openvino": openvino_runner(path, feeds, threads),
            "openvino bf16": openvino_runner(path, feeds, threads, "bf16"),
        }
        medians, dropped = measured(runners, arguments.rounds, noisy=arguments.noisy)
        shown = "  ".join(f"{engine} {ms:.2f}" for engine, ms in medians.items())
        near = {precision: agreement(name, precision) for precision in PRECISIONS}
        told = "  ".join(f"{p} cosine {c:.6f}, top 1 {t:.0%}" for p, (c, t) in near.items())
        print(f"{name} threads {threads}: {shown} ms | {told}", flush=True)
        rows.append({"model": name, "ms": medians, "agreement": near, "dropped": dropped})
    write_record(arguments.record, rows)


if __name__ == "__main__":
    main()
