"""From an instruction to what it does with the state of the threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from xcompile.compiler.ptx import arithmetic
from xcompile.compiler.ptx.copies import asynchronous
from xcompile.compiler.ptx.machine import DONE, WARP, Action, Machine
from xcompile.compiler.ptx.memory import UNSIGNED, Array, Trap
from xcompile.compiler.ptx.parser import refuse
from xcompile.compiler.ptx.syntax import (
    WIDTHS,
    Address,
    Instruction,
    Symbol,
    Vector,
)
from xcompile.compiler.ptx.tensor import load_matrix, multiply
from xcompile.compiler.ptx.transfers import (
    generic_transfer,
    global_transfer,
    local_transfer,
    shared_transfer,
)
from xcompile.compiler.ptx.values import TYPES, Operands, Reader


@dataclass(frozen=True)
class Decoder:
    """Makes the actions of the instructions of one launch.

    Attributes:
        operands: of the function.
        parameters: the bytes of each parameter, by name.
    """

    operands: Operands
    parameters: Mapping[str, bytes]

    def action(self, code: Instruction) -> Action:
        """What an instruction does.

        Raises:
            CompileError: XC4013, the instruction is not known.
        """
        made = self._computation(code)
        if made is not None:
            return made
        name = code.parts[0]
        if name in _FORMS:
            return _FORMS[name](self, code)
        refuse(code.line, f"the instruction '{code.text}' is not known")
        return None

    def read(self, code: Instruction, position: int, kind: str) -> Reader:
        """Reads an operand."""
        return self.operands.reader(code.operands[position], kind, code.line)

    def _computation(self, code: Instruction) -> Action | None:
        """An instruction whose operands are all of one type."""
        compute = arithmetic.operation(code.parts)
        if compute is None:
            return None
        kind = code.parts[-1]
        sources = [self.read(code, i, kind) for i in range(1, len(code.operands))]
        return self.computed(code, kind, compute, sources)

    def computed(
        self,
        code: Instruction,
        kind: str,
        compute: Callable[..., Array],
        sources: list[Reader],
    ) -> Action:
        """Writes what a function makes of some operands to the first one."""
        write = self.operands.writer(code.operands[0], kind, code.line)

        def action(machine: Machine) -> None:
            write(machine, compute(*(source(machine) for source in sources)))

        return action


Form: TypeAlias = Callable[[Decoder, Instruction], Action]
"""Makes the action of an instruction of one kind."""


def _same(x: Array) -> Array:
    return x


def _chosen(a: Array, b: Array, first: Array) -> Array:
    return np.where(first, a, b)


def _move(decoder: Decoder, code: Instruction) -> Action:
    kind = code.parts[-1]
    target, source = code.operands
    if isinstance(source, Vector):
        width = 8 * WIDTHS[kind] // len(source.items)
        parts = [decoder.operands.reader(each, f"u{width}", code.line) for each in source.items]

        def join(*values: Array) -> Array:
            total = np.array(0, UNSIGNED[WIDTHS[kind]])
            for i, value in enumerate(values):
                total = total | arithmetic.shift("shl")(
                    value.astype(total.dtype), np.array(i * width, np.uint32)
                )
            return total

        return decoder.computed(code, kind, join, parts)
    if isinstance(target, Vector):
        return _split(decoder, code, target)
    return decoder.computed(code, kind, _same, [decoder.read(code, 1, kind)])


def _split(decoder: Decoder, code: Instruction, target: Vector) -> Action:
    """`mov` of a register to registers of its parts."""
    kind, count = code.parts[-1], len(target.items)
    width = WIDTHS[kind] // count
    source = decoder.read(code, 1, kind)
    writers = [decoder.operands.writer(t, f"u{8 * width}", code.line) for t in target.items]

    def action(machine: Machine) -> None:
        value = source(machine)
        for i, write in enumerate(writers):
            moved = value >> np.array(8 * width * i, value.dtype)
            write(machine, moved.astype(UNSIGNED[width]))

    return action


def _multiply(decoder: Decoder, code: Instruction) -> Action:
    name, part, kind = code.parts[0], code.parts[1], code.parts[-1]
    if part not in ("lo", "hi", "wide") or arithmetic.is_float(kind):
        refuse(code.line, f"the instruction '{code.text}' is not known")
    result = f"{kind[0]}{2 * int(kind[1:])}" if part == "wide" else kind
    sources = [decoder.read(code, i, kind) for i in (1, 2)]
    if name == "mad":
        sources.append(decoder.read(code, 3, result))

    def compute(a: Array, b: Array, *addends: Array) -> Array:
        product = arithmetic.multiply(a, b, part)
        return product + addends[0] if addends else product

    return decoder.computed(code, result, compute, sources)


def _shift(decoder: Decoder, code: Instruction) -> Action:
    kind = code.parts[-1]
    counts = [decoder.read(code, i, "u32") for i in range(2, len(code.operands))]
    compute = arithmetic.shift(code.parts[0])
    return decoder.computed(code, kind, compute, [decoder.read(code, 1, kind), *counts])


def _leading_zeros(decoder: Decoder, code: Instruction) -> Action:
    source = decoder.read(code, 1, code.parts[-1])
    return decoder.computed(code, "u32", arithmetic.leading_zeros, [source])


def _select(decoder: Decoder, code: Instruction) -> Action:
    kind = code.parts[-1]
    sources = [decoder.read(code, 1, kind), decoder.read(code, 2, kind)]
    sources.append(decoder.read(code, 3, "pred"))
    return decoder.computed(code, kind, _chosen, sources)


def _compare(decoder: Decoder, code: Instruction) -> Action:
    if len(code.parts) != 3:
        refuse(code.line, f"the instruction '{code.text}' is not known")
    _, name, kind = code.parts
    sources = [decoder.read(code, i, kind) for i in (1, 2)]
    if arithmetic.compare(name, np.zeros(1), np.zeros(1)) is None:
        refuse(code.line, f"the comparison {name} is not known")

    def compute(a: Array, b: Array) -> Array:
        found = arithmetic.compare(name, a, b)
        assert found is not None
        return found

    return decoder.computed(code, "pred", compute, sources)


def _convert(decoder: Decoder, code: Instruction) -> Action:
    if code.parts == ("cvt", "rna", "tf32", "f32"):
        return decoder.computed(code, "b32", arithmetic.to_tf32, [decoder.read(code, 1, "b32")])
    *modes, target, source = code.parts[1:]
    kinds = tuple(modes)
    if source not in TYPES or target not in TYPES:
        refuse(code.line, f"the conversion '{code.text}' is not known")
    if arithmetic.convert(np.zeros(1, TYPES[source]), source, target, kinds) is None:
        refuse(code.line, f"the conversion '{code.text}' is not known")

    def compute(x: Array) -> Array:
        made = arithmetic.convert(x, source, target, kinds)
        assert made is not None
        return made

    return decoder.computed(code, target, compute, [decoder.read(code, 1, source)])


def _to_global(decoder: Decoder, code: Instruction) -> Action:
    """`cvta`: global and local addresses are the same in the generic space."""
    if not {"global", "local"} & {*code.parts}:
        refuse(code.line, f"the instruction '{code.text}' is not known")
    return decoder.computed(code, code.parts[-1], _same, [decoder.read(code, 1, "u64")])


def _branch(decoder: Decoder, code: Instruction) -> Action:
    label = code.operands[0]
    labels = decoder.operands.function.labels
    if not isinstance(label, Symbol) or label.name not in labels:
        refuse(code.line, "a branch leads nowhere")
    target = labels[label.name]
    return lambda machine: machine.jump(target)


def _return(decoder: Decoder, code: Instruction) -> Action:
    del decoder, code

    def action(machine: Machine) -> None:
        machine.jump(DONE)
        if machine.barriers:
            machine.complete()

    return action


def _barrier(decoder: Decoder, code: Instruction) -> Action:
    if "sync" not in code.parts or len(code.operands) != 1:
        refuse(code.line, f"the instruction '{code.text}' is not known")
    number = decoder.read(code, 0, "u32")
    return lambda machine: machine.arrive(number(machine), 0, wait=True, aligned=True)


def _shuffle(decoder: Decoder, code: Instruction) -> Action:
    """`shfl.sync.bfly`: the value of the thread whose lane differs in some bits."""
    if code.parts != ("shfl", "sync", "bfly", "b32") or len(code.operands) != 5:
        refuse(code.line, f"the instruction '{code.text}' is not known")
    target = code.operands[0]
    target = target.items[0] if isinstance(target, Vector) else target
    write = decoder.operands.writer(target, "b32", code.line)
    value, apart, last, mask = (decoder.read(code, i, "u32") for i in range(1, 5))

    def action(machine: Machine) -> None:
        machine.whole_warps("a shuffle")
        if (mask(machine) != 0xFFFFFFFF).any() or (last(machine) != WARP - 1).any():
            raise Trap("a shuffle of a part of a warp is not known")
        lane = machine.lane[machine.threads]
        source = np.arange(lane.size) - lane + (lane ^ apart(machine).astype(np.int64))
        values = np.broadcast_to(value(machine), lane.size)
        write(machine, values[source])

    return action


def _load(decoder: Decoder, code: Instruction) -> Action:
    kind = code.parts[-1]
    if "param" in code.parts:
        return _load_parameter(decoder, code)
    target = code.operands[0]
    items = target.items if isinstance(target, Vector) else (target,)
    address, width = (
        decoder.operands.address(code.operands[1], code.line),
        WIDTHS[kind] * len(items),
    )
    writers = [decoder.operands.writer(item, kind, code.line) for item in items]
    transfer = _transfer(code, width)

    def action(machine: Machine) -> None:
        data = transfer(machine, address(machine), None)
        values = np.ascontiguousarray(data).view(TYPES[kind]).reshape(-1, len(items))
        for i, write in enumerate(writers):
            write(machine, np.ascontiguousarray(values[:, i]))

    return action


def _load_parameter(decoder: Decoder, code: Instruction) -> Action:
    kind, place = code.parts[-1], code.operands[1]
    if not isinstance(place, Address) or not isinstance(place.base, Symbol):
        refuse(code.line, "a parameter is not addressed by its name")
    data = decoder.parameters.get(place.base.name, b"")
    part = data[place.offset : place.offset + WIDTHS[kind]]
    if len(part) != WIDTHS[kind]:
        refuse(code.line, f"{place.base.name} has no such bytes")
    value = np.frombuffer(part, TYPES[kind])[0]
    return decoder.computed(code, kind, lambda: np.array(value), [])


def _store(decoder: Decoder, code: Instruction) -> Action:
    kind, source = code.parts[-1], code.operands[1]
    items = source.items if isinstance(source, Vector) else (source,)
    address, width = (
        decoder.operands.address(code.operands[0], code.line),
        WIDTHS[kind] * len(items),
    )
    readers = [decoder.operands.reader(item, kind, code.line) for item in items]
    transfer = _transfer(code, width)

    def action(machine: Machine) -> None:
        count = machine.threads.size
        columns = [np.broadcast_to(reader(machine), count) for reader in readers]
        data = np.stack(columns, axis=1).view(np.uint8).reshape(count, width)
        transfer(machine, address(machine), data)

    return action


def _transfer(code: Instruction, width: int) -> Callable[[Machine, Array, Array | None], Array]:
    """Reads `width` bytes at each thread's address, or writes data there, in the instruction's memory."""
    if "global" in code.parts:
        return lambda machine, address, data: global_transfer(machine, address, width, data)
    if "shared" in code.parts:
        return lambda machine, address, data: shared_transfer(machine, address, width, data)
    if "local" in code.parts:
        return lambda machine, address, data: local_transfer(machine, address, width, data)
    return lambda machine, address, data: generic_transfer(machine, address, width, data)


def _of_operands(make: Callable[[Operands, Instruction], Action]) -> Form:
    return lambda decoder, code: make(decoder.operands, code)


_FORMS: Mapping[str, Form] = {
    "mov": _move,
    "mul": _multiply,
    "mad": _multiply,
    "shl": _shift,
    "shr": _shift,
    "bfe": _shift,
    "clz": _leading_zeros,
    "selp": _select,
    "setp": _compare,
    "cvt": _convert,
    "cvta": _to_global,
    "bra": _branch,
    "ret": _return,
    "exit": _return,
    "bar": _barrier,
    "barrier": _barrier,
    "shfl": _shuffle,
    "ld": _load,
    "st": _store,
    "cp": _of_operands(asynchronous),
    "ldmatrix": _of_operands(load_matrix),
    "mma": _of_operands(multiply),
}
"""Instructions with a form of their own; the others are in `arithmetic.operation`."""
