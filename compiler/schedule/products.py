"""What the innermost multiply-add of a matrix kernel takes, in numbers; `codegen/cpu/products.py` writes it.

Integer kernels are written for one instruction of the target. Each sums products of 8-bit integers in int32 exactly, so
that all of them give the same integers; they differ in how many elements of k a lane takes in one step.

Weights of 8 bits may meet float32: they are widened where they are loaded.

Products of floats of 16 bits are summed in float32. Where no instruction takes them they are widened: B where it is
loaded, A into scratch memory before, once for all panels.
"""

from dataclasses import dataclass
from typing import Literal

from xcompile.compiler.ir.dtypes import bits_of
from xcompile.compiler.schedule.schedule import ScheduleError, TargetNumbers

Instruction = Literal[
    "fma",
    "vpdpbusd",
    "pairs",
    "sdot",
    "udot",
    "smmla",
    "smull",
    "vdpbf16ps",
    "fmlal",
    "bfdot",
    "bfmmla",
]
"""The instructions; "fma" is of float32 or float64, "pairs" of int16 (`vpmaddwd` on x86), for any signs."""

NARROW_FLOATS = ("f16", "bf16")
"""The types of floats of 16 bits."""


@dataclass(frozen=True)
class ProductForm:
    """How products are summed.

    Attributes:
        instruction: which multiply-add.
        left: the type of A's elements as the innermost loop reads them.
        right: the type of B's elements in memory.
        sum: the type of the sums.
        group: elements of k that a lane takes in one step; they are neighbours in memory, in A and in a packed B.
        rows: rows of A that one multiply-add takes.
        widens_left: whether elements of A are widened into scratch before they are read.
    """

    instruction: Instruction
    left: str
    right: str
    sum: str
    group: int = 1
    rows: int = 1
    widens_left: bool = False

    @property
    def widens_right(self) -> bool:
        """Whether elements of B are widened where they are loaded."""
        return bits_of(self.right) < bits_of(self.left)

    def registers(self, rows: int, vectors: int) -> int:
        """Vector registers of a tile: sums, a row of the panel, an element of A, what lies between product and sum.

        One row reads the panel from memory.
        """
        between = 1 if self.instruction in ("pairs", "smull") else 0
        panel = 1 if rows == 1 else vectors * self.rows
        return rows * vectors + panel + 1 + between


def product_form(
    left: str, right: str, target: TargetNumbers, rows: int = 1, *, pairs: bool = True
) -> ProductForm:
    """The form of products of two element types on a target.

    Args:
        left: the type of A: "f32", "f64", "f16", "bf16", or "i8" or "ui8".
        right: the type of B; that of A, or "i8" or "ui8", or "i8" for a scaled float32.
        target: the machine.
        rows: rows of the register tile; some instructions take two at a time.
        pairs: whether instructions may take neighbours along k that are floats together.

    Raises:
        ScheduleError: there are no products of these types.
    """
    if left in ("f32", "f64") and left == right:
        return ProductForm("fma", left, left, left)
    if left in NARROW_FLOATS and left == right:
        if left == "bf16" and pairs and _has_vdpbf16ps(target):
            return ProductForm("vdpbf16ps", left, left, "f32", 2)
        if left == "bf16" and pairs and written_for(target, "bf16"):
            if rows % 2 == 0:
                return ProductForm("bfmmla", left, left, "f32", 4, 2)
            return ProductForm("bfdot", left, left, "f32", 2)
        if left == "f16" and written_for(target, "fp16fml"):
            return ProductForm("fmlal", left, left, "f32")
        return ProductForm("fma", "f32", left, "f32", widens_left=True)
    if (left, right) == ("f32", "i8"):
        return ProductForm("fma", left, right, left)
    if left not in ("i8", "ui8") or right not in ("i8", "ui8"):
        raise ScheduleError(f"there are no products of {left} and {right}")
    if (left, right) == ("ui8", "i8") and _has_vpdpbusd(target):
        return ProductForm("vpdpbusd", left, right, "i32", 4)
    if (left, right) == ("i8", "i8"):
        if rows % 2 == 0 and written_for(target, "i8mm"):
            return ProductForm("smmla", left, right, "i32", 8, 2)
        if written_for(target, "dotprod"):
            return ProductForm("sdot", left, right, "i32", 4)
        if written_for(target, "neon"):
            return ProductForm("smull", left, right, "i32", 2)
    if (left, right) == ("ui8", "ui8") and written_for(target, "dotprod"):
        return ProductForm("udot", left, right, "i32", 4)
    return ProductForm("pairs", "i16", right, "i32", 2, widens_left=True)


def written_for(target: TargetNumbers, feature: str) -> bool:
    """Whether kernels use the instructions of a feature, natively or, on targets made to stand for others, expanded."""
    if target.has("portable"):
        return target.has(f"portable-{feature}")
    return target.has(feature)


def _has_vdpbf16ps(target: TargetNumbers) -> bool:
    """Whether there is a vdpbf16ps of the target's vectors."""
    return written_for(target, "avx512bf16") and (
        target.lanes(32) == 16 or written_for(target, "avx512vl")
    )


def _has_vpdpbusd(target: TargetNumbers) -> bool:
    """Whether there is a vpdpbusd of the target's vectors: AVX-VNNI's has at most 256 bits."""
    if written_for(target, "avxvnni") and target.lanes(32) <= 8:
        return True
    return written_for(target, "avx512vnni") and (
        target.lanes(32) == 16 or written_for(target, "avx512vl")
    )
