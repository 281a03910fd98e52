"""Matrix products."""

import numpy as np

from xcompile.compiler.ir.dtypes import is_float
from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.binary import Add, Mul
from xcompile.dialects.nn.linear import Det
from xcompile.dialects.nn.matmul import Einsum, MatMul
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.einsum import NotAProduct, decompose
from xcompile.frontends.onnx.equations import parse_equation
from xcompile.frontends.onnx.registry import onnx_op


@onnx_op("MatMul")
def matmul(node: NodeContext) -> list[Value]:
    return [node.make(MatMul, a=node.input(0), b=node.input(1)).y]


@onnx_op("Gemm")
def gemm(node: NodeContext) -> list[Value]:
    """`alpha·A·B + beta·C`: a product, and scalings and an addition where they do something."""
    if node.rank(0) != 2 or node.rank(1) != 2:
        raise node.error(
            "XC2003", f"Gemm of operands of rank {node.rank(0)} and {node.rank(1)}, not 2"
        )
    product = node.make(
        MatMul,
        a=node.input(0),
        b=node.input(1),
        transpose_a=bool(node.attr("transA", 0)),
        transpose_b=bool(node.attr("transB", 0)),
    ).y
    y = _scaled(node, product, node.attr("alpha", 1.0))
    beta = node.attr("beta", 1.0)
    if not node.has_input(2) or beta == 0:
        return [y]
    if node.rank(2) > 2:
        raise node.error("XC2003", f"the C of Gemm has rank {node.rank(2)}")
    constant = node.const(2)
    if constant is not None and beta != 1 and is_float(node.dtype(2)):
        addend = node.constant((constant.astype(np.float64) * beta).astype(constant.dtype))
    else:
        addend = _scaled(node, node.input(2), beta)
    return [node.make(Add, a=y, b=addend).y]


def _scaled(node: NodeContext, value: Value, factor: float) -> Value:
    if factor == 1:
        return value
    if not is_float(dtype_of(value)) and not factor.is_integer():
        raise node.error("XC2007", f"Gemm scales integers by {factor}")
    return node.make(Mul, a=value, b=node.scalar(factor, value)).y


# -- einsum -----------------------------------------------------------------------------------------


@onnx_op("Einsum", since=12)
def einsum(node: NodeContext) -> list[Value]:
    """Matrix products where the equation is made of some, else the general op."""
    operands = node.inputs()
    ranks = [node.rank(i) for i in range(len(operands))]
    equation = parse_equation(node.attr("equation"), ranks)
    try:
        return [decompose(node, equation, operands)]
    except NotAProduct:
        return [node.make(Einsum, xs=operands, equation=str(equation)).y]


@onnx_op("Det", since=11)
def determinant(node: NodeContext) -> list[Value]:
    return [node.make(Det, x=node.input(0)).y]
