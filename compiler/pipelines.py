"""The default pipelines of the targets, as text."""

from collections.abc import Mapping

from xcompile.compiler.support.precision_map import ALL_FLOAT, PrecisionMap
from xcompile.compiler.target.target import Target

CLEAN_PASSES = ",".join(
    (
        "nn-fold-constants",
        "nn-canonicalize",
        "cse",
        "nn-sink-transposes",
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
        "nn-fold-constants",
    )
)
"""What makes a graph simple: constants folded, patterns of many ops recognised, batch normalization gone."""

FINISH_PASSES = ",".join(
    (
        "nn-shuffle-quantized-transpose",
        "nn-move-quantize",
        "nn-fold-constants",
        "nn-tabulate-bytes",
        "nn-lower-quantized",
        "nn-fuse-pad",
        "nn-match-signs",
        "nn-expand-zero-points",
        "nn-widen-integer-products",
        "nn-fuse-blocked-weights",
        "nn-decompose-quantize",
        "nn-fold-constants",
        "nn-canonicalize",
        "cse",
        "dce",
    )
)
"""What lowers quantized ops to integers, and writes the ops that are left as those that there are kernels for."""

GRAPH_PASSES = f"{CLEAN_PASSES},{FINISH_PASSES}"
"""What every target does to a graph before its own passes."""

PRECISION_PASSES: Mapping[str, str] = {
    "int8": "nn-smooth-activations,nn-insert-quantization",
    "dynamic": "nn-quantize-dynamically,nn-quantize-weights",
    "w8": "nn-quantize-weights",
    "w4": "nn-quantize-weights",
    "fp16": "nn-narrow-floats",
    "bf16": "nn-narrow-floats",
}
"""What stands between `@clean` and `@finish` for each precision but float32, in the order of running."""

PIPELINES: Mapping[str, str] = {
    "clean": CLEAN_PASSES,
    "finish": FINISH_PASSES,
    "graph": "@clean,@finish",
    "kernels": "nn-pack-tables,nn-decompose-split,nn-shuffle-conv-transpose,nn-assign-layout,nn-choose-winograd,"
    "nn-repeat-widening,kernel-form",
    "device-kernels": "nn-decompose-split,nn-assign-layout,nn-repeat-widening,kernel-form",
    "cpu": "@graph,@kernels",
    **{f"cpu-{name}": f"@clean,{text},@finish,@kernels" for name, text in PRECISION_PASSES.items()},
    "cuda": "@graph,@device-kernels",
    **{
        f"cuda-{name}": f"@clean,{text},@finish,@device-kernels"
        for name, text in PRECISION_PASSES.items()
    },
}
"""What `@name` stands for in pipeline text."""


def default_pipeline(target: Target, precisions: PrecisionMap = ALL_FLOAT) -> str:
    """The pipeline text of a target and the precisions of a model."""
    used = set(precisions.used())
    texts = (text for name, text in PRECISION_PASSES.items() if name in used)
    passes = dict.fromkeys(name for text in texts for name in text.split(","))
    if not passes:
        return "@cpu" if target.device is None else "@cuda"
    kernels = "@kernels" if target.device is None else "@device-kernels"
    return ",".join(("@clean", *passes, "@finish", kernels))
