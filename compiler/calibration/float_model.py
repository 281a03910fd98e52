"""The float model that calibration runs: cleaned up as compiled models are, with the tensors in question as results."""

from collections.abc import Mapping

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.quantize.plan import QuantizationPlan, has_quantization, plan_quantization
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.host import host_target
from xcompile.dialects.nn.shapes import refine_types


def plan_float_model(module: Module) -> QuantizationPlan:
    """Clean an imported model up and decide what of it is quantized; in the module's context.

    Raises:
        CompileError: XC6009, the model says itself what is quantized.
    """
    refine_types(module, module.input_shapes())
    run_pipeline(module, parse_pipeline("@clean", PIPELINES), PassContext(host_target()))
    if has_quantization(module):
        raise CompileError(
            "XC6009", f"the model '{module.name}' says itself what is quantized",
            help="compile it without calibration",
        )  # fmt: skip
    return plan_quantization(module)


def expose(module: Module, values: Mapping[str, Value]) -> None:
    """Make these values the results of `@main`, under their names; in the module's context."""
    terminator = list(module.main.regions[0].blocks[0].operations)[-1].operation
    with ir.InsertionPoint(terminator):
        ir.Operation.create("func.return", operands=list(values.values()))
    terminator.erase()
    arguments = module.main.type.inputs
    kind = ir.FunctionType.get(arguments, [value.type for value in values.values()])
    module.main.attributes["function_type"] = ir.TypeAttr.get(kind)
    names = ir.ArrayAttr.get([ir.StringAttr.get(name) for name in values])
    module.module.operation.attributes["xc.outputs"] = names
