"""What fusion needs to know of an nn op, by its name."""

from functools import cache

from xcompile.compiler.ir.op import op_class
from xcompile.dialects.nn.elementwise import Elementwise


@cache
def is_elementwise(name: str) -> bool:
    """Whether each element of the result comes from the operands' elements at its place (broadcasting)."""
    cls = op_class(name)
    return name == "nn.cast" or (cls is not None and issubclass(cls, Elementwise))


VIEWS = frozenset({"nn.reshape", "nn.flatten", "nn.squeeze", "nn.unsqueeze"})
"""Ops whose result has the bytes of their first operand."""

MOVEMENT = frozenset(
    {"nn.transpose", "nn.expand", "nn.slice", "nn.pad", "nn.tile", "nn.gather", "nn.gather_elements", "nn.gather_nd",
     "nn.relayout", "nn.depth_to_space", "nn.space_to_depth", "nn.channel_shuffle"}
) | VIEWS  # fmt: skip
"""Ops whose elements are elements of their first operand, at other places."""

SIZE_OPERANDS: dict[str, frozenset[str]] = {
    "nn.reshape": frozenset({"shape"}),
    "nn.expand": frozenset({"shape"}),
    "nn.slice": frozenset({"starts", "ends", "axes", "steps"}),
    "nn.pad": frozenset({"pads", "axes"}),
    "nn.tile": frozenset({"repeats"}),
    "nn.constant_of_shape": frozenset({"shape"}),
    "nn.split": frozenset({"lengths"}),
    "nn.shape": frozenset({"x"}),
    "nn.size": frozenset({"x"}),
    "nn.trilu": frozenset({"k"}),
    "nn.cumsum": frozenset({"axis"}),
    "nn.cumprod": frozenset({"axis"}),
    "nn.random_uniform": frozenset({"shape"}),
    "nn.one_hot": frozenset({"depth"}),
    "nn.topk": frozenset({"k"}),
    **{
        f"nn.reduce_{name}": frozenset({"dynamic_axes"})
        for name in (
            "sum",
            "mean",
            "max",
            "min",
            "prod",
            "l1",
            "l2",
            "log_sum",
            "log_sum_exp",
            "sum_square",
        )
    },
    "nn.range": frozenset({"start", "limit", "delta", "count"}),
    "nn.range_count": frozenset({"start", "limit", "delta"}),
    "nn.scaled_sizes": frozenset({"sizes"}),
    "nn.nonzero": frozenset({"count"}),
    "nn.compress": frozenset({"count"}),
    "nn.leading": frozenset({"count"}),
    "nn.list_boxes": frozenset({"count"}),
    "nn.pow": frozenset({"b"}),
    "nn.resize": frozenset({"sizes"}),
    "nn.max_unpool": frozenset({"shape"}),
}
"""Operands that say sizes or places and are not read as data when their content is known."""

REPEATS = frozenset({"nn.expand", "nn.tile", "nn.gather", "nn.gather_elements", "nn.gather_nd"})
"""Movement ops that may read an element many times: what is expensive is not recomputed for them."""

_ROWS = frozenset(
    {"nn.softmax", "nn.log_softmax", "nn.layer_norm", "nn.rms_norm"}
    | {
        f"nn.reduce_{n}"
        for n in (
            "sum",
            "mean",
            "max",
            "min",
            "prod",
            "l1",
            "l2",
            "log_sum",
            "log_sum_exp",
            "sum_square",
        )
    }
)

PROLOGUE_OPERANDS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(sorted(_ROWS), (0,)),
    "nn.cumsum": (0,),
    "nn.scatter_nd": (0, 2),
}
"""Which operands of an anchor may be elementwise expressions, by position."""

WIDENS = frozenset({"nn.average_pool", "nn.reduce_mean", "nn.reduce_sum"})
"""Anchors that read blocked images of 8-bit integers through the elementwise ops that widen these."""

ALONE = frozenset(
    {"nn.scatter_elements", "nn.scatter_nd", "nn.max_unpool", "nn.topk", "nn.cumsum", "nn.det", "nn.rnn", "nn.gru",
     "nn.lstm", "nn.nonzero", "nn.compress", "nn.find_unique", "nn.find_boxes", "nn.list_boxes"}
)  # fmt: skip
"""Anchors whose kernels end with them: they write their results where data says, or piece by piece."""

READS_STRIDED = frozenset({"nn.matmul", "nn.matmul_integer", "nn.fused_attention"})
"""Anchors that read operands through transpositions, and may store their result through one."""

TAKES_EPILOGUE = (
    frozenset(
        {
            "nn.conv",
            "nn.conv_integer",
            "nn.conv_transpose",
            "nn.matmul",
            "nn.matmul_integer",
            "nn.matmul_blocked",
            "nn.fused_attention",
            "nn.max_pool",
            "nn.average_pool",
            "nn.lp_pool",
        }
    )
    | _ROWS
)
"""Anchors whose kernels finish each element with the elementwise ops behind them."""
