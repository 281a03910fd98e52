"""What came of an accuracy budget: the precision of each product, as text and as a page."""

import math
import shlex
from collections import Counter
from dataclasses import dataclass

from xcompile.compiler.precisions import INTEGER
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.support.page import page
from xcompile.compiler.support.precision_map import FLOAT


@dataclass(frozen=True)
class Sensitivity:
    """What computing one product alone in fewer bits costs.

    Attributes:
        product: the name of the tensor that it gives.
        noise_db: in 8-bit integers: 10·log10 of the power of the outputs' error over that of the outputs; -inf where
            there is none.
        share: of the operations of all products that may be quantized, from 0 to 1.
        precision: what was chosen for it.
        narrow_db: as `noise_db`, in 16 bits; None where the product is of integers, so that nobody asked.
    """

    product: str
    noise_db: float
    share: float
    precision: str = INTEGER
    narrow_db: float | None = None


@dataclass(frozen=True)
class BudgetReport:
    """What came of a budget.

    Attributes:
        budget: what the metric may lose; infinite where it was only to be told.
        narrow: the precision of 16 bits between integers and float32: "bf16" or "fp16".
        floating: the metric of the float model.
        integer: that of the model with all products quantized.
        reached: that of the model that `rules` make.
        met: whether it is within the budget, with at least one product quantized.
        integer_share: which part of the operations of products `rules` make integer, from 0 to 1.
        products: that of the most noise for its work first; empty when nothing had to be kept.
        rules: for a `PrecisionMap`, behind those that there are: what is not of integers.
        table: the calibration table.
    """

    budget: float
    narrow: str
    floating: float
    integer: float
    reached: float
    met: bool
    integer_share: float
    products: tuple[Sensitivity, ...]
    rules: tuple[tuple[str, str], ...]
    table: CalibrationTable

    @property
    def header(self) -> tuple[str, ...]:
        """The columns of the table of products."""
        return "product", "noise in int8", f"in {self.narrow}", "work", "computed in"

    def text(self) -> str:
        """What was found: a line, a table, and the options that say the same without a search."""
        rows = [self.header, *map(_cells, self.products)] if self.products else []
        width = max((len(row[0]) for row in rows), default=0)
        lines = [
            f"{name:{width}}  {noise:>13}  {narrow:>9}  {work:>6}  {chosen}"
            for name, noise, narrow, work, chosen in rows
        ]
        options = [f"without a search: {self.options()}"] if self.met and self.rules else []
        return "\n".join([self.statement(), *lines, *options])

    def options(self) -> str:
        """The rules as options of the command line."""
        return " ".join(f"--precision={shlex.quote(f'{glob}={name}')}" for glob, name in self.rules)

    def page(self) -> str:
        """The same as an HTML page that needs nothing else; names from the model never become markup."""
        return page(
            f"Accuracy budget of {self.table.model}",
            [self.statement(), *self._remarks()],
            self.header,
            [_cells(each) for each in self.products],
            classes=["" if each.precision == INTEGER else "doubtful" for each in self.products],
        )

    def statement(self) -> str:
        """One sentence: whether the budget holds, and by what."""
        scores = f"float {self.floating:.6g}, int8 {self.integer:.6g}"
        if self.budget == math.inf:
            return f"the metric: {scores}"
        if not self.met:
            return f"no choice of int8 products stays within {self.budget:g}: {scores}"
        counts = Counter(each.precision for each in self.products)
        said = [
            f"{counts[name]} {'product' if counts[name] == 1 else 'products'} in {_called(name)}"
            for name in (self.narrow, FLOAT)
            if counts[name]
        ]
        chosen = " and ".join(said) or "0 products in float"
        return (
            f"within {self.budget:g}: {scores}, with {chosen} {self.reached:.6g}; "
            f"{self.integer_share:.1%} of the operations are of integers"
        )

    def _remarks(self) -> list[str]:
        """What a reader of the page asks next."""
        table = self.table
        said = [f"Ranges: observer {table.observer}, {table.samples} samples."]
        if table.keep_float:
            said.append(f"In float from the start: {', '.join(table.keep_float)}.")
        if self.budget == math.inf:
            said.append("No budget was given; nothing was kept in float for it.")
        elif not self.met:
            said.append(
                "No model was made. Products were left in float from the top of this table down; only with all of "
                "them in float the metric stays within the budget, if at all."
            )
        elif not self.products:
            said.append("No product had to be kept in float.")
        else:
            said.append(
                "Noise: of the outputs' error by that of the outputs when only this product is computed so. "
                "Work: its share of the operations of all products. What makes the most noise for its work stands "
                f"first. Products leave int8 from the top down, as few as the budget allows; of these, {self.narrow} "
                "is enough for all but as few as it allows."
            )
            said.append(f"Without a search: {self.options()}")
        return said


def _called(precision: str) -> str:
    """What tables call a precision."""
    return "float" if precision == FLOAT else precision


def _cells(each: Sensitivity) -> tuple[str, str, str, str, str]:
    """A product as text, in the order of the header."""
    narrow = "" if each.narrow_db is None else f"{each.narrow_db:.1f} dB"
    noise, work = f"{each.noise_db:.1f} dB", f"{each.share:.1%}"
    return each.product, noise, narrow, work, _called(each.precision)
