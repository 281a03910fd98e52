"""nn-choose-winograd: mark the convolutions that are computed by Winograd's algorithm.

    %1 = "nn.conv"(%0, %w)
->
    %1 = "nn.conv"(%0, %w) {xc.winograd = 4}

The mark is the tile's edge, 2 or 4. Runs behind layout assignment: the algorithm is for blocked layouts.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.regions import nested
from xcompile.compiler.schedule import winograd
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.target import Target
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.layouts import block_of
from xcompile.dialects.nn.shapes import ShapeAnalysis
from xcompile.dialects.nn.spatial import resolve_pads

MARK = "xc.winograd"


@dataclass(frozen=True)
class ChooseWinograd(Pass):
    """Mark convolutions for Winograd's algorithm; see the module's docstring.

    Attributes:
        mode: "off"; "f2" or "f4" for that tile wherever it is possible (F(2×2) keeps errors below 1e-6 of the largest
            output, F(4×4) below 1e-5); "auto" where it is faster.
    """

    NAME: ClassVar[str] = "nn-choose-winograd"

    mode: str = "auto"

    def run(self, module: Module, context: PassContext) -> None:
        if self.mode not in ("off", "f2", "f4", "auto"):
            raise CompileError(
                "XC3003", f"the mode of {self.NAME} is off, f2, f4 or auto, not '{self.mode}'"
            )
        mode: Any = self.mode
        analysis = ShapeAnalysis(module.main, module.input_shapes())
        for operation in nested(module.main.operation):
            op = view(operation)
            if isinstance(op, Conv):
                edge = _edge(op, analysis, context.target, mode)
                if edge:
                    op.operation.attributes[MARK] = ir.IntegerAttr.get(
                        ir.IntegerType.get_signless(64), edge
                    )


def _edge(
    conv: Conv, analysis: ShapeAnalysis, target: Target, mode: Literal["off", "f2", "f4", "auto"]
) -> int:
    """The edge of the tiles, or 0 when the direct algorithm is to be used."""
    problem = _winograd_problem(conv, analysis)
    if problem is None or not winograd.pays(problem, target, mode):
        return 0
    return winograd.heuristic(problem, target, mode).m


def _winograd_problem(conv: Conv, analysis: ShapeAnalysis) -> winograd.WinogradProblem | None:
    """The convolution as Winograd's algorithm takes it, or None."""
    n, c, h, w = analysis.shape(conv.x) if len(analysis.shape(conv.x)) == 4 else (0, 0, 0, 0)
    shape, block = analysis.shape(conv.w), block_of(conv.y.type)
    if const_of(conv.w) is None or block == 0 or dtype_of(conv.w) != "f32":
        return None
    if block_of(conv.x.type) != block or shape[2:] != (3, 3) or conv.groups != 1:
        return None
    if set(conv.strides) != {1} or set(conv.dilations) != {1}:
        return None
    # with stride 1 the padding does not depend on the size
    (top, bottom), (left, right) = resolve_pads(
        [1, 1], (3, 3), strides=(1, 1), dilations=(1, 1), pads=conv.pads, auto_pad=conv.auto_pad
    )
    pads = (top, left, bottom, right)
    if (
        not all(0 <= p <= 2 for p in pads)
        or not isinstance(c, int)
        or not isinstance(shape[0], int)
    ):
        return None
    sizes = [d if isinstance(d, int) else "n" for d in (n, h, w)]
    return winograd.WinogradProblem(sizes[0], c, sizes[1], sizes[2], shape[0], block, pads)
