"""Quantizes the digits network for a target, by one command: size, accuracy and what each node computes in.

    python examples/digits/quantize.py cpu-int8
    python examples/digits/quantize.py x86-vnni-int8
    python examples/digits/quantize.py arm-dotprod-int8

Calibrates on the 797 digits that the network was trained on, writes `digits-TARGET.so` and `digits-TARGET.html`, and
counts the other 1,000 that are read right. Code for another machine is run in its emulator (qemu-user, or Bochs) where
that is installed and this is a checkout of the repository; bytes are the same on every target, so elsewhere `cpu-int8`
stands for it.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from data import calibration_samples, load

import xcompile
from xcompile.compiler.precisions import precision_page
from xcompile.compiler.support.page import write_page
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import parse_target

MODEL = Path(__file__).with_name("digits.onnx")


def scores_of(model: xcompile.CompiledModel, target: str, images: np.ndarray) -> Any:
    """The scores of images, by the code of a model here or in an emulator; None where there is none."""
    machine, _ = parse_target(target)
    if machine.runs_on(host_target()):
        return model(images)
    sys.path.insert(0, str(Path(__file__).parents[2]))
    try:
        from tests.foreign.machines import machine_for
        from tests.foreign.models import run_compiled
    except ImportError:
        return None
    emulator = machine_for(machine)
    if emulator is None or emulator.missing():
        return None
    return run_compiled(model, {"images": images})["scores"]


def main() -> None:
    """Quantize, save, count, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", default="cpu-int8")
    parser.add_argument("--output", type=Path, default=Path(), help="the folder of the files")
    given = parser.parse_args()
    table = xcompile.Calibrator(MODEL)
    table.observe_all(calibration_samples())
    ranges = table.table("mse")
    _, held_out = load()

    def right(scores: Any) -> str:
        share = float((np.asarray(scores).argmax(axis=1) == held_out.labels).mean())
        return f"{share:.1%} of {len(held_out.labels):,} digits"

    model = xcompile.compile(MODEL, given.target, calibration_table=ranges)
    files = [given.output / f"digits-{given.target}{ending}" for ending in (".so", ".html")]
    model.save(files[0])
    write_page(files[1], precision_page(model.artifact))
    plain = xcompile.compile(MODEL, given.target.removesuffix("-int8"))
    plain.save(given.output / "digits-float.so")
    sizes = [path.stat().st_size / 1024 for path in (files[0], given.output / "digits-float.so")]
    print(f"target     {given.target}")
    print(f"size       {sizes[0]:.1f} KiB, in float32 {sizes[1]:.1f} KiB: {files[0]}")
    print(f"in float32 {right(xcompile.compile(MODEL)(held_out.images))}")
    scores = scores_of(model, given.target, held_out.images)
    if scores is not None:
        print(f"in int8    {right(scores)}")
    else:
        here = xcompile.compile(MODEL, "cpu-int8", calibration_table=ranges)
        print(f"in int8    {right(here(held_out.images))} by cpu-int8, whose bytes are the same")
    print(xcompile.predict(MODEL, given.target, sizes={"N": 1}, calibration_table=ranges))
    for said in model.statements():
        print(f"  {said.node or '(inputs)':10} {said.kind:10} {said.arithmetic:8} {said.why}")
    print(f"report     {files[1]}")


if __name__ == "__main__":
    main()
