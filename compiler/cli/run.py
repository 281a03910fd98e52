"""`xcompile run`: run a model on arrays."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcompile.compiler.cli import options
from xcompile.compiler.support.errors import CompileError

if TYPE_CHECKING:
    import numpy as np


def run(
    model: Annotated[Path, typer.Argument(help="An ONNX model or a compiled library.")],
    *,
    inputs: options.Inputs = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A folder to write each output to, as NAME.npy."),
    ] = None,
    target: options.Target = "cpu",
    arch: options.Arch = None,
    device: options.Device = None,
    threads: options.Threads = None,
    passes: options.Passes = "",
    pipeline: options.Pipeline = "",
    load: options.Load = None,
    winograd: options.Winograd = None,
    jobs: options.Jobs = None,
    cache: options.Cache = None,
    calibration_table: options.CalibrationTable = None,
    precision: options.Precision = None,
    fallback: options.Fallback = None,
    overridable: options.Overridable = None,
) -> None:
    """Run a model on arrays.

    Prints the type, the shape and the range of each output.
    """
    from xcompile.compiler.cli.inputs import read_inputs

    compilation = options.Compilation(
        target=target, threads=threads, passes=passes, pipeline=pipeline, load=load or (), winograd=winograd,
        jobs=jobs, cache=cache, fallback=fallback, overridable=overridable or (),
        calibration_table=calibration_table, precision=precision or (), arch=arch or (), device=device,
    )  # fmt: skip
    opened = compilation.open(model) if options.is_library(model) else compilation.compile(model)
    results = opened.run(read_inputs(inputs or (), opened.inputs))
    for name, array in results.items():
        print(f"{name}: {_summary(array)}")
    if output is not None:
        _write(output, results)


def _summary(array: "np.ndarray[Any, Any]") -> str:
    shape = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if array.size == 0 or array.dtype.kind == "V":
        return shape
    values = array.astype("float64")
    return f"{shape} min {values.min():.6g} mean {values.mean():.6g} max {values.max():.6g}"


def _write(folder: Path, arrays: "dict[str, np.ndarray[Any, Any]]") -> None:
    """Write each array to a file of its own, whole or not at all."""
    import numpy as np

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, stem in zip(arrays, _file_names(arrays), strict=True):
            temporary = folder / f"{stem}.npy.tmp"
            with temporary.open("wb") as file:
                np.save(file, arrays[name], allow_pickle=False)
            temporary.replace(folder / f"{stem}.npy")
    except OSError as error:
        raise CompileError(
            "XC7001", f"the outputs cannot be written to {folder}: {error.strerror}"
        ) from error


def _file_names(names: Iterable[str]) -> list[str]:
    """A file name for each name of an output, which may be any text; no two are the same."""
    taken: dict[str, None] = {}
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:100] or "output"
        stem, count = plain, 1
        while stem in taken:
            count += 1
            stem = f"{plain}_{count}"
        taken[stem] = None
    return list(taken)
