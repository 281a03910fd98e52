"""Execution of a module at the kernel level: each launch by the numpy meanings of its kernel's ops."""

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.support import dims
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.kernel import (
    CARRIED,
    SHAPES,
    Check,
    Define,
    Dims,
    Func,
    Launch,
    Read,
    View,
    parse_shape,
)
from xcompile.dialects.nn.base import numpy_dtype
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.control import ControlOp, Fail, Loop
from xcompile.dialects.nn.interpreter import execute, operands_of


def interpret_kernels(module: Module, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of `@main`, a function of launches, for the given arguments, in order.

    Raises:
        CompileError: XC2011 when an op fails or the module is not at the kernel level.
    """
    interpreter = KernelInterpreter(module, inputs)
    block = module.main.regions[0].blocks[0]
    return interpreter.run_block(block, inputs, {})


class KernelInterpreter:
    """Executes the ops of the kernel level one by one; subclasses may launch kernels in another way."""

    def __init__(self, module: Module, inputs: Sequence[np.ndarray]) -> None:
        """Prepare for ops of `module` where `@main` has these arguments."""
        self.module = module
        self.kernels = _kernels(module)
        self.sizes = _sizes(module, inputs)

    def kernel(self, op: Launch) -> Func:
        """The kernel that a launch calls."""
        if op.callee not in self.kernels:  # it was added to the module
            self.kernels = _kernels(self.module)
        return self.kernels[op.callee]

    def run_block(
        self,
        block: ir.Block,
        arguments: Sequence[np.ndarray],
        around: MutableMapping[Value, np.ndarray],
    ) -> list[np.ndarray]:
        """What a block returns or yields for its arguments, where the values around it are known."""
        given: dict[Value, np.ndarray] = dict(zip(block.arguments, arguments, strict=True))
        known = ChainMap(given, around)
        *body, terminator = [o.operation for o in block.operations]
        for operation in body:
            self.execute(operation, known)
        if (fail := Fail.of(terminator)) is not None:
            raise CompileError("XC2011", fail.text)
        return [known[v] for v in terminator.operands]

    def execute(self, operation: ir.Operation, known: MutableMapping[Value, np.ndarray]) -> None:
        """Compute the results of one op from the values in `known`, and add them there.

        Raises:
            CompileError: XC2011 when it fails or is no op of the kernel level.
        """
        op = view(operation)
        if isinstance(op, Launch):
            results = self.launch(op, [known[v] for v in op.inputs])
            known.update(zip(op.results, results, strict=True))
        elif isinstance(op, View):
            known[op.y] = self._viewed(op, known[op.x])
        elif isinstance(op, Const):
            known[op.y] = op.array(self.module.weights)
        elif isinstance(op, ControlOp):
            self._control(op, known)
        elif isinstance(op, Read):
            elements = known[op.x].reshape(-1)
            self.sizes.update((s, int(n)) for s, n in zip(op.symbols, elements, strict=True) if s)
        elif isinstance(op, Define):
            self.sizes[op.symbol] = dims.evaluate(dims.parse(op.dim), self.sizes)
        elif isinstance(op, Check):
            left, right = (dims.evaluate(dims.parse(d), self.sizes) for d in (op.left, op.right))
            if left != right:
                raise CompileError("XC2011", op.text)
        else:
            raise CompileError("XC2011", f"{operation.name} is not of the kernel level")

    def _viewed(self, op: View, x: np.ndarray) -> np.ndarray:
        shape = [dims.evaluate(d, self.sizes) for d in parse_shape(op.shape)]
        if op.start:
            first = dims.evaluate(dims.parse(op.start), self.sizes)
            x = np.take(x, range(first, first + shape[op.axis]), op.axis)
        return x.reshape(shape)

    def _control(self, op: ControlOp, known: MutableMapping[Value, np.ndarray]) -> None:
        def run_block(block: ir.Block, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
            if isinstance(op, Loop):
                self._bind(op, CARRIED, arguments[1:])
            return self.run_block(block, arguments, known)

        results = op.run(run_block, *operands_of(op, known))
        self._bind(op, SHAPES, results)
        known.update(zip(op.results, results, strict=True))

    def _bind(self, op: ControlOp, attribute: str, arrays: Sequence[np.ndarray]) -> None:
        """Give symbols the sizes that arrays have, of which an attribute says the shapes."""
        texts = ir.ArrayAttr(op.operation.attributes[attribute])
        for text, array in zip(texts, arrays, strict=True):
            shape = parse_shape(ir.StringAttr(text).value)
            for dim, size in zip(shape, array.shape, strict=True):
                if not isinstance(dim, int) and str(dim) in map(
                    str, map(dims.symbol, dims.symbols_of(dim))
                ):
                    self.sizes[dims.symbols_of(dim)[0]] = size

    def launch(self, op: Launch, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of a launch."""
        kernel = self.kernel(op)
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


def _kernels(module: Module) -> dict[str, Func]:
    return {f.sym_name: f for o in module.module.body.operations if (f := Func.of(o))}


def _sizes(module: Module, inputs: Sequence[np.ndarray]) -> dict[str, int]:
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
