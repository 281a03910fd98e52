"""What a model loses in another precision, tensor by tensor, as data, as a table and as a page."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from xcompile.compiler.diff.report import number
from xcompile.compiler.numerics.compare import Metrics
from xcompile.compiler.support.page import page

HEADER = (
    "tensor", "nodes", "op", "reads", "shape", "alone dB", "alone cosine", "alone max abs", "SQNR dB", "cosine",
    "max abs",
)  # fmt: skip

_LEGEND = (
    "Alone: the tensor's op, with the quantization of its operands, is given the float model's tensors, so this is "
    "what that op costs. The last three columns: each model runs from its own inputs, and errors add up. SQNR is the "
    "power of the float tensor by that of the difference, in decibels."
)


@dataclass(frozen=True)
class LossRow:
    """A tensor that both models have.

    Attributes:
        tensor: its name in the model.
        nodes: the model nodes that give it.
        op: what computes it.
        reads: the types in which its operands are stored: "ui8 × si8" of a product of integers.
        shape: its sizes.
        alone: how far it is from the float model's when its op, with the quantization of its operands, is given the
            float model's tensors: what this op alone costs.
        accumulated: how far it is when each model runs from its own inputs.
    """

    tensor: str
    nodes: str
    op: str
    reads: str
    shape: tuple[int, ...]
    alone: Metrics
    accumulated: Metrics


@dataclass(frozen=True)
class LossReport:
    """A model in floating point and in another precision.

    Attributes:
        model: the name of the float model.
        against: what it is compared with: a target with its precision, or the name of another model.
        rows: the tensors, in the order of running.
        outputs: the model's outputs in `against`.
        executed: whether the outputs are those of the compiled code; else, where this machine cannot run it, of its
            numpy meaning.
    """

    model: str
    against: str
    rows: tuple[LossRow, ...]
    outputs: tuple[str, ...]
    executed: bool

    def sorted_rows(self) -> list[LossRow]:
        """The rows, those that cost most alone first."""
        return sorted(self.rows, key=lambda row: (row.alone.sqnr, row.accumulated.sqnr))

    def summary(self) -> str:
        """What becomes of the outputs, and which tensor costs most, in one line."""
        found = [row for row in self.rows if row.tensor in self.outputs]
        parts = [
            f"'{row.tensor}' {number(row.accumulated.sqnr)} dB, cosine {row.accumulated.cosine:.6f}"
            for row in found
        ]
        how = "" if self.executed else " by its meaning (this machine cannot run the code)"
        text = f"{len(self.rows)} tensors in {self.against} against float32; outputs{how}: "
        text += "; ".join(parts) or "none in common"
        worst = self.sorted_rows()[:1]
        if worst and worst[0].alone.sqnr != float("inf"):
            text += f"; '{worst[0].tensor}' costs most alone, {number(worst[0].alone.sqnr)} dB"
        return text

    def to_json(self) -> dict[str, Any]:
        """Plain data; infinities stay Python's."""
        return asdict(self)

    def to_html(self) -> str:
        """One page without anything outside of it."""
        rows = self.sorted_rows()
        return page(
            f"xcompile diff: {self.model} in float32 and {self.against}",
            [
                self.summary(),
                _LEGEND,
            ],
            HEADER,
            [cells(row) for row in rows],
        )


def cells(row: LossRow) -> Sequence[str]:
    """A row as text, in the order of `HEADER`."""
    alone, far = row.alone, row.accumulated
    return (
        row.tensor, row.nodes, row.op, row.reads, f"[{', '.join(map(str, row.shape))}]", number(alone.sqnr),
        f"{alone.cosine:.6f}", number(alone.max_abs), number(far.sqnr), f"{far.cosine:.6f}", number(far.max_abs),
    )  # fmt: skip
