"""Which op of a kernel is wrong: kernels of more and more of its ops, each compared on the same operands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from xcompile.compiler.diff.native import NativeKernel, compile_kernels
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.numerics.compare import Allowed, mismatch
from xcompile.compiler.numerics.recording import allowed_of
from xcompile.compiler.target.target import Target
from xcompile.compiler.worker.pool import WorkerPool
from xcompile.dialects.kernel import Func, KernelSizes, Return, shape_text
from xcompile.dialects.kernel_interpreter import execute_kernel

_NO_CODE = frozenset({"nn.const", "kernel.dims"})
"""Ops that stand in a kernel without a model node of their own."""


@dataclass(frozen=True)
class WrongOp:
    """The op of a kernel behind which the compiled code is wrong.

    Attributes:
        name: of the op.
        nodes: the model nodes that it came from; "" when they are not known.
        alone: whether a kernel of this op alone is wrong too.
        text: what is wrong.
    """

    name: str
    nodes: str
    alone: bool
    text: str


@dataclass(frozen=True)
class _Part:
    """A kernel of some ops of another one.

    Attributes:
        func: the kernel.
        inputs: its arguments, as values of the other one.
        result: what it computes, as a value of the other one.
        holder: the module that keeps it alive.
    """

    func: Func
    inputs: Sequence[Value]
    result: Value
    holder: ir.Module


class Splitter:
    """Splits the kernels of a module.

    Args:
        module: at the kernel level.
        target: this machine.
        pool: compiles the parts.
        load: plug-ins for the workers.
    """

    def __init__(
        self, module: Module, target: Target, pool: WorkerPool, load: Sequence[str] = ()
    ) -> None:
        self._module = module
        self._target = target
        self._pool = pool
        self._load = load

    def wrong_op(
        self,
        func: Func,
        nodes: Sequence[str],
        inputs: Sequence[np.ndarray],
        sizes: Mapping[str, int],
    ) -> WrongOp | None:
        """The first op, in the order of the kernel, whose result is wrong; None when no part is wrong alone.

        Args:
            func: the kernel.
            nodes: the model nodes of its ops, as a launch has them.
            inputs: one array a parameter.
            sizes: what d0, d1, … are.
        """
        known = execute_kernel(self._module, func, inputs, sizes)
        ops = [o for o in func.ops[:-1] if o.name not in _NO_CODE]
        names = [*nodes, *[""] * (len(ops) - len(nodes))]
        prefixes = [_part(func, o, _behind(func, o), f"prefix_{i}") for i, o in enumerate(ops)]
        singles = [_part(func, o, [o], f"single_{i}") for i, o in enumerate(ops)]
        kernels = compile_kernels(
            [p.func for p in (*prefixes, *singles)], self._target, self._pool, load=self._load
        )
        wrong = [
            self._wrong(part, kernel, known, sizes) if isinstance(kernel, NativeKernel) else None
            for part, kernel in zip((*prefixes, *singles), kernels, strict=True)
        ]
        for position, (operation, node) in enumerate(zip(ops, names, strict=True)):
            text = wrong[position]
            if text is not None:
                alone = wrong[len(ops) + position]
                return WrongOp(operation.name, node, alone is not None, text)
        return None

    def _wrong(
        self,
        part: _Part,
        kernel: NativeKernel,
        known: Mapping[Value, np.ndarray],
        sizes: Mapping[str, int],
    ) -> str | None:
        (got,) = kernel.run([known[v] for v in part.inputs], sizes)
        inside = execute_kernel(self._module, part.func, [known[v] for v in part.inputs], sizes)
        allowed = Allowed()
        for op in map(view, part.func.ops[:-1]):
            if isinstance(op, Op):
                allowed = allowed.after(allowed_of(op, inside))
        return mismatch(got, known[part.result], allowed)


def _behind(func: Func, last: ir.Operation) -> list[ir.Operation]:
    """The ops of a kernel that an op's result depends on, and the op, in order."""
    needed: set[Value] = set(last.results)
    found: list[ir.Operation] = []
    for operation in reversed(func.ops[:-1]):
        if any(r in needed for r in operation.results):
            found.append(operation)
            needed.update(operation.operands)
    return found[::-1]


def _part(func: Func, last: ir.Operation, ops: Sequence[ir.Operation], name: str) -> _Part:
    """The kernel of some ops of a kernel, which gives the first result of the last of them."""
    sizes = KernelSizes(func)
    small = _small_ops(func, ops)
    every = [o for o in func.ops[:-1] if o in small or o in ops]
    made_inside = {r for o in every for r in o.results}
    inputs = list(dict.fromkeys(v for o in every for v in o.operands if v not in made_inside))
    parameters = func.parameters
    constants = tuple(
        i for i, v in enumerate(inputs) if v in parameters and parameters.index(v) in func.constants
    )
    holder = ir.Module.create(ir.Location.unknown())
    with ir.InsertionPoint(holder.body):
        made = Func.build(
            {
                "sym_name": name,
                "arguments": tuple(shape_text(sizes.shape(v)) for v in inputs),
                "constants": constants,
            },
            [],
        )
        block = ir.Block.create_at_start(
            made.operation.regions[0],
            [v.type for v in inputs],
            [ir.Location.unknown()] * len(inputs),
        )
        with ir.InsertionPoint(block):
            values: dict[Value, Value] = dict(zip(inputs, block.arguments, strict=True))
            for operation in every:
                copy = operation.clone()
                for position, operand in enumerate(operation.operands):
                    copy.operands[position] = values[operand]
                values.update(zip(operation.results, copy.results, strict=True))
            Return.build({"values": [values[last.results[0]]]}, [])
    return _Part(made, inputs, last.results[0], holder)


def _small_ops(func: Func, ops: Sequence[ir.Operation]) -> list[ir.Operation]:
    """The constants and sizes that some ops read."""
    read = {v for o in ops for v in o.operands}
    return [o for o in func.ops[:-1] if o.name in _NO_CODE and any(r in read for r in o.results)]
