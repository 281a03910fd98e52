"""Shapes in patterns."""

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value
from xcompile.compiler.ir.rewrite import Rewriter, no_match
from xcompile.dialects.nn.base import rank_of
from xcompile.dialects.nn.shapes import ShapeAnalysis


def shapes(module: Module) -> ShapeAnalysis:
    """The shapes of `@main`; ask for it by `rewriter.analysis(shapes)`."""
    return ShapeAnalysis(module.main, module.input_shapes())


def same_shape(rewriter: Rewriter, a: Value, b: Value) -> bool:
    """Whether two values are known to have the same shape."""
    if a.type == b.type and ir.ShapedType(a.type).has_static_shape:
        return True
    if rank_of(a) != rank_of(b):
        return False
    known = rewriter.analysis(shapes)
    return known.shape(a) == known.shape(b)


def replace_by_operand(rewriter: Rewriter, op: Op, value: Value) -> None:
    """Replace the op by a value that it always equals; leaves the pattern where types forbid it."""
    if not same_shape(rewriter, op.results[0], value):
        no_match("the shape changes")
    if not rewriter.may_replace(op, value):
        no_match("the value is returned and its type says less or more than the other's")
    rewriter.replace(op, value)
