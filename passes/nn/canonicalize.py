"""nn-canonicalize: remove what does nothing, and write what there are several ways to say in one way.

Every pattern is exact to the last bit, signs of zeros and NaN included.
"""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass
from xcompile.passes.nn.canonical_arithmetic import (
    AddZero,
    ClipOfClip,
    ClipOfNothing,
    ClipOfRelu,
    DivideByOne,
    Idempotent,
    MultiplyByOne,
    PowerOfConstant,
    ReluOfClip,
    SubtractZero,
    Undone,
)
from xcompile.passes.nn.canonical_control import (
    ConditionAlwaysHolds,
    DecidedBranch,
    HoistInvariant,
    NoIteration,
    OneIteration,
    UnusedOfBranches,
    UnusedOfLoop,
)
from xcompile.passes.nn.canonical_indices import (
    GatherElementsOfRows,
    GatherNdOfRows,
    ScatterElementsOfRows,
)
from xcompile.passes.nn.canonical_movement import (
    CastOfCast,
    CastToSame,
    ConcatOfConcat,
    ConcatOfOne,
    ExpandToSame,
    PadOfNothing,
    ReshapeOfView,
    SliceOfAll,
    SplitIntoOne,
    TileOnce,
    TransposeOfTranspose,
    TransposeToSame,
    ViewToSame,
)


@dataclass(frozen=True)
class Canonicalize(PatternPass):
    """Remove ops that do nothing and pairs that undo each other; merge transposes, reshapes, casts and clips; decide
    branches and move out of loops what does not change there.
    """

    NAME: ClassVar[str] = "nn-canonicalize"
    PATTERNS: ClassVar = (
        DecidedBranch,
        UnusedOfBranches,
        NoIteration,
        OneIteration,
        ConditionAlwaysHolds,
        UnusedOfLoop,
        HoistInvariant,
        AddZero,
        SubtractZero,
        MultiplyByOne,
        DivideByOne,
        PowerOfConstant,
        Undone,
        Idempotent,
        ClipOfNothing,
        ClipOfClip,
        ClipOfRelu,
        ReluOfClip,
        TransposeToSame,
        TransposeOfTranspose,
        ViewToSame,
        ReshapeOfView,
        ExpandToSame,
        TileOnce,
        SliceOfAll,
        PadOfNothing,
        ConcatOfOne,
        ConcatOfConcat,
        SplitIntoOne,
        CastToSame,
        CastOfCast,
        GatherElementsOfRows,
        GatherNdOfRows,
        ScatterElementsOfRows,
    )
