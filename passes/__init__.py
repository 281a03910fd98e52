"""Every pass of the compiler by name; modules are imported when a pipeline first names a pass."""

from xcompile.compiler.ir.passes import PASS_REGISTRY

PASSES = {
    "cse": "xcompile.passes.common.cse:CommonSubexpressions",
    "dce": "xcompile.passes.common.dce:DeadCode",
    "kernel-form": "xcompile.passes.kernel.form:FormKernels",
    "nn-assign-layout": "xcompile.passes.nn.assign_layout:AssignLayout",
    "nn-canonicalize": "xcompile.passes.nn.canonicalize:Canonicalize",
    "nn-choose-winograd": "xcompile.passes.nn.choose_winograd:ChooseWinograd",
    "nn-conv-bias": "xcompile.passes.nn.conv_bias:ConvBias",
    "nn-decompose-attention": "xcompile.passes.nn.decompose_attention:DecomposeAttention",
    "nn-decompose-batch-norm": "xcompile.passes.nn.decompose_batch_norm:DecomposeBatchNorm",
    "nn-decompose-einsum": "xcompile.passes.nn.decompose_einsum:DecomposeEinsum",
    "nn-decompose-group-norm": "xcompile.passes.nn.decompose_group_norm:DecomposeGroupNorm",
    "nn-decompose-hardmax": "xcompile.passes.nn.decompose_hardmax:DecomposeHardmax",
    "nn-decompose-instance-norm": "xcompile.passes.nn.decompose_instance_norm:DecomposeInstanceNorm",
    "nn-decompose-lp-norm": "xcompile.passes.nn.decompose_lp_norm:DecomposeLpNorm",
    "nn-decompose-lrn": "xcompile.passes.nn.decompose_lrn:DecomposeLrn",
    "nn-decompose-mean-variance-norm": "xcompile.passes.nn.decompose_mean_variance_norm:DecomposeMeanVarianceNorm",
    "nn-decompose-quantize": "xcompile.passes.nn.decompose_quantize:DecomposeQuantize",
    "nn-fold-batch-norm": "xcompile.passes.nn.fold_batch_norm:FoldBatchNorm",
    "nn-fold-constants": "xcompile.passes.nn.fold_constants:FoldConstants",
    "nn-fold-scale": "xcompile.passes.nn.fold_scale:FoldScale",
    "nn-fuse-channel-shuffle": "xcompile.passes.nn.fuse_channel_shuffle:FuseChannelShuffle",
    "nn-fuse-gelu": "xcompile.passes.nn.fuse_gelu:FuseGelu",
    "nn-fuse-hard-swish": "xcompile.passes.nn.fuse_hard_swish:FuseHardSwish",
    "nn-fuse-layer-norm": "xcompile.passes.nn.fuse_layer_norm:FuseLayerNorm",
    "nn-fuse-pad": "xcompile.passes.nn.fuse_pad:FusePad",
    "nn-fuse-rms-norm": "xcompile.passes.nn.fuse_rms_norm:FuseRmsNorm",
    "nn-fuse-softmax": "xcompile.passes.nn.fuse_softmax:FuseSoftmax",
    "nn-fuse-attention": "xcompile.passes.nn.fuse_attention:FuseAttention",
    "nn-pool-to-mean": "xcompile.passes.nn.pool_to_mean:PoolToMean",
    "nn-project-recurrent-inputs": "xcompile.passes.nn.project_recurrent_inputs:ProjectRecurrentInputs",
    "nn-rows-to-images": "xcompile.passes.nn.rows_to_images:RowsToImages",
    "nn-shuffle-conv-transpose": "xcompile.passes.nn.shuffle_conv_transpose:ShuffleConvTranspose",
    "nn-split-reduction": "xcompile.passes.nn.split_reduction:SplitReduction",
    "nn-widen-integer-products": "xcompile.passes.nn.widen_integer_products:WidenIntegerProducts",
}

PASS_REGISTRY.add(PASSES)
