"""Execution of a module by the numpy meanings of its ops: slow, exact, and what everything else is
compared with.
"""

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np

from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, identity, view
from xcompile.compiler.ir.regions import uses_of
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, numpy_dtype, rank_of
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.control import ControlOp


def interpret(module: Module, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of `@main` for the given arguments, in order.

    Raises:
        CompileError: XC2011 arguments that do not fit, or an op that fails; the error names its node.
    """
    return evaluate(module, inputs, list(_terminator(module).operands))


def evaluate(
    module: Module, inputs: Sequence[np.ndarray], wanted: Sequence[Value]
) -> list[np.ndarray]:
    """The elements of values of `@main` for the given arguments, in order; only what they need is
    computed.
    """
    block = module.main.regions[0].blocks[0]
    if len(inputs) != len(block.arguments):
        raise CompileError(
            "XC2011", f"the model has {len(block.arguments)} inputs, {len(inputs)} are given"
        )
    known: dict[Value, np.ndarray] = {}
    for position, (argument, array) in enumerate(zip(block.arguments, inputs, strict=True)):
        known[argument] = _argument(argument, np.asarray(array), position)
    remaining = _uses(wanted)
    for operation in block.operations:
        if any(result in remaining for result in operation.operation.results):
            execute(operation.operation, module, known)
            _release(operation.operation, remaining, known)
    return [known[value] for value in wanted]


def _terminator(module: Module) -> ir.Operation:
    return list(module.main.regions[0].blocks[0].operations)[-1].operation


def _uses(wanted: Sequence[Value]) -> dict[Value, int]:
    """How often each needed value is used by needed ops, the caller's wish being one use."""
    uses: dict[Value, int] = {}
    pending = list(wanted)
    expanded: set[int] = set()
    while pending:
        value = pending.pop()
        uses[value] = uses.get(value, 0) + 1
        owner = value.owner
        if isinstance(owner, ir.Block) or identity(owner.operation) in expanded:
            continue
        expanded.add(identity(owner.operation))
        pending += uses_of(owner.operation)
    return uses


def _release(
    operation: ir.Operation, remaining: dict[Value, int], known: dict[Value, np.ndarray]
) -> None:
    for operand in uses_of(operation):
        remaining[operand] -= 1
        if remaining[operand] == 0:
            known.pop(operand, None)


def _argument(value: Value, array: np.ndarray, position: int) -> np.ndarray:
    if array.dtype != numpy_dtype(value) or array.ndim != rank_of(value):
        raise CompileError(
            "XC2011", f"argument {position} is {array.dtype} of rank {array.ndim}, not {value.type}"
        )
    _check_shape(value, array, f"argument {position}", None)
    return array


def _check_shape(value: Value, array: np.ndarray, what: str, node: str | None) -> None:
    kind = ir.ShapedType(value.type)
    fits = kind.rank == array.ndim and all(
        kind.is_dynamic_dim(i) or kind.get_dim_size(i) == d for i, d in enumerate(array.shape)
    )
    if not fits or array.dtype != numpy_dtype(value):
        raise CompileError(
            "XC2011", f"{what} is {array.dtype}{list(array.shape)}, not {value.type}", node=node
        )


def execute(
    operation: ir.Operation, module: Module, known: MutableMapping[Value, np.ndarray]
) -> None:
    """Compute the results of one nn op from the values in `known`, and add them there.

    Raises:
        CompileError: XC2011 when the op fails or gives what its type does not say.
    """
    op = view(operation)
    node = describe(operation.location)
    if not isinstance(op, NnOp):
        raise CompileError("XC2011", f"{operation.name} has no meaning in numpy", node=node)
    if isinstance(op, Const):
        results: Any = op.array(module.weights)
    else:
        try:
            with np.errstate(all="ignore"):  # infinities and NaN are results like others
                results = _results(op, module, known)
        except CompileError as error:
            error.node = error.node or node
            raise
        except (ValueError, IndexError, ArithmeticError, MemoryError) as error:
            raise CompileError("XC2011", f"{op.NAME} fails: {error}", node=node) from error
    if not isinstance(results, tuple | list):
        results = (results,)
    if len(results) != len(operation.results):
        raise CompileError(
            "XC2011",
            f"{op.NAME} gives {len(results)} of {len(operation.results)} results",
            node=node,
        )
    for value, array in zip(operation.results, results, strict=True):
        array = np.asarray(array)
        _check_shape(value, array, f"a result of {op.NAME}", node)
        known[value] = array


def _results(op: NnOp, module: Module, known: MutableMapping[Value, np.ndarray]) -> Any:
    operands = operands_of(op, known)
    if not isinstance(op, ControlOp):
        return op.reference(*operands)

    def run_block(block: ir.Block, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        given: dict[Value, np.ndarray] = dict(zip(block.arguments, arguments, strict=True))
        inside = ChainMap(given, known)
        *body, last = [o.operation for o in block.operations]
        for operation in body:
            execute(operation, module, inside)
        execute(last, module, inside)
        return [inside[v] for v in last.operands]

    return op.run(run_block, *operands)


def operands_of(op: Op, known: Mapping[Value, np.ndarray]) -> list[Any]:
    """The elements of the operands in field order."""
    found: list[Any] = []
    for given in op.operand_fields().values():
        if given is None:
            found.append(None)
        else:
            found.append([known[v] for v in given] if isinstance(given, list) else known[given])
    return found
