"""The page docs/operators.md: which ops of ONNX are taken, and by which kind of kernel.

python -m tests.e2e.operator_table            print how the page differs
python -m tests.e2e.operator_table --write    write it anew

Opsets and element types come from the importer's table. The kernels are those of the cases of ONNX's own suite, planned
for x86 with AVX2 but not compiled.
"""

import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tests.e2e.onnx_compiled import all_cases
from tests.e2e.onnx_node_cases import NodeCase
from xcompile.compiler.api import make_request
from xcompile.compiler.driver import plan_module
from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.backend import specialized
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.frontends.onnx.operator_table import Operator, operators

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
_CASES = 6
"""About how many cases of an op are planned."""

_HEAD = """\
# Operators

The operators of ONNX that are taken, with the opsets of their domain and the element types of their first operand.
**Kernels** says what makes them, on x86 with AVX2, in the cases of ONNX's own suite: `native` kernels have schedules
and vector code, `fallback` is a loop for each element: right, and slow. `none` needs no code. `definition` marks
operators that are imported as the simpler ones of their definition. What is not listed is refused with XC1006, all such
nodes of a model in one error.

Out of scope: operators on text (`StringNormalizer`, `StringConcat`, `StringSplit`, `RegexFullMatch`, `TfIdfVectorizer`)
and labels that are text. Strings have no fixed size, and kernels on them gain nothing from a compiler: they belong
before the model, or to `--fallback=onnxruntime`. An input that is text is refused with XC1012. So are decoders of image
files, and sequences, maps and optional values as inputs or outputs of a model; gradients belong to training.

This page is generated: `python -m tests.e2e.operator_table --write`.

| operator | opsets | element types | kernels |
|---|---|---|---|
"""


def cells(operator: Operator) -> list[str]:
    """The cells that need no model."""
    name = f"{operator.domain}.{operator.name}" if operator.domain else operator.name
    return [f"`{name}`", f"{operator.first}–{operator.last}", " ".join(operator.dtypes)]


def kernels(operator: Operator, cases: Sequence[NodeCase]) -> str:
    """The kinds of kernels that cases of the op are made of; empty when none is taken."""
    kinds: set[str] = set()
    own = [c for c in cases if any(_is(node, operator) for node in c.model.graph.node)]
    for _, group in groupby(sorted(own, key=_nodes), key=_nodes):
        alike = list(group)
        for case in alike[:: max(1, len(alike) // _CASES)]:
            found = _families(case)
            if found is not None:
                named = {"fallback" if family == "fallback" else "native" for family in found}
                kinds |= named or {"none"}
        if kinds:  # larger cases would tell of other operators too
            break
    if len(kinds) > 1:
        kinds.discard("none")
    text = ", ".join(sorted(kinds, reverse=True))
    return f"{text} (definition)" if text and operator.defined else text


def _nodes(case: NodeCase) -> int:
    return len(case.model.graph.node)


def _is(node: object, operator: Operator) -> bool:
    return (node.domain, node.op_type) == (operator.domain, operator.name)  # type: ignore[attr-defined]


def _families(case: NodeCase) -> set[str] | None:
    """The families of a case's kernels; None when it is refused."""
    request, _ = make_request("x86-avx2")
    for model in specialized(case.model, case.data[0][0] if case.data else []):
        try:
            artifact, _ = plan_module(import_onnx(model), request)
        except CompileError:
            continue
        return {kernel.family for kernel in artifact.kernels.values()}
    return None


def page() -> str:
    """The text of the page."""
    cases = all_cases()
    rows: list[str] = []
    for operator in operators():
        kind = kernels(operator, cases)
        if kind or not operator.defined:
            rows.append(f"| {' | '.join([*cells(operator), kind or 'no case'])} |\n")
    return _HEAD + "".join(rows)


def main(arguments: list[str]) -> None:
    """Compare, or write."""
    if "--write" in arguments:
        PAGE.write_text(page())
        return
    before, after = (set(text.splitlines()) for text in (PAGE.read_text(), page()))
    print(*sorted(before ^ after), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
