"""What a branch depends on that nobody can decide while a model is compiled, in the model's own words."""

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.support.dims import symbols_of
from xcompile.dialects.nn.control import ControlOp
from xcompile.dialects.nn.shapes import ShapeAnalysis


def how_to_decide(module: Module, cond: Value) -> str:
    """What to state so that a condition is known, for the hint of an error.

    Args:
        module: the model as far as it is imported, with the names and the shapes of its inputs.
        cond: the condition.
    """
    shapes, names = module.input_shapes(), module.input_names()
    symbols, data = _roots(ShapeAnalysis(module.main, shapes), cond)
    arguments = list(module.main.regions[0].blocks[0].arguments)
    read = [f"'{name}'" for a, name in zip(arguments, names, strict=True) if a in data]
    places = [
        f"axis {axis} of '{name}' ('{dim}')"
        for name, shape in zip(names, shapes, strict=True)
        for axis, dim in enumerate(shape)
        if not symbols.isdisjoint(symbols_of(dim))
    ]
    if data or not places:
        what = f"the data of {', '.join(read)}" if read else "computed data"
        return f"{what} decides; let both branches give one rank, or declare that of the output"
    return f"declare the size that decides, {' or '.join(places)}, as a number; or the rank of the output"


def _roots(analysis: ShapeAnalysis, cond: Value) -> tuple[set[str], list[Value]]:
    """The symbols of the sizes that a value is computed from, and the values whose elements it is."""
    symbols: set[str] = set()
    data: list[Value] = []
    pending, seen = [cond], {cond}
    while pending:
        value = pending.pop()
        content = analysis.content(value)
        op = None if isinstance(value.owner, ir.Block) else view(value.owner)
        if content is not None:
            symbols.update(s for dim in content for s in symbols_of(dim))
        elif op is None or isinstance(op, ControlOp):
            data.append(value)
        else:
            operands = [v for v in op.operands if v not in seen]
            seen.update(operands)
            pending += operands
    return symbols, data
