"""dce: remove ops whose results nobody uses."""

from dataclasses import dataclass
from typing import ClassVar

from xcompile.compiler.ir.passes import PatternPass


@dataclass(frozen=True)
class DeadCode(PatternPass):
    """Remove pure ops whose results nobody uses."""

    NAME: ClassVar[str] = "dce"
