"""The rt level: the program of one model, as data.

A program is a block of steps: launches on places in memory, and what is between them. `host_entry` makes native code of
it; its text is what `--dump` shows, and two equal programs are equal JSON.

What follows from the sizes of the inputs is computed once for them, by `P_prepare`, into a table. What depends on
data is found by the run and lies in its *frame*: 8-byte slots for symbols and addresses, at the start of its arena, or
in scratch memory where the arena is a GPU's.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from xcompile.compiler.codegen.program.json_form import from_json, to_json
from xcompile.compiler.support.dims import Dim, evaluate, symbol, symbols_of
from xcompile.runtime.device import DeviceKernel

SLOT_BYTES = 8
_LINE_BYTES = 64


@dataclass(frozen=True)
class Place:
    """Where a tensor lies.

    Attributes:
        space: "input" and "output" (offset is the position), "arena", "weights", "prepared" (offset in bytes) or "heap"
            (offset in bytes from the address in a slot of the frame).
        offset: see `space`.
        slot: for "heap", which of the program's addresses.
        value: for "arena", names the value that owns the memory, for the verifier.
        at: for "input" and "output", bytes from the beginning of the array.
        rows: how many rows the tensor lies in, each in one piece.
        pitch: bytes from the beginning of one row to that of the next, where there are several.
    """

    space: str
    offset: Dim
    slot: int = 0
    value: int = 0
    at: Dim = 0
    rows: Dim = 1
    pitch: Dim = 0

    @property
    def is_given(self) -> bool:
        """Whether the caller's memory is meant."""
        return self.space in ("input", "output")

    @property
    def dims(self) -> tuple[Dim, ...]:
        """What it takes to find it."""
        return (self.offset, self.at)

    def behind(self, count: Dim) -> "Place":
        """The place so many bytes behind this one."""
        if self.is_given:
            return replace(self, at=self.at + count)
        return replace(self, offset=self.offset + count)

    def mapped(self, size: Callable[[Dim], Dim]) -> "Place":
        """The same place with other words for its sizes."""
        return replace(self, offset=size(self.offset), at=size(self.at))

    def __str__(self) -> str:
        space = f"heap{self.slot}" if self.space == "heap" else self.space
        rows = f" in {self.rows} rows of {self.pitch}" if self.rows != 1 else ""
        return f"{space}[{self.offset}]" + (f"+{self.at}" if self.at != 0 else "") + rows


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        symbol: the kernel's symbol; its task is `{symbol}_task`.
        places: the buffers, inputs then outputs.
        sizes: what the kernel's d0, d1, … are.
        extent: the number of parallel units.
        grain: fewest units in a part.
        scratch: bytes of scratch a part needs.
        node: the model nodes it computes, for reports.
        flops: floating-point operations, a multiplication and an addition being two.
        lengths: bytes of each place.
        results: how many of the places, at the end, are written.
    """

    symbol: str
    places: tuple[Place, ...]
    sizes: tuple[Dim, ...]
    extent: Dim
    grain: int
    scratch: int
    node: str
    flops: Dim = 0
    lengths: tuple[Dim, ...] = ()
    results: int = 1

    @property
    def bytes(self) -> Dim:
        """Bytes of operands and results, each once."""
        return sum(self.lengths, start=0)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """What the launch itself needs to know."""
        return (*(d for p in self.places for d in p.dims), *self.sizes, self.extent)

    def __str__(self) -> str:
        sizes = f" sizes({', '.join(map(str, self.sizes))})" if self.sizes else ""
        return f"launch {self.symbol}({', '.join(map(str, self.places))}){sizes} units {self.extent} // {self.node}"


@dataclass(frozen=True)
class Check:
    """A relation between sizes that must hold: `left == right`, else the call fails with `text`."""

    left: Dim
    right: Dim
    text: str

    @property
    def dims(self) -> tuple[Dim, ...]:
        return (self.left, self.right)

    def __str__(self) -> str:
        return f"check {self.left} == {self.right} // {self.text}"


@dataclass(frozen=True)
class Read:
    """Give a symbol the value of an integer in memory.

    Attributes:
        symbol: its name.
        place: the tensor.
        index: which of its elements.
        dtype: "i64" or "i32".
    """

    symbol: str
    place: Place
    index: int
    dtype: str

    @property
    def dims(self) -> tuple[Dim, ...]:
        return self.place.dims

    def __str__(self) -> str:
        return f"let {self.symbol} = {self.place}[{self.index}] as {self.dtype}"


@dataclass(frozen=True)
class Define:
    """Give a symbol the value of an expression; the run fails when it does not fit 64 bits."""

    symbol: str
    dim: Dim

    @property
    def dims(self) -> tuple[Dim, ...]:
        return (self.dim,)

    def __str__(self) -> str:
        return f"let {self.symbol} = {self.dim}"


@dataclass(frozen=True)
class Allocate:
    """Take memory from the run's heap; the run fails when there is none.

    Attributes:
        slot: which of the program's addresses it gets.
        size: bytes.
    """

    slot: int
    size: Dim

    @property
    def dims(self) -> tuple[Dim, ...]:
        return (self.size,)

    def __str__(self) -> str:
        return f"allocate heap{self.slot} {self.size} bytes"


@dataclass(frozen=True)
class Free:
    """Give memory back to the run's heap."""

    slot: int
    dims: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        return f"free heap{self.slot}"


@dataclass(frozen=True)
class Give:
    """Hand an output whose size depends on data to the caller: its address and the sizes that the table lacks.

    Attributes:
        output: its position.
        slot: which of the program's addresses it is.
        sizes: those of its sizes that depend on data, in order.
        first: the slot of the frame that the first of them goes to.
    """

    output: int
    slot: int
    sizes: tuple[Dim, ...]
    first: int

    @property
    def dims(self) -> tuple[Dim, ...]:
        return self.sizes

    def __str__(self) -> str:
        return f"give output {self.output} heap{self.slot} sizes({', '.join(map(str, self.sizes))})"


@dataclass(frozen=True)
class Copy:
    """Copy bytes from one place to another."""

    source: Place
    target: Place
    length: Dim

    @property
    def dims(self) -> tuple[Dim, ...]:
        return (*self.source.dims, *self.target.dims, self.length)

    def __str__(self) -> str:
        return f"copy {self.source} to {self.target} {self.length} bytes"


@dataclass(frozen=True)
class Store:
    """Write a number to memory as int64."""

    place: Place
    dim: Dim

    @property
    def dims(self) -> tuple[Dim, ...]:
        return (*self.place.dims, self.dim)

    def __str__(self) -> str:
        return f"store {self.dim} to {self.place}"


@dataclass(frozen=True)
class Move:
    """Let one of the program's addresses be that of another one, which has none from then on."""

    slot: int
    source: int
    dims: tuple[Dim, ...] = ()

    def __str__(self) -> str:
        return f"move heap{self.source} to heap{self.slot}"


@dataclass(frozen=True)
class Append:
    """Copy bytes behind those that heap memory holds already; it grows, by doubling at least, where they do not fit.

    Attributes:
        slot: which of the program's addresses.
        source: what is copied.
        length: how many bytes.
        filled: the symbol that says how many bytes the memory holds, and then how many with these.
        capacity: the symbol that says for how many it has room.
    """

    slot: int
    source: Place
    length: Dim
    filled: str
    capacity: str

    @property
    def dims(self) -> tuple[Dim, ...]:
        return (*self.source.dims, self.length)

    def __str__(self) -> str:
        return f"append {self.source} {self.length} bytes to heap{self.slot} ({self.filled} of {self.capacity})"


@dataclass(frozen=True)
class If:
    """Do one of two lists of steps, whether the byte at a place is not 0."""

    cond: Place
    then: "tuple[Step, ...]"
    otherwise: "tuple[Step, ...]"

    @property
    def dims(self) -> tuple[Dim, ...]:
        return self.cond.dims

    def __str__(self) -> str:
        then, otherwise = (_indented(steps) for steps in (self.then, self.otherwise))
        return f"if {self.cond} {{\n{then}\n}} else {{\n{otherwise}\n}}"


@dataclass(frozen=True)
class Loop:
    """Do steps again and again.

    Attributes:
        iteration: the symbol that counts; it is 0 before, and how often the steps were done afterwards.
        trip: how often at most, if `counted`.
        going: the byte that says whether to go on, if `conditional`: looked at before each iteration.
        body: the steps.
    """

    iteration: str
    counted: bool
    trip: Dim
    conditional: bool
    going: Place
    body: "tuple[Step, ...]"

    @property
    def dims(self) -> tuple[Dim, ...]:
        return (self.trip, *self.going.dims)

    def __str__(self) -> str:
        most = f" {self.trip} times" if self.counted else ""
        while_ = f" while {self.going}" if self.conditional else ""
        return f"loop {self.iteration}{most}{while_} {{\n{_indented(self.body)}\n}}"


Step = (
    Launch
    | Check
    | Read
    | Define
    | Allocate
    | Free
    | Give
    | Copy
    | Store
    | Move
    | Append
    | If
    | Loop
)


def _indented(steps: Sequence[Step]) -> str:
    return "\n".join("  " + line for step in steps for line in str(step).split("\n"))


def walk_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Steps and those inside them, in the order of the text."""
    for step in steps:
        yield step
        if isinstance(step, If):
            yield from walk_steps(step.then)
            yield from walk_steps(step.otherwise)
        elif isinstance(step, Loop):
            yield from walk_steps(step.body)


def bind(
    inputs: Sequence[Sequence[Dim]],
    definitions: Sequence[tuple[str, Dim]],
    shapes: Sequence[Sequence[int]],
) -> dict[str, int]:
    """The value of each symbol that does not depend on data.

    Args:
        inputs: the Dims of each input.
        definitions: further symbols, each over those and earlier ones.
        shapes: the sizes of the inputs.
    """
    found: dict[str, int] = {}
    for dims, shape in zip(inputs, shapes, strict=True):
        for dim, size in zip(dims, shape, strict=True):
            if not isinstance(dim, int):
                found[symbols_of(dim)[0]] = size
    for name, dim in definitions:
        found[name] = evaluate(dim, found)
    return found


@dataclass(frozen=True)
class Repeat:
    """An input size that must equal an earlier one.

    Attributes:
        slot: its position among the sizes of all inputs.
        dim: the symbol that both are.
        place: input and axis.
        first: input and axis of the earlier one.
    """

    slot: int
    dim: Dim
    place: tuple[int, int]
    first: tuple[int, int]


TOO_LARGE = "a size that depends on data is too large"
NO_MEMORY = "there is no memory for a value whose size depends on data"
NO_DEVICE = "the kernels of the model run on a GPU, and nothing was given to launch them"


@dataclass(frozen=True)
class Program:
    """Everything that the entry functions of a model do.

    Attributes:
        prefix: of its symbols.
        inputs: the Dims of each input, over the program's symbols.
        outputs: the Dims of each output.
        arena: bytes of the arena without the frame.
        definitions: further symbols of the program, each with its meaning over input sizes and earlier ones.
        checks: relations between input sizes.
        steps: what a run does.
        setup: what happens once at load, on `weights` and `prepared` places only.
        prepared: bytes that `setup` fills.
        heap: how many addresses of heap memory the frame holds.
        on_device: whether kernels, and all memory but that of sizes, are a GPU's.
        device: its kernels; a launch names one by its position.
    """

    prefix: str
    inputs: tuple[tuple[Dim, ...], ...]
    outputs: tuple[tuple[Dim, ...], ...]
    arena: Dim
    checks: tuple[Check, ...]
    steps: tuple[Step, ...]
    definitions: tuple[tuple[str, Dim], ...] = ()
    setup: tuple[Launch, ...] = ()
    prepared: int = 0
    heap: int = 0
    on_device: bool = False
    device: tuple[DeviceKernel, ...] = ()

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """The places of input sizes whose symbol stands at an earlier place too: both must have one value."""
        first: dict[Dim, tuple[int, int]] = {}
        found: list[Repeat] = []
        slot = 0
        for position, shape in enumerate(self.inputs):
            for axis, dim in enumerate(shape):
                if not isinstance(dim, int):
                    if dim in first:
                        found.append(Repeat(slot, dim, (position, axis), first[dim]))
                    first.setdefault(dim, (position, axis))
                slot += 1
        return tuple(found)

    def bindings(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """The value of each symbol that does not depend on data, from the shapes of the inputs."""
        return bind(self.inputs, self.definitions, shapes)

    @property
    def walk(self) -> Iterator[Step]:
        """All steps of a run, in the order of the text."""
        yield from walk_steps(self.steps)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """All launches of a run, in the order of the text."""
        return tuple(s for s in self.walk if isinstance(s, Launch))

    @property
    def scratch(self) -> int:
        """Bytes of scratch a thread of the CPU: of a program of a GPU, the frame."""
        if self.on_device:
            return self.frame
        return max((s.scratch for s in (*self.launches, *self.setup)), default=0)

    # -- what depends on data -------------------------------------------------------------------

    @cached_property
    def late(self) -> tuple[str, ...]:
        """The symbols that a run gives values to, in the order of their slots in the frame."""
        found = (s.symbol for s in self.walk if isinstance(s, Read | Define))
        return tuple(dict.fromkeys(found))

    def is_late(self, dim: Dim) -> bool:
        """Whether a size depends on data."""
        return not isinstance(dim, int) and not self._late_names.isdisjoint(symbols_of(dim))

    @cached_property
    def _late_names(self) -> frozenset[str]:
        return frozenset(self.late)

    @property
    def late_sizes(self) -> int:
        """How many sizes of outputs depend on data; they are the first slots of the frame, in order."""
        return sum(self.is_late(d) for shape in self.outputs for d in shape)

    @property
    def frame(self) -> int:
        """Bytes of the frame, whole cache lines."""
        slots = self.late_sizes + len(self.late) + self.heap
        return -(-slots * SLOT_BYTES // _LINE_BYTES) * _LINE_BYTES

    @property
    def failures(self) -> tuple[str, ...]:
        """The texts of what may go wrong in a run, after those of the checks that `P_prepare` makes."""
        found = [s.text for s in self.walk if isinstance(s, Check)]
        found += [TOO_LARGE for s in self.walk if isinstance(s, Define | Check | Give | Store)][:1]
        found += [NO_MEMORY for s in self.walk if isinstance(s, Allocate | Append)][:1]
        found += [NO_DEVICE] if self.on_device else []
        return tuple(dict.fromkeys(found))

    @cached_property
    def table(self) -> tuple[Dim, ...]:
        """What `P_prepare` computes: the arena's bytes, with the frame if that is there, the outputs' sizes (-1 where
        they depend on data), then every size that is not constant.
        """
        sizes = [-1 if self.is_late(d) else d for shape in self.outputs for d in shape]
        needed: dict[Dim, None] = {}
        for step in self.walk:
            for dim in step.dims:
                if isinstance(dim, int):
                    continue
                if self.is_late(dim) or isinstance(step, Check | Define | Give | Store):
                    known = (name for name in symbols_of(dim) if name not in self._late_names)
                    needed.update(dict.fromkeys(map(symbol, known)))
                else:
                    needed.setdefault(dim)
        return (self.arena + (0 if self.on_device else self.frame), *sizes, *needed)

    def __str__(self) -> str:
        lines = [f"program {self.prefix} arena {self.arena} scratch {self.scratch}"]
        lines += [f"  let {name} = {dim}" for name, dim in self.definitions]
        lines += [f"  {c}" for c in self.checks]
        lines += [f"  setup {s}" for s in self.setup]
        lines += [_indented(self.steps)] if self.steps else []
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Plain data for a job; `from_json` reads it."""
        return to_json(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Program":
        return from_json(Program, data)
