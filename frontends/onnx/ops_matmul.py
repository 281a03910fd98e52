"""Matrix products."""

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.matmul import MatMul
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import onnx_op


@onnx_op("MatMul")
def matmul(node: NodeContext) -> list[Value]:
    return [node.make(MatMul, a=node.input(0), b=node.input(1)).y]
