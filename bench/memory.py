"""Memory of a loaded library: what is resident after the first run, against weights, arena and an interpreter with
numpy.

python -m bench.memory [NAME ...] [--record FILE]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

import xcompile
from bench import corpus
from bench.entries import ENTRIES
from xcompile.compiler.artifact import Artifact
from xcompile.compiler.codegen.program.program import Place, Step
from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import PIPELINES, default_pipeline
from xcompile.compiler.support.dims import evaluate
from xcompile.compiler.target.host import host_target
from xcompile.dialects.kernel import Launch, View
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.layouts import block_of
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.passes import PASSES

assert PASSES, "importing them registers them"

_BARE = "import numpy; print(open('/proc/self/statm').read().split()[1])"
_LOADED = (
    "import sys, numpy; from xcompile.runtime.library import load; m = load(sys.argv[1], threads=1); "
    "m.run(dict(numpy.load(sys.argv[2]))); print(open('/proc/self/statm').read().split()[1])"
)


def resident(program: str, *arguments: str) -> int:
    """Bytes resident at the end of a Python program."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return int(done.stdout) * 4096


def read_at_load(artifact: Artifact) -> int:
    """Bytes of packed weights from which others are prepared when a model is loaded, and that no run reads."""
    program = artifact.program
    loading, running = (
        {p.offset for step in steps for p in _places(step) if p.space == "weights"}
        for steps in (program.setup, program.walk)
    )
    ends = [*sorted(loading | running)[1:], artifact.manifest.weights_bytes]
    length = dict(zip(sorted(loading | running), ends, strict=True))
    return sum(length[offset] - offset for offset in loading - running)


def _places(step: Step) -> Iterator[Place]:
    for each in vars(step).values():
        yield from (
            p for p in (each if isinstance(each, tuple) else (each,)) if isinstance(p, Place)
        )


def live_bound(module: Module) -> int:
    """The most bytes of intermediate tensors of a static model that are live at once.

    From the launches of the kernel level alone: a tensor lives from the launch that makes it to the last that reads it;
    the operands of a concatenation that copies nothing live as long as its result, which needs no bytes of its own.
    """
    operations = [view(o) for o in module.main.regions[0].blocks[0].operations]
    returned = set(list(module.main.regions[0].blocks[0].operations)[-1].operation.operands)
    owner: dict[Value, Value] = {}
    first: dict[Value, int] = {}
    last: dict[Value, int] = {}
    for step, op in enumerate(operations):
        if isinstance(op, View):
            owner[op.y] = owner.get(op.x, op.x)
        if not isinstance(op, Launch):
            continue
        for value in op.inputs:
            last[owner.get(value, value)] = step
        for value in op.results:
            first[value] = last[value] = step
    for op in reversed(operations):
        if (
            isinstance(op, Launch)
            and op.callee.startswith("concat_")
            and op.results[0] not in returned
        ):
            for value in op.inputs:
                last[value] = max(last[value], last[op.results[0]])
            first.pop(op.results[0])
    kept = {v for v in first if v not in returned}
    sizes = {v: bytes_of(v) for v in kept}
    return max(
        sum(sizes[v] for v in kept if first[v] <= s <= last[v]) for s in range(len(operations))
    )


def bytes_of(value: Value) -> int:
    """Bytes of a tensor of static shape, blocks of channels filled up."""
    shape, block = list(ir.RankedTensorType(value.type).shape), block_of(value.type)
    if block:
        shape[1] = -(-shape[1] // block) * block
    return DTYPES[dtype_of(value)].itemsize * int(np.prod(shape))


def kernel_level(path: Path | onnx.ModelProto) -> Module:
    """A model after the passes, as kernels and launches."""
    module = import_onnx(path)
    with module.context, ir.Location.unknown():
        refine_types(module, module.input_shapes())
        target = host_target()
        run_pipeline(
            module, parse_pipeline(default_pipeline(target), PIPELINES), PassContext(target)
        )
    return module


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", default=["squeezenet", "resnet50", "minilm"])
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args()
    bare = resident(_BARE)
    rows: list[dict[str, object]] = []
    for name in arguments.names:
        feeds = ENTRIES[name](1)
        model = xcompile.compile(corpus.model(name), threads=1)
        manifest, program = model.artifact.manifest, model.artifact.program
        sizes = program.bindings([x.shape for x in feeds.values()])
        arena = evaluate(program.arena, sizes)
        with tempfile.TemporaryDirectory() as scratch:
            library, data = Path(scratch) / "m.so", Path(scratch) / "x.npz"
            model.save(library)
            np.savez(data, **{k: np.asarray(v) for k, v in feeds.items()})
            loaded = resident(_LOADED, str(library), str(data))
        weights = manifest.weights_bytes + manifest.prepared_bytes - read_at_load(model.artifact)
        rest = loaded - bare - weights - arena
        bound = live_bound(kernel_level(corpus.model(name))) if not any(sizes) else None
        if bound:
            print(
                f"{name}: arena {arena} bytes, {arena / bound:.3f} of the {bound} that are live at once"
            )
        mib = 2**20
        print(
            f"{name}: resident {loaded / mib:.0f} MiB = interpreter and numpy {bare / mib:.0f}"
            f" + weights that runs read {weights / mib:.0f} + arena {arena / mib:.1f} + {rest / mib:.1f}",
            flush=True,
        )
        rows.append(
            {
                "model": name,
                "resident": loaded,
                "bare": bare,
                "weights": weights,
                "arena": arena,
                "rest": rest,
                "live": bound,
            }
        )
    if arguments.record:
        arguments.record.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
