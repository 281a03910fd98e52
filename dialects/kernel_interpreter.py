"""Execution of a module at the kernel level: each launch by the numpy meanings of its kernel's ops."""

from collections.abc import Mapping, Sequence

import numpy as np

from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.support import dims
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.kernel import Dims, Func, Launch, View, parse_shape
from xcompile.dialects.nn.base import numpy_dtype
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.interpreter import execute


def interpret_kernels(module: Module, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of `@main`, a function of launches, for the given arguments, in order.

    Raises:
        CompileError: XC2011 when an op fails or the module is not at the kernel level.
    """
    kernels = {f.sym_name: f for o in module.module.body.operations if (f := Func.of(o))}
    block = module.main.regions[0].blocks[0]
    known: dict[Value, np.ndarray] = dict(zip(block.arguments, inputs, strict=True))
    sizes = _sizes(module, inputs)
    *body, terminator = [o.operation for o in block.operations]
    for operation in body:
        op = view(operation)
        if isinstance(op, Launch):
            given = [known[v] for v in op.inputs]
            here = {f"d{i}": dims.evaluate(dims.parse(s), sizes) for i, s in enumerate(op.sizes)}
            results = _run(module, kernels[op.callee], given, here)
            known.update(zip(op.results, results, strict=True))
        elif isinstance(op, View):
            known[op.y] = known[op.x].reshape(
                [dims.evaluate(d, sizes) for d in parse_shape(op.shape)]
            )
        elif isinstance(op, Const):
            known[op.y] = op.array(module.weights)
        else:
            raise CompileError("XC2011", f"{operation.name} is not of the kernel level")
    return [known[v] for v in terminator.operands]


def _sizes(module: Module, inputs: Sequence[np.ndarray]) -> Mapping[str, int]:
    """What the program's symbols are, from the sizes of the inputs."""
    found: dict[str, int] = {}
    for shape, array in zip(module.input_shapes(), inputs, strict=True):
        found.update(
            {str(d): n for d, n in zip(shape, array.shape, strict=True) if not isinstance(d, int)}
        )
    return found


def _run(
    module: Module, kernel: Func, inputs: Sequence[np.ndarray], sizes: Mapping[str, int]
) -> list[np.ndarray]:
    known: dict[Value, np.ndarray] = dict(zip(kernel.parameters, inputs, strict=True))
    for operation in kernel.ops[:-1]:
        op = view(operation)
        if isinstance(op, Dims):
            known[op.y] = _elements(op, sizes)
        else:
            execute(operation, module, known)
    return [known[v] for v in kernel.returned]


def _elements(op: Dims, sizes: Mapping[str, int]) -> np.ndarray:
    values = [dims.evaluate(dims.parse(text), sizes) for text in op.values]
    array = np.array(values, numpy_dtype(op.y))
    return array if op.rank else array.reshape(())
