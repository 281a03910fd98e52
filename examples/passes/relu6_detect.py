"""A pass with an option: find ReLU6, also when it is written as minimum and maximum."""

from dataclasses import dataclass
from typing import Any, ClassVar

from xcompile.compiler.ir.passes import PASS_REGISTRY, PassContext, PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, has_one_use, no_match, producer
from xcompile.dialects.nn.binary import Minimum
from xcompile.dialects.nn.ternary import Clip
from xcompile.dialects.nn.unary import Relu
from xcompile.passes.common.constants import number_of, scalar_like


@dataclass(frozen=True)
class DetectRelu6(Pattern[Minimum]):
    """`minimum(relu(x), 6)` becomes `clip(x, 0, 6)`."""

    limit: float

    def rewrite(self, op: Minimum, rewriter: Rewriter) -> None:
        relu = producer(op.a, Relu) or no_match("the first operand is not a ReLU")
        if number_of(rewriter, op.b) != self.limit or not has_one_use(op.a):
            no_match(f"the bound is not {self.limit}, or the ReLU has other users")
        low, high = (scalar_like(rewriter, v, relu.x) for v in (0.0, self.limit))
        rewriter.replace(op, rewriter.create(Clip, x=relu.x, low=low, high=high))


@PASS_REGISTRY.register
@dataclass(frozen=True)
class Relu6Detect(PatternPass):
    """Write ReLU6 as a clip; `relu6-detect{limit=1}` looks for ReLU1."""

    NAME: ClassVar[str] = "relu6-detect"

    limit: float = 6.0

    def patterns(self, context: PassContext) -> list[Pattern[Any]]:
        return [DetectRelu6(self.limit)]
