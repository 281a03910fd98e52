"""The rt level: the program of one model, as data.

A program is a list of launches on places in memory, and the sizes that they need. `host_entry` makes native code of it;
its text is what `--dump` shows, and two equal programs are equal JSON.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xcompile.compiler.support.dims import Dim, evaluate, parse


@dataclass(frozen=True)
class Place:
    """Where a tensor lies.

    Attributes:
        space: "input" and "output" (offset is the position), "arena", "weights" or "prepared" (offset in bytes).
        offset: see `space`.
    """

    space: str
    offset: Dim

    def __str__(self) -> str:
        return f"{self.space}[{self.offset}]"


@dataclass(frozen=True)
class Step:
    """One launch.

    Attributes:
        symbol: the kernel's symbol; its task is `{symbol}_task`.
        places: the buffers, inputs then outputs.
        sizes: what the kernel's d0, d1, … are.
        extent: the number of parallel units.
        grain: fewest units in a part.
        scratch: bytes of scratch a part needs.
        node: the model nodes it computes, for reports.
        flops: floating-point operations, a multiplication and an addition being two.
        bytes: bytes of operands and results, each once.
    """

    symbol: str
    places: tuple[Place, ...]
    sizes: tuple[Dim, ...]
    extent: Dim
    grain: int
    scratch: int
    node: str
    flops: Dim = 0
    bytes: Dim = 0

    def __str__(self) -> str:
        sizes = f" sizes({', '.join(map(str, self.sizes))})" if self.sizes else ""
        return f"launch {self.symbol}({', '.join(map(str, self.places))}){sizes} units {self.extent} // {self.node}"


@dataclass(frozen=True)
class Check:
    """A relation between sizes that must hold: `left == right`, else the call fails with `text`."""

    left: Dim
    right: Dim
    text: str


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


@dataclass(frozen=True)
class Program:
    """Everything that the entry functions of a model do.

    Attributes:
        prefix: of its symbols.
        inputs: the Dims of each input, over the program's symbols.
        outputs: the Dims of each output.
        arena: bytes of the arena.
        definitions: further symbols of the program, each with its meaning over input sizes and earlier ones.
        checks: relations between input sizes.
        steps: what a run does.
        setup: what happens once at load, on `weights` and `prepared` places only.
        prepared: bytes that `setup` fills.
    """

    prefix: str
    inputs: tuple[tuple[Dim, ...], ...]
    outputs: tuple[tuple[Dim, ...], ...]
    arena: Dim
    checks: tuple[Check, ...]
    steps: tuple[Step, ...]
    definitions: tuple[tuple[str, Dim], ...] = ()
    setup: tuple[Step, ...] = ()
    prepared: int = 0

    @property
    def launches(self) -> tuple[Step, ...]:
        """Every launch of a run, in the order of the text."""
        return self.steps

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
        """The value of each of the program's symbols, from the shapes of the inputs."""
        found: dict[str, int] = {}
        for dims, shape in zip(self.inputs, shapes, strict=True):
            for dim, size in zip(dims, shape, strict=True):
                if not isinstance(dim, int):
                    found[str(dim)] = size
        for name, dim in self.definitions:
            found[name] = evaluate(dim, found)
        return found

    @property
    def scratch(self) -> int:
        """Bytes of scratch a thread."""
        return max((s.scratch for s in (*self.steps, *self.setup)), default=0)

    @property
    def table(self) -> tuple[Dim, ...]:
        """What `P_prepare` computes: the arena's bytes, the outputs' sizes, then every size that is not constant."""
        fixed: list[Dim] = [self.arena, *(d for shape in self.outputs for d in shape)]
        needed: dict[Dim, None] = {}
        for step in self.steps:
            for dim in (*(p.offset for p in step.places), *step.sizes, step.extent):
                if not isinstance(dim, int):
                    needed.setdefault(dim)
        return (*fixed, *needed)

    def __str__(self) -> str:
        lines = [f"program {self.prefix} arena {self.arena} scratch {self.scratch}"]
        lines += [f"  let {name} = {dim}" for name, dim in self.definitions]
        lines += [f"  check {c.left} == {c.right} // {c.text}" for c in self.checks]
        lines += [f"  setup {s}" for s in self.setup]
        lines += [f"  {s}" for s in self.steps]
        return "\n".join(lines) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Plain data for a job; `from_json` reads it."""
        return {
            "prefix": self.prefix,
            "inputs": [[str(d) for d in shape] for shape in self.inputs],
            "outputs": [[str(d) for d in shape] for shape in self.outputs],
            "arena": str(self.arena),
            "definitions": [[name, str(dim)] for name, dim in self.definitions],
            "checks": [[str(c.left), str(c.right), c.text] for c in self.checks],
            "steps": [_step_json(s) for s in self.steps],
            "setup": [_step_json(s) for s in self.setup],
            "prepared": self.prepared,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> "Program":
        return Program(
            prefix=data["prefix"],
            inputs=tuple(tuple(parse(d) for d in shape) for shape in data["inputs"]),
            outputs=tuple(tuple(parse(d) for d in shape) for shape in data["outputs"]),
            arena=parse(data["arena"]),
            definitions=tuple((name, parse(dim)) for name, dim in data["definitions"]),
            checks=tuple(Check(parse(a), parse(b), text) for a, b, text in data["checks"]),
            steps=tuple(_step(s) for s in data["steps"]),
            setup=tuple(_step(s) for s in data["setup"]),
            prepared=data["prepared"],
        )


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "symbol": step.symbol,
        "places": [[p.space, str(p.offset)] for p in step.places],
        "sizes": [str(d) for d in step.sizes],
        "extent": str(step.extent),
        "grain": step.grain,
        "scratch": step.scratch,
        "node": step.node,
        "flops": str(step.flops),
        "bytes": str(step.bytes),
    }


def _step(data: dict[str, Any]) -> Step:
    return Step(
        data["symbol"],
        tuple(Place(space, parse(offset)) for space, offset in data["places"]),
        tuple(parse(d) for d in data["sizes"]),
        parse(data["extent"]),
        data["grain"],
        data["scratch"],
        data["node"],
        parse(data["flops"]),
        parse(data["bytes"]),
    )
