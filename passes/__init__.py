"""Every pass of the compiler by name; modules are imported when a pipeline first names a pass."""

from xcompile.compiler.ir.passes import PASS_REGISTRY

PASSES = {
    "nn-assign-layout": "xcompile.passes.nn.assign_layout:AssignLayout",
    "nn-choose-winograd": "xcompile.passes.nn.choose_winograd:ChooseWinograd",
    "kernel-form": "xcompile.passes.kernel.form:FormKernels",
}

PASS_REGISTRY.add(PASSES)
