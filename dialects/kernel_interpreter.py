"""Execution of a module at the kernel level: each launch by the numpy meanings of its kernel's ops."""

from collections.abc import Mapping, Sequence

import numpy as np

from xcompile.compiler.ir.mlir import ir
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
    interpreter = KernelInterpreter(module, inputs)
    block = module.main.regions[0].blocks[0]
    known: dict[Value, np.ndarray] = dict(zip(block.arguments, inputs, strict=True))
    *body, terminator = [o.operation for o in block.operations]
    for operation in body:
        interpreter.execute(operation, known)
    return [known[v] for v in terminator.operands]


class KernelInterpreter:
    """Executes the ops of the kernel level one by one; subclasses may launch kernels in another way."""

    def __init__(self, module: Module, inputs: Sequence[np.ndarray]) -> None:
        """Prepare for ops of `module` where `@main` has these arguments."""
        self.module = module
        self.kernels = {f.sym_name: f for o in module.module.body.operations if (f := Func.of(o))}
        self.sizes = _sizes(module, inputs)

    def execute(self, operation: ir.Operation, known: dict[Value, np.ndarray]) -> None:
        """Compute the results of one op from the operands in `known`, and add them there.

        Raises:
            CompileError: XC2011 when it fails or is no op of the kernel level.
        """
        op = view(operation)
        if isinstance(op, Launch):
            results = self.launch(op, [known[v] for v in op.inputs])
            known.update(zip(op.results, results, strict=True))
        elif isinstance(op, View):
            known[op.y] = known[op.x].reshape(
                [dims.evaluate(d, self.sizes) for d in parse_shape(op.shape)]
            )
        elif isinstance(op, Const):
            known[op.y] = op.array(self.module.weights)
        else:
            raise CompileError("XC2011", f"{operation.name} is not of the kernel level")

    def launch(self, op: Launch, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of a launch."""
        kernel = self.kernels[op.callee]
        known = execute_kernel(self.module, kernel, inputs, self.bindings(op))
        return [known[v] for v in kernel.returned]

    def bindings(self, op: Launch) -> dict[str, int]:
        """What the kernel's d0, d1, … are in a launch."""
        return {
            f"d{i}": dims.evaluate(dims.parse(size), self.sizes) for i, size in enumerate(op.sizes)
        }


def execute_kernel(
    module: Module, kernel: Func, inputs: Sequence[np.ndarray], sizes: Mapping[str, int]
) -> dict[Value, np.ndarray]:
    """Every value of a kernel for the given arguments.

    Args:
        module: holds the weights.
        kernel: the kernel.
        inputs: one array a parameter.
        sizes: what d0, d1, … are.
    """
    known: dict[Value, np.ndarray] = dict(zip(kernel.parameters, inputs, strict=True))
    for operation in kernel.ops[:-1]:
        op = view(operation)
        if isinstance(op, Dims):
            known[op.y] = _elements(op, sizes)
        else:
            execute(operation, module, known)
    return known


def _sizes(module: Module, inputs: Sequence[np.ndarray]) -> Mapping[str, int]:
    """What the program's symbols are, from the sizes of the inputs."""
    found: dict[str, int] = {}
    for shape, array in zip(module.input_shapes(), inputs, strict=True):
        found.update(
            {str(d): n for d, n in zip(shape, array.shape, strict=True) if not isinstance(d, int)}
        )
    return found


def _elements(op: Dims, sizes: Mapping[str, int]) -> np.ndarray:
    values = [dims.evaluate(dims.parse(text), sizes) for text in op.values]
    array = np.array(values, numpy_dtype(op.y))
    return array if op.rank else array.reshape(())
