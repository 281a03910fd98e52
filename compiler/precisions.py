"""Which products of a compiled model are of integers, which are not, and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from xcompile.compiler.artifact import Artifact
from xcompile.compiler.support.dims import estimate, symbols_of

INTEGER = "int8"


@dataclass(frozen=True)
class NodePrecision:
    """A kernel with a product of matrices or a convolution.

    Attributes:
        nodes: the model nodes that it computes.
        arithmetic: what it multiplies: "int8", "float32", "int32", …
        operations: multiplications and additions, where sizes that are not known count as 1.
        why: the reason why it is not of 8-bit integers; empty where nobody said so.
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
    total = sum(row.operations for row in rows)
    integer = sum(row.operations for row in rows if row.arithmetic == INTEGER)
    return integer / total if total else 1.0


def summary(rows: Sequence[NodePrecision]) -> str:
    """One line: how many products are of integers."""
    count = sum(row.arithmetic == INTEGER for row in rows)
    return (
        f"{INTEGER}: {count} of {len(rows)} products, {integer_share(rows):.1%} of their operations"
    )
