"""What becomes of each node case of the ONNX backend suite when it is imported and interpreted.

    python -m tests.e2e.onnx_reference            print how the outcome differs from the ledger
    python -m tests.e2e.onnx_reference --shrink   take cases that pass now out of the ledger
    python -m tests.e2e.onnx_reference --rewrite  write the ledger anew
"""

import sys
from pathlib import Path

import numpy as np
from tests.e2e.onnx_node_cases import NodeCase, node_cases

from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

LEDGER = Path(__file__).with_name("onnx_reference_ledger.txt")

_HEAD = """\
# Node cases of the ONNX backend suite that the importer and the reference interpreter do not pass, and why.
# This list may only shrink: python -m tests.e2e.onnx_reference --shrink
"""


def failure(case: NodeCase) -> str | None:
    """Why a case fails, in a few words; None when it passes.

    Floats must agree within the suite's own tolerances (1e-3 relative, 1e-7 absolute, unless the case says otherwise), all else exactly.
    """
    try:
        module = import_onnx(case.model)
        for inputs, expected in case.data:
            results = interpret(module, inputs)
            for actual, wanted in zip(results, expected, strict=True):
                problem = difference(actual, np.asarray(wanted), case)
                if problem:
                    return problem
    except CompileError as error:
        return _short(error)
    return None


def difference(actual: np.ndarray, wanted: np.ndarray, case: NodeCase) -> str | None:
    """How two arrays differ; None when they agree."""
    if actual.dtype != wanted.dtype or actual.shape != wanted.shape:
        return f"gives {actual.dtype}{list(actual.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if actual.dtype.kind in "biu":
        return None if np.array_equal(actual, wanted) else "wrong integers"
    kind = np.complex128 if actual.dtype.kind == "c" else np.float64
    close = np.isclose(actual.astype(kind), wanted.astype(kind), case.rtol, case.atol, equal_nan=True)
    return None if close.all() else "wrong values"


def _short(error: CompileError) -> str:
    text = f"{error.code} {error.message}"
    if "not supported: " in text:
        ops = [part.split(" (")[0] for part in error.message.split("not supported: ")[1].split(" | ")]
        text = f"{error.code} no {', '.join(ops)}"
    return text if len(text) <= 100 else text[:97] + "..."


def read_ledger() -> dict[str, str]:
    """Case names and reasons."""
    lines = [line for line in LEDGER.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split(": ", 1) for line in lines)


def write_ledger(entries: dict[str, str]) -> None:
    """Replace the ledger."""
    LEDGER.write_text(_HEAD + "".join(f"{name}: {entries[name]}\n" for name in sorted(entries)))


def compare() -> tuple[dict[str, str], list[str], dict[str, str]]:
    """All failures, the listed cases that pass or are gone, and the failures that are not listed."""
    failures = {case.name: problem for case in node_cases() if (problem := failure(case))}
    ledger = read_ledger()
    passing = [name for name in ledger if name not in failures]
    return failures, passing, {name: why for name, why in failures.items() if name not in ledger}


def main(arguments: list[str]) -> None:
    """Compare, and change the ledger when asked to."""
    if "--rewrite" in arguments:
        write_ledger({case.name: problem for case in node_cases() if (problem := failure(case))})
        return
    _, passing, fresh = compare()
    if "--shrink" in arguments:
        write_ledger({name: why for name, why in read_ledger().items() if name not in passing})
    print(f"{len(node_cases())} cases; listed and passing: {passing}; failing and not listed: {fresh}")


if __name__ == "__main__":
    main(sys.argv[1:])
