"""Concatenations whose operands are made where the result lies, so that these need no launch.

Where no axis before theirs is longer than 1, operands are next to each other in the result. Elsewhere each lies there
in rows, with those of others between them: then the kernel that makes it is told so (`Rows`), if its family can store
that way and nobody else reads it.
"""

from collections.abc import Mapping, Sequence

from xcompile.compiler.codegen.cpu.families import plan
from xcompile.compiler.codegen.cpu.family import Kernel
from xcompile.compiler.codegen.cpu.layout import Layout
from xcompile.compiler.codegen.program.values import Part, Values
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value
from xcompile.compiler.support.dims import Dim, parse, product
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.target import Target
from xcompile.dialects.kernel import Func, Launch, Rows, View
from xcompile.dialects.nn.control import yielded
from xcompile.dialects.nn.slicing import Concat


def join_in_place(module: Module, values: Values, target: Target) -> None:
    """Join the operands of concatenations in memory; launches that store in rows call other kernels from then on."""
    joiner = _Joiner(module, values, target)
    for launch in values.launches:
        parts = joiner.parts(launch)
        if parts is not None:
            values.join(launch, parts)
    joiner.drop_unused()


class _Joiner:
    def __init__(self, module: Module, values: Values, target: Target) -> None:
        self._module = module
        self._values = values
        self._target = target
        self._funcs = {f.sym_name: f for o in _operations(module) if (f := Func.of(o)) is not None}
        self._in_rows: dict[tuple[str, tuple[str, ...]], Func | None] = {}
        self._families: dict[str, str] = {}
        self._replaced: set[str] = set()
        self._launches = values.launches
        whole = {result for launch in self._launches for result in launch.results}
        whole -= {v for v in whole if values.is_late(v)}  # allocated when their size is known
        whole -= {
            values.base(v)
            for block in values.ops
            if block != values.main
            for v in yielded(block) or ()
        }
        self._whole = whole
        self._movable = whole - {
            values.base(v) for v in values.returned
        }  # they lie with the caller

    def parts(self, launch: Launch) -> Mapping[Value, Part] | None:
        """Where the operands of a concatenation lie in its result; None where they cannot be made there."""
        concat = _only_concat(self._funcs[launch.callee])
        if concat is None or launch.results[0] not in self._whole or not self._are_free(launch):
            return None
        values, result = self._values, launch.results[0]
        layout = Layout.of(result.type)
        sizes = layout.sizes(values.shape(result))
        axis = concat.axis % len(values.shape(result))
        rows, item = product(sizes[:axis]), values.item_bytes(result)
        pitch = product(sizes[axis:])
        if axis == 1 and any(values.shape(v)[1] % max(layout.block, 1) for v in launch.inputs[:-1]):
            return None
        found: dict[Value, Part] = {}
        offset: Dim = 0
        for value in launch.inputs:
            lies = (1, 0) if rows == 1 else (rows, pitch * item)
            found[values.base(value)] = Part(result, offset * item, *lies)
            offset = offset + product(layout.sizes(values.shape(value))[axis:])
        return found if rows == 1 or self._store_in_rows(launch, rows, pitch) else None

    def _are_free(self, launch: Launch) -> bool:
        """Whether the operands (or what they view) can lie in the result, and nowhere else."""
        inputs = [self._values.base(v) for v in launch.inputs]
        here, layout = launch.operation.block, Layout.of(launch.results[0].type)
        free = all(
            v in self._movable
            and v not in self._values.inside
            and ir.OpResult(v).owner.operation.block == here
            and Layout.of(v.type) == layout
            for v in inputs
        )
        parts = any(self._values.based(v)[2] for v in launch.inputs)
        return free and len(set(inputs)) == len(inputs) and not parts

    # -- rows -----------------------------------------------------------------------------------

    def _store_in_rows(self, launch: Launch, rows: Dim, pitch: Dim) -> bool:
        """Let the kernels that make the operands store them in rows, if all can; those of GPUs cannot."""
        if self._target.device is not None:
            return False
        makers = [self._maker(v, rows) for v in launch.inputs]
        if len({maker[0] for maker in makers if maker is not None}) < len(makers):
            return False
        changes: list[tuple[Launch, Func, Sequence[Dim]]] = []
        for maker in makers:
            found = None if maker is None else self._changed(*maker, pitch)
            if maker is None or found is None:
                return False
            changes.append((maker[0], *found))
        for made, func, sizes in changes:
            self._replaced.add(made.callee)
            attributes = made.operation.attributes
            attributes["callee"] = ir.StringAttr.get(func.sym_name)
            texts = [ir.StringAttr.get(str(size)) for size in sizes]
            attributes["sizes"] = ir.ArrayAttr.get(texts)
        return True

    def _maker(self, value: Value, rows: Dim) -> tuple[Launch, int, int] | None:
        """The launch that makes an operand, which of its results that is, and how many axes count rows.

        None where others read the operand too.
        """
        while _has_one_use(value) and (seen := View.of(ir.OpResult(value).owner)) is not None:
            value = seen.x
        maker = Launch.of(ir.OpResult(value).owner)
        if maker is None or not _has_one_use(value) or maker not in self._values.launches:
            return None
        sizes = Layout.of(value.type).sizes(self._values.shape(value))
        axes = next((n for n in range(1, len(sizes)) if product(sizes[:n]) == rows), None)
        return None if axes is None else (maker, ir.OpResult(value).result_number, axes)

    def _changed(
        self, launch: Launch, position: int, axes: int, pitch: Dim
    ) -> tuple[Func, Sequence[Dim]] | None:
        """The kernel of a launch with a result in rows, and the launch's sizes then; None where there is none."""
        func, sizes = self._funcs[launch.callee], [parse(size) for size in launch.sizes]
        word = str(pitch)
        if not isinstance(pitch, int):
            if pitch not in sizes:
                sizes.append(pitch)
            word = f"d{sizes.index(pitch)}"
        rows = list(func.rows or ("",) * len(func.returned))
        rows[position] = str(Rows(axes, parse(word)))
        key = func.sym_name, tuple(rows)
        if key not in self._in_rows:
            self._in_rows[key] = self._stored_in_rows(*key)
        made = self._in_rows[key]
        return None if made is None else (made, sizes)

    def _stored_in_rows(self, name: str, rows: tuple[str, ...]) -> Func | None:
        """A kernel like another one that stores in rows; None where the same family cannot do that."""
        operation = self._funcs[name].operation.clone()
        operation.attributes["sym_name"] = ir.StringAttr.get(f"{name}_in_rows_{len(self._in_rows)}")
        operation.attributes["rows"] = ir.ArrayAttr.get([ir.StringAttr.get(t) for t in rows])
        self._module.module.body.append(operation)
        made = Func.of(operation)
        assert made is not None
        self._funcs[made.sym_name] = made
        if self._family(made) == self._family(self._funcs[name]) != "":
            return made
        self._replaced.add(made.sym_name)
        return None

    def _family(self, func: Func) -> str:
        """The name of the family that takes a kernel; "" where none does."""
        if func.sym_name not in self._families:
            try:
                self._families[func.sym_name] = plan(Kernel(func, self._target)).family
            except CompileError:
                self._families[func.sym_name] = ""
        return self._families[func.sym_name]

    def drop_unused(self) -> None:
        """Remove the kernels that no launch calls any more."""
        called = {launch.callee for launch in self._launches}
        made = {func.sym_name for func in self._in_rows.values() if func is not None}
        for name in sorted((self._replaced | made) - called):
            self._funcs[name].operation.erase()


def _operations(module: Module) -> list[ir.Operation]:
    return [o.operation for o in module.module.body.operations]


def _has_one_use(value: Value) -> bool:
    return len(list(value.uses)) == 1


def _only_concat(func: Func) -> Concat | None:
    """The concatenation of a kernel that does nothing else."""
    *ops, returned = func.ops
    concat = Concat.of(ops[0]) if len(ops) == 1 else None
    if (
        concat is None
        or list(concat.xs) != func.parameters
        or list(returned.operands) != [concat.y]
    ):
        return None
    return concat
