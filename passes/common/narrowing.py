"""Which ops may be computed on floats of 16 bits, and which choice of them has the fewest casts.

The lists are data. Products are what a narrow float is for: they read and write 16 bits, sum in float32 and round once.
What follows takes the type of what is around it: movement, pools, and functions of an element, which are computed in
float32 from 16 bits and rounded once; softmax, normalization and means are, too, with their sums in float32. Every
other op stays in float32: powers, exponentials, logarithms, plain sums, and what compares or counts.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from xcompile.compiler.support.min_cut import Node, min_cut
from xcompile.dialects.nn.kinds import MOVEMENT

PRODUCTS: Final = frozenset({"nn.conv", "nn.conv_transpose", "nn.matmul", "nn.fused_attention"})
"""Ops that are narrow wherever they may be."""

FOLLOWERS: Final = (
    MOVEMENT
    | frozenset({"nn.concat", "nn.split", "nn.where", "nn.max_pool", "nn.resize"})
    | frozenset(
        f"nn.{name}"
        for name in (
            "add sub mul div neg abs maximum minimum clip prelu relu leaky_relu elu celu selu gelu sigmoid hard_sigmoid"
            " hard_swish tanh softplus softsign mish swish thresholded_relu"
        ).split()
    )
    | frozenset({"nn.softmax", "nn.layer_norm", "nn.rms_norm", "nn.average_pool", "nn.reduce_mean",
                 "nn.reduce_max", "nn.reduce_min"})
)  # fmt: skip
"""Ops that take the type of what is around them."""

STAYS: Final = {
    **dict.fromkeys(("nn.rnn", "nn.gru", "nn.lstm"), "recurrent layers are in float32"),
    "nn.einsum": "this product of named axes is in float32",
}
"""Ops with products that stay as they are, and why."""

WIDE_OPERANDS: Final = {
    "nn.conv": ("bias",),
    "nn.conv_transpose": ("bias",),
    "nn.layer_norm": ("scale", "bias"),
    "nn.rms_norm": ("scale",),
    "nn.fused_attention": ("mask",),
    "nn.resize": ("scales", "roi"),
}
"""Operands that an op takes in float32 whatever its data are: what is added to sums in float32."""

WIDE: Final = "float32"
"""Among the makers and readers of a flow: somebody outside, who has float32."""


@dataclass(frozen=True)
class Flow:
    """A value of float32 between ops.

    Attributes:
        maker: the op, or `WIDE`.
        readers: ops, or `WIDE`; each once.
    """

    maker: Hashable
    readers: tuple[Hashable, ...]


def narrowed(
    flows: Sequence[Flow], narrow: Iterable[Hashable], wide: Iterable[Hashable]
) -> set[Hashable]:
    """The ops that are computed narrow in a choice with the fewest casts; of several, the one with the most.

    A value is cast at most once, for all readers of the other type.

    Args:
        flows: every value between ops, but constants, whose casts cost nothing.
        narrow: ops that must be.
        wide: ops that must not.
    """
    edges: list[tuple[Node, Node, int]] = []
    always = 2 * len(flows) + 1
    for number, flow in enumerate(flows):
        down, up = ("down", number), ("up", number)
        edges += [(flow.maker, down, 1), (up, flow.maker, 1)]
        for reader in flow.readers:
            edges += [(down, reader, always), (reader, up, always)]
    sink = ("narrow",)
    edges += [(op, sink, always) for op in narrow]
    edges += [(WIDE, op, always) for op in wide]
    kept = min_cut(edges, WIDE, sink)
    ops = {op for flow in flows for op in (flow.maker, *flow.readers)} | set(narrow)
    return ops - kept - {WIDE}


def count_casts(flows: Iterable[Flow], narrow: Collection[Hashable]) -> int:
    """How many values are cast when these ops are computed narrow."""
    return sum(
        any((reader in narrow) != (flow.maker in narrow) for reader in flow.readers)
        for flow in flows
    )
