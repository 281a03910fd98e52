"""The default pipelines of the targets, as text."""

from collections.abc import Mapping

from xcompile.compiler.target.target import Target

GRAPH_PASSES = ",".join(
    (
        "nn-fold-constants",
        "nn-canonicalize",
        "cse",
        "nn-decompose-einsum",
        "nn-fuse-gelu",
        "nn-fuse-hard-swish",
        "nn-fuse-softmax",
        "nn-decompose-attention",
        "nn-fuse-attention",
        "nn-fuse-layer-norm",
        "nn-fuse-rms-norm",
        "nn-fuse-pad",
        "nn-fuse-channel-shuffle",
        "nn-pool-to-mean",
        "nn-conv-bias",
        "nn-fold-batch-norm",
        "fixpoint{max=4}(nn-conv-bias,nn-fold-scale)",
        "nn-decompose-batch-norm",
        "nn-decompose-instance-norm",
        "nn-decompose-group-norm",
        "nn-decompose-mean-variance-norm",
        "nn-decompose-lp-norm",
        "nn-decompose-hardmax",
        "nn-decompose-lrn",
        "nn-project-recurrent-inputs",
        "nn-split-reduction",
        "nn-rows-to-images",
        "nn-widen-integer-products",
        "nn-decompose-quantize",
        "nn-fold-constants",
        "nn-canonicalize",
        "cse",
        "dce",
    )
)
"""What every target does to a graph before its own passes."""

PIPELINES: Mapping[str, str] = {
    "graph": GRAPH_PASSES,
    "cpu": "@graph,nn-shuffle-conv-transpose,nn-assign-layout,nn-choose-winograd,kernel-form",
}
"""What `@name` stands for in pipeline text."""


def default_pipeline(target: Target) -> str:
    """The pipeline text of a target."""
    return "@cpu"
