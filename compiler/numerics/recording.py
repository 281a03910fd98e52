"""What every value of a model is, recorded once and kept up to date while passes change the model.

One run of the reference records all values. After a pass, only ops that are new, changed, or read another value than
before are executed, on recorded operands. A result that agrees with the value in whose place it stands takes over that
value's recorded elements, and its name: so errors do not add up from pass to pass, and values keep the names that the
model gives them as long as they exist at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from xcompile.compiler.ir.location import node_names
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, identity, view
from xcompile.compiler.ir.regions import uses_of
from xcompile.compiler.numerics.compare import Allowed, mismatch
from xcompile.compiler.numerics.tolerance import JUMPS, reduction_length
from xcompile.dialects.kernel import Func, Launch
from xcompile.dialects.kernel_interpreter import KernelInterpreter, execute_kernel
from xcompile.dialects.nn.base import NnOp
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.interpreter import execute

_SUMS = frozenset(
    {"nn.conv", "nn.conv_transpose", "nn.matmul", "nn.reduce_mean", "nn.reduce_sum", "nn.average_pool"}
)  # fmt: skip
_KEEPS_DIFFERENCES = _SUMS | {
    "nn.add", "nn.sub", "nn.concat", "nn.transpose", "nn.reshape", "nn.flatten",
    "nn.squeeze", "nn.unsqueeze", "nn.relayout", "nn.neg", "nn.tanh", "nn.sigmoid",
}  # fmt: skip
"""Ops whose result differs when an operand does: a difference that is gone behind one has got small, not right."""

_NO_DATA = frozenset({"nn.const", "kernel.dims"})
"""Ops of kernels that read nothing."""


@dataclass
class _Seen:
    """An op as it was before a pass."""

    operands: Sequence[Value]
    results: Sequence[Value]
    key: object


@dataclass(frozen=True)
class Fault:
    """A value that a pass has changed.

    Attributes:
        value: the first one that is not what stood in its place.
        nodes: the model nodes of its op.
        text: what is wrong with it.
    """

    value: Value
    nodes: tuple[str, ...]
    text: str


@dataclass
class Recorded:
    """What is known of a value.

    Attributes:
        array: its elements.
        names: the model's tensors that it is.
        allowed: how far rounding may have moved it from what it replaces: that of its op and of those before it.
        rounding: that of its op alone.
        fault: why it is not what it should be.
    """

    array: np.ndarray
    names: tuple[str, ...] = ()
    allowed: Allowed = field(default_factory=Allowed)
    rounding: Allowed = field(default_factory=Allowed)
    fault: Fault | None = None


class Recording:
    """The values of a module while passes change it: call `before` and `after` around each pass.

    Ops without a meaning in numpy, and what depends on them, have no recorded values and are not compared.

    Attributes:
        module: the module.
        inputs: the arguments of `@main`.
        values: what is known.
        seen: the ops as `before` found them, by identity.
        by_node: the results of the ops of each model node, as `before` found them.
        executed: how many ops the reference has run.
    """

    def __init__(self, module: Module, inputs: Sequence[np.ndarray]) -> None:
        """Record the arguments of `@main`: one array each, of a module of the nn level."""
        self.module = module
        self.inputs = list(inputs)
        self.values: dict[Value, Recorded] = {}
        self.seen: dict[int, _Seen] = {}
        self.by_node: dict[str, list[Value]] = {}
        self.executed = 0
        self._kernels: KernelInterpreter | None = None
        arguments = module.main.regions[0].blocks[0].arguments
        for argument, array in zip(arguments, self.inputs, strict=True):
            self.values[argument] = Recorded(array)

    def run(self, names: Mapping[Value, tuple[str, ...]] | None = None) -> None:
        """Run the reference once, from start to end.

        Args:
            names: the model's names of values.

        Raises:
            CompileError: XC2011 an op fails on these inputs.
        """
        for operation in operations_of(self.module)[:-1]:
            self.execute(operation, self.values)
        for value, recorded in self.values.items():
            recorded.allowed, recorded.names = Allowed(), (names or {}).get(value, ())

    def before(self) -> None:
        """Remember the module as it is."""
        self.seen, self.by_node = {}, {}
        kernels = _kernel_keys(self.module)
        for operation in operations_of(self.module):
            operands, results = uses_of(operation), list(operation.results)
            self.seen[identity(operation)] = _Seen(operands, results, _key(operation, kernels))
            for name in node_names(operation.location):
                self.by_node.setdefault(name, []).extend(results)

    def after(self, changed: Sequence[ir.Operation] = ()) -> Fault | None:
        """Bring the values up to date; the first one that is wrong, when the pass changed what the model computes.

        Args:
            changed: the ops that the pass says it made or changed.

        Raises:
            CompileError: XC2011 an op of the changed module fails.
        """
        update = _Update(self, {identity(operation) for operation in changed})
        self.values = update.run()
        return update.fault

    def execute(self, operation: ir.Operation, values: dict[Value, Recorded]) -> None:
        """Record the results of an op, if those of its operands are."""
        op = view(operation)
        used = uses_of(operation)
        if op is None or not all(v in values for v in used):
            return
        known = {v: values[v].array for v in used}
        allowed = Allowed()
        if isinstance(op, Launch):
            allowed = self._launch(op, known)
        elif op.NAME.startswith("kernel.") or (len(operation.regions) and self.kernels.kernels):
            self.kernels.execute(operation, known)
        elif isinstance(op, NnOp) and (isinstance(op, Const) or _has_meaning(op)):
            execute(operation, self.module, known)
            allowed = allowed_of(op, known)
        else:
            return
        self.executed += 1
        rounding = allowed
        for operand in used:
            allowed = allowed.after(values[operand].allowed)
        for result in operation.results:
            values[result] = Recorded(known[result], allowed=allowed, rounding=rounding)

    def forget_kernels(self) -> None:
        """Look at the kernels of the module anew when they are needed again."""
        self._kernels = None

    @property
    def kernels(self) -> KernelInterpreter:
        """Executes ops of the kernel level."""
        if self._kernels is None:
            self._kernels = KernelInterpreter(self.module, self.inputs)
        return self._kernels

    def _launch(self, launch: Launch, known: dict[Value, np.ndarray]) -> Allowed:
        inputs = [known[v] for v in launch.inputs]
        results, allowed = self.launched(launch, inputs, self.kernels.bindings(launch))
        known.update(zip(launch.results, results, strict=True))
        return allowed

    def launched(
        self, launch: Launch, inputs: Sequence[np.ndarray], sizes: Mapping[str, int]
    ) -> tuple[list[np.ndarray], Allowed]:
        """The results of a launch for operands and sizes, and what rounding may do to them."""
        kernel = self.kernels.kernel(launch)
        inside = execute_kernel(self.module, kernel, inputs, sizes)
        allowed = Allowed()
        for operation in kernel.ops[:-1]:
            op = view(operation)
            if op is not None:
                allowed = allowed.after(allowed_of(op, inside))
        return [inside[v] for v in kernel.returned], allowed


class _Update:
    """One update of a recording after a pass."""

    def __init__(self, recording: Recording, touched: set[int]) -> None:
        self._recording = recording
        self._touched = touched
        self._old = recording.values
        self._new: dict[Value, Recorded] = {}
        self._unsettled: dict[Value, Value | None] = {}
        self._kernels = _kernel_keys(recording.module)
        self.fault: Fault | None = None

    def run(self) -> dict[Value, Recorded]:
        recording = self._recording
        recording.forget_kernels()
        for argument in recording.module.main.regions[0].blocks[0].arguments:
            self._new[argument] = self._old[argument]
        *body, terminator = operations_of(recording.module)
        for operation in body:
            self._visit(operation)
        self._finish(terminator)
        if self.fault is not None:
            self._name_by_nodes()
        for recorded in self._new.values():
            recorded.fault = None
        return self._new

    def _name_by_nodes(self) -> None:
        """Give values that are wrong the names of those of the same model nodes, in whose place they probably stand."""
        for value, counterpart in self._unsettled.items():
            if counterpart is not None and not self._new[value].names:
                self._new[value].names = self._old[counterpart].names

    def _visit(self, operation: ir.Operation) -> None:
        seen = self._recording.seen.get(identity(operation))
        operands = uses_of(operation)
        untouched = (
            seen is not None
            and identity(operation) not in self._touched
            and seen.key == _key(operation, self._kernels)
            and len(seen.operands) == len(operands)
        )
        faults: list[Fault] = []
        if untouched and seen is not None:
            faults = self._compare(seen.operands, operands)
            if not faults and seen.results and all(r in self._old for r in seen.results):
                self._new.update((r, self._old[r]) for r in seen.results)
                return
        self._recording.execute(operation, self._new)
        carried = faults or [r.fault for v in operands if (r := self._new.get(v)) and r.fault]
        settled = [self._settle(result, operation) for result in operation.results]
        if carried and not all(settled):
            for result in operation.results:
                if result in self._new:
                    self._new[result].fault = carried[0]
        elif carried and untouched and self._keeps_differences(operation):
            self.fault = self.fault or carried[0]

    def _keeps_differences(self, operation: ir.Operation) -> bool:
        """Whether a difference that is gone behind an op has got small, not right."""
        launch = Launch.of(operation)
        if launch is None:
            return operation.name in _KEEPS_DIFFERENCES
        kernel = self._recording.kernels.kernel(launch)
        names = [o.name for o in kernel.ops[:-1] if o.name not in _NO_DATA]
        return bool(names) and (names[0] in _SUMS or _KEEPS_DIFFERENCES.issuperset(names))

    def _compare(self, before: Sequence[Value], now: Sequence[Value]) -> list[Fault]:
        """What is wrong with the operands of an op that is still there."""
        faults: list[Fault] = []
        for old, new in zip(before, now, strict=True):
            wanted, got = self._old.get(old), self._new.get(new)
            if wanted is None or got is None:
                continue
            text = mismatch(got.array, wanted.array, got.allowed)
            if text is None:
                self._take_over(new, wanted)
            else:
                faults.append(got.fault or self._blame(new, text))
        return faults

    def _settle(self, value: Value, operation: ir.Operation) -> bool:
        """Whether a result is what it was, or what a value of the same model nodes was, whose place it takes."""
        made = self._new.get(value)
        if made is None:
            return True
        by_node = self._recording.by_node
        candidates = [value] if value in self._old else []
        for name in reversed(node_names(operation.location)):
            candidates += reversed(by_node.get(name, []))
        counterpart: Value | None = None
        for candidate in dict.fromkeys(candidates):
            wanted = self._old.get(candidate)
            if (
                wanted is None
                or wanted.array.shape != made.array.shape
                or wanted.array.dtype != made.array.dtype
            ):
                continue
            if mismatch(made.array, wanted.array, made.allowed) is None:
                self._take_over(value, wanted)
                return True
            counterpart = counterpart or candidate
        self._unsettled[value] = counterpart
        return False

    def _take_over(self, value: Value, wanted: Recorded) -> None:
        known = self._new[value]
        names = tuple(dict.fromkeys((*wanted.names, *known.names)))
        self._new[value] = Recorded(wanted.array, names, rounding=known.rounding)

    def _finish(self, terminator: ir.Operation) -> None:
        seen = self._recording.seen.get(identity(terminator))
        if seen is None or len(seen.operands) != len(terminator.operands):
            return
        faults = self._compare(seen.operands, list(terminator.operands))
        if faults:
            self.fault = self.fault or faults[0]

    def _blame(self, value: Value, text: str) -> Fault:
        """The fault for a value that is wrong: that of the first one behind it that has no counterpart."""
        behind, pending = {value}, [value]
        while pending:
            owner = pending.pop().owner
            operands = [] if isinstance(owner, ir.Block) else list(owner.operands)
            fresh = [v for v in operands if v in self._unsettled and v not in behind]
            behind.update(fresh)
            pending += fresh
        for each, counterpart in self._unsettled.items():
            if each in behind and counterpart is not None and each != value:
                made, wanted = self._new[each], self._old[counterpart]
                value, text = each, mismatch(made.array, wanted.array, made.allowed) or text
                break
        owner = value.owner
        nodes = () if isinstance(owner, ir.Block) else tuple(node_names(owner.location))
        return Fault(value, nodes, text)


def operations_of(module: Module) -> list[ir.Operation]:
    """The ops of `@main`, the terminator last."""
    return [o.operation for o in module.main.regions[0].blocks[0].operations]


def _kernel_keys(module: Module) -> Mapping[str, object]:
    """What each kernel is."""
    kernels = (Func.of(operation) for operation in module.module.body.operations)
    return {kernel.sym_name: _key(kernel.operation) for kernel in kernels if kernel is not None}


def _key(operation: ir.Operation, kernels: Mapping[str, object] | None = None) -> object:
    """What an op is besides its operands: equal keys, equal meaning."""
    attributes = {name: operation.attributes[name] for name in operation.attributes}
    launch = Launch.of(operation)
    if launch is not None and kernels is not None:
        return attributes, kernels.get(launch.callee)
    nested = [
        (identity(inner.operation), list(inner.operation.operands), _key(inner.operation, kernels))
        for region in operation.regions
        for block in region.blocks
        for inner in block.operations
    ]
    return attributes, nested


def _has_meaning(op: Op) -> bool:
    return hasattr(op, "reference") or bool(op.operation.regions)


def allowed_of(op: Op, known: Mapping[Value, np.ndarray]) -> Allowed:
    """What the rounding of an op may do, where its operands and results are these."""
    operands = [known[v] for v in op.operands if v in known]
    results = [known[v] for v in op.results if v in known]
    return Allowed(reduction_length(op, operands, results), op.NAME in JUMPS)
