"""What `diff` found, as data and as a table for a terminal."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from xcompile.compiler.numerics.compare import Metrics
from xcompile.compiler.support.page import page

Verdict = Literal["differs", "carries", "equal"]
"""Of a value: its own step is wrong; its step is right, but its operands were not quite; all is within the rounding."""


@dataclass(frozen=True)
class Row:
    """A tensor that the compiled model computes.

    Attributes:
        tensor: its name in the model; "" for one that only the compiled model has.
        nodes: the model nodes that were computed together to give it.
        kernel: the kind of kernel, "output" for what the whole model gave, "control" for a branch or loop.
        dtype: its type.
        shape: its sizes.
        metrics: how far it is, in a run of the whole model, from what is expected.
        own: what is wrong with it when its step runs on the expected operands; "" when nothing is.
        verdict: see `Verdict`.
    """

    tensor: str
    nodes: str
    kernel: str
    dtype: str
    shape: tuple[int, ...]
    metrics: Metrics
    own: str
    verdict: Verdict


@dataclass(frozen=True)
class Culprit:
    """Something that is wrong, and not for what came before it.

    Attributes:
        kind: whose fault it is.
        nodes: the model nodes to blame; "" when it is the whole program.
        name: of the op, the pass or the kernel.
        text: what is wrong.
    """

    kind: Literal["front end", "pass", "kernel", "program"]
    nodes: str
    name: str
    text: str

    def __str__(self) -> str:
        at = f" at '{self.nodes}'" if self.nodes else ""
        return f"{self.kind} {self.name}{at}: {self.text}"


@dataclass(frozen=True)
class Report:
    """A comparison of a compiled model.

    Attributes:
        model: its name.
        against: what it was compared with, "reference" or "onnxruntime".
        target: what it was compiled for.
        culprits: what is wrong, the first divergence first; empty when the model is right.
        rows: the tensors, in the order of the model.
    """

    model: str
    against: str
    target: str
    culprits: tuple[Culprit, ...]
    rows: tuple[Row, ...]

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.culprits

    def sorted_rows(self) -> list[Row]:
        """The rows: those that differ first, then those that carry an error, each in the order of the model."""
        order = ("differs", "carries", "equal")
        return sorted(self.rows, key=lambda row: order.index(row.verdict))

    def summary(self) -> str:
        """One line for people."""
        counts = {
            v: sum(row.verdict == v for row in self.rows) for v in ("differs", "carries", "equal")
        }
        found = f"{len(self.rows)} tensors against {self.against}: {counts['equal']} equal, "
        return f"{found}{counts['carries']} carry an error, {counts['differs']} differ"

    def to_json(self) -> dict[str, Any]:
        """Plain data; infinities stay Python's."""
        return {**asdict(self), "good": self.good}

    def to_html(self) -> str:
        """One page without anything outside of it."""
        colours = {"differs": "bad", "carries": "doubtful", "equal": ""}
        rows = self.sorted_rows()
        return page(
            f"xcompile diff: {self.model}",
            [
                f"{self.summary()}; compiled for {self.target}",
                *([] if self.culprits else ["Nothing is wrong."]),
            ],
            HEADER,
            [cells(row) for row in rows],
            points=[str(culprit) for culprit in self.culprits],
            classes=[colours[row.verdict] for row in rows],
        )


def number(value: float) -> str:
    """A number for people: "inf", "0", "1.3e-06", "104.2"."""
    if value == 0 or abs(value) == float("inf"):
        return f"{value:g}"
    return f"{value:.1f}" if 10 <= abs(value) < 1e4 else f"{value:.3g}"


def cells(row: Row) -> Sequence[str]:
    """A row as text, in the order of `HEADER`."""
    m = row.metrics
    shape = f"{row.dtype}[{', '.join(map(str, row.shape))}]"
    return (
        row.verdict, row.tensor or "-", row.nodes, row.kernel, shape, number(m.sqnr), f"{m.cosine:.6f}",
        number(m.max_abs), number(m.max_rel), row.own,
    )  # fmt: skip


HEADER = (
    "verdict", "tensor", "nodes", "kernel", "type", "SQNR dB", "cosine", "max abs", "max rel", "alone",
)  # fmt: skip
