"""What numbers the products and nodes of a compiled model are of, and why."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from xcompile.compiler.artifact import Artifact, NodeStatement
from xcompile.compiler.support.dims import estimate, symbols_of
from xcompile.compiler.support.page import page

INTEGER = "int8"


@dataclass(frozen=True)
class NodePrecision:
    """A kernel with a product of matrices or a convolution.

    Attributes:
        nodes: the model nodes that it computes.
        arithmetic: what it multiplies: "int8", "float32", "int32", …
        operations: multiplications and additions, where sizes that are not known count as 1.
        why: the reason why it is not of what the model was compiled for; empty where it is, and where nobody said.
    """

    nodes: str
    arithmetic: str
    operations: int
    why: str


def precisions_of(artifact: Artifact) -> list[NodePrecision]:
    """The products of a model in the order of running."""
    reasons = [(set(nodes.split(" + ")), why) for nodes, why in artifact.kept_float]
    rows: list[NodePrecision] = []
    for launch in artifact.program.launches:
        arithmetic = artifact.kernels[launch.symbol].arithmetic
        if not arithmetic:
            continue
        ones = dict.fromkeys(symbols_of(launch.flops), 1)
        nodes = set(launch.node.split(" + "))
        why = next((text for kept, text in reasons if kept & nodes), "")
        why = "" if arithmetic == INTEGER else why
        rows.append(NodePrecision(launch.node, arithmetic, estimate(launch.flops, ones), why))
    return rows


def integer_share(rows: Sequence[NodePrecision]) -> float:
    """Which part of the operations of all products are of 8-bit integers, from 0 to 1; 1 where there are none."""
    return share(rows, INTEGER)


def share(rows: Sequence[NodePrecision], arithmetic: str) -> float:
    """Which part of the operations of all products are of such numbers, from 0 to 1; 1 where there are none."""
    total = sum(row.operations for row in rows)
    chosen = sum(row.operations for row in rows if row.arithmetic == arithmetic)
    return chosen / total if total else 1.0


def summary(rows: Sequence[NodePrecision]) -> str:
    """A line for each kind of numbers that products are of: how many of them, and how much of the work that is."""
    kinds = Counter(row.arithmetic for row in rows)
    return "\n".join(
        f"{kind}: {count} of {len(rows)} products, {share(rows, kind):.1%} of their operations"
        for kind, count in sorted(kinds.items())
    )


STATEMENTS = ("node", "op", "becomes", "computes in", "stores", "why")
"""The columns of the table of nodes."""


def statement_cells(statement: NodeStatement) -> tuple[str, ...]:
    """What is said of a node as text, in the order of `STATEMENTS`."""
    node = statement.node or "(inputs)"
    return (
        node, statement.kind, statement.ops, statement.arithmetic, statement.stores, statement.why
    )  # fmt: skip


def precision_page(artifact: Artifact) -> str:
    """What each node of a model computes in, and why, as an HTML page that needs nothing else."""
    statements = artifact.statements
    manifest = artifact.manifest
    counts = Counter(statement.arithmetic for statement in statements if statement.node)
    told = ", ".join(f"{count} in {name}" for name, count in counts.most_common() if name != "none")
    gone = counts.get("none", 0)
    colours = {INTEGER: "", "none": ""}
    return page(
        f"Precisions of {manifest.provenance['model']}",
        [
            f"Compiled for {manifest.target}.",
            *summary(precisions_of(artifact)).splitlines(),
            f"{sum(counts.values())} nodes: {told}; of {gone} nothing is left to compute.",
        ],
        STATEMENTS,
        [statement_cells(statement) for statement in statements],
        classes=[colours.get(statement.arithmetic, "doubtful") for statement in statements],
    )
