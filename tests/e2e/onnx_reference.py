"""What becomes of each node case of the ONNX backend suite when it is imported and interpreted.

python -m tests.e2e.onnx_reference            print how the outcome differs from the ledger
python -m tests.e2e.onnx_reference --shrink   take cases that pass now out of the ledger
python -m tests.e2e.onnx_reference --rewrite  write the ledger anew
"""

import functools
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.e2e.onnx_node_cases import NodeCase, node_cases
from xcompile.compiler.ir.context import new_context
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.support.dims import Dim
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.dialects.nn.shapes import ShapeAnalysis
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.frontends.onnx.registry import load_converters

LEDGER = Path(__file__).with_name("onnx_reference_ledger.txt")

_HEAD = """\
# Node cases of the ONNX backend suite that importer and reference interpreter do not pass, and why.
# This list may only shrink: python -m tests.e2e.onnx_reference --shrink
"""

_HALF = (5e-2, 1e-2)
"""Tolerances of chains of ops in 16-bit floats, each of which rounds: expanded functions, attention."""


@functools.cache
def _context() -> ir.Context:
    load_converters()
    return new_context()


def failure(case: NodeCase) -> str | None:
    """Why a case fails, in a few words; None when it passes.

    Floats must agree within the suite's own tolerances (1e-3 relative, 1e-7 absolute, unless the
    case says otherwise), all else exactly; inferred sizes must be those of the results.
    """
    try:
        module = import_onnx(case.model, context=_context())
        shapes = _inferred_shapes(module)
        for inputs, expected in case.data:
            results = interpret(module, inputs)
            for actual, wanted, shape in zip(results, expected, shapes, strict=True):
                problem = difference(actual, np.asarray(wanted), case) or _misfit(actual, shape)
                if problem:
                    return problem
    except CompileError as error:
        return short(error)
    return None


def _inferred_shapes(module: Module) -> list[tuple[Dim, ...]]:
    with module.context:
        analysis = ShapeAnalysis(module.main)
        terminator = list(module.main.regions[0].blocks[0].operations)[-1].operation
        return [analysis.shape(value) for value in terminator.operands]


def _misfit(actual: np.ndarray, shape: tuple[Dim, ...]) -> str | None:
    fits = len(shape) == actual.ndim and all(
        d == n for d, n in zip(shape, actual.shape, strict=True) if isinstance(d, int)
    )
    return None if fits else f"inferred {shape} for {list(actual.shape)}"


def difference(actual: np.ndarray, wanted: np.ndarray, case: NodeCase) -> str | None:
    """How a result differs from the expected one, by the tolerances of the case; None when it does not."""
    if actual.dtype != wanted.dtype or actual.shape != wanted.shape:
        return f"gives {actual.dtype}{list(actual.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if actual.dtype.kind in "biu":
        return None if np.array_equal(actual, wanted) else "wrong integers"
    kind = np.complex128 if actual.dtype.kind == "c" else np.float64
    chain = re.search("(bf16|fp16).*_expanded|attention.*bf16", case.name)
    tolerances = _HALF if chain else (case.rtol, case.atol)
    close = np.isclose(actual.astype(kind), wanted.astype(kind), *tolerances, equal_nan=True)
    return None if close.all() else "wrong values"


def short(error: CompileError) -> str:
    """An error in at most 100 characters."""
    text = f"{error.code} {error.message}"
    if "not supported: " in text:
        parts = error.message.split("not supported: ")[1].split(" | ")
        text = f"{error.code} no {', '.join(part.split(' (')[0] for part in parts)}"
    return text if len(text) <= 100 else text[:97] + "..."


def read_ledger(ledger: Path = LEDGER) -> dict[str, str]:
    """Case names and reasons."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return dict(line.split(": ", 1) for line in lines if line and not line.startswith("#"))


def write_ledger(entries: dict[str, str], ledger: Path = LEDGER, head: str = _HEAD) -> None:
    """Replace the ledger; a reason that somebody has written stays."""
    ledger.write_text(head + "".join(f"{name}: {entries[name]}\n" for name in sorted(entries)))


def failures(cases: Sequence[NodeCase]) -> dict[str, str]:
    """The failing cases and why."""
    return {case.name: problem for case in cases if (problem := failure(case))}


def main(arguments: list[str]) -> None:
    """Compare, and change the ledger when asked to."""
    found, ledger = failures(node_cases()), read_ledger()
    passing = [name for name in ledger if name not in found]
    fresh = {name: why for name, why in found.items() if name not in ledger}
    if "--rewrite" in arguments:
        write_ledger(found | {name: why for name, why in ledger.items() if name in found})
    elif "--shrink" in arguments:
        write_ledger({name: why for name, why in ledger.items() if name in found})
    print(f"{len(node_cases())} cases, {len(found)} fail")
    print(f"listed and passing: {passing}\nfailing and not listed: {fresh}")


if __name__ == "__main__":
    main(sys.argv[1:])
