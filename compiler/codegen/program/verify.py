"""The verifier of programs: memory is written before it is read, and nothing is written over what is still needed.

Arena offsets are compared for sample sizes of the inputs, those of them at which the program's own checks hold.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace

from xcompile.compiler.codegen.program import program as rt
from xcompile.compiler.support.dims import Dim, evaluate, symbols_of
from xcompile.compiler.support.errors import CompileError

_SAMPLES = (512, 64, 8, 1)
_DATA = 6
"""What every number that a run reads is taken to be."""

_PLENTY = 1 << 60
"""The size of memory that grows."""

_ITERATIONS = 3
"""How often a loop runs whose end depends on data."""


def verify_program(program: rt.Program) -> None:
    """Check a program.

    Raises:
        CompileError: XC4012, what is wrong and at which step.
    """
    for sample in _SAMPLES:
        env = _sample(program, sample)
        if env is not None:
            with suppress(_EndsError):
                _Run(program, env).check()


def _sample(program: rt.Program, size: int) -> dict[str, int] | None:
    """Values of the symbols that follow from inputs; None where the program refuses such inputs."""
    try:
        shapes = [[d if isinstance(d, int) else size for d in shape] for shape in program.inputs]
        env = program.bindings(shapes)
        holds = all(evaluate(c.left, env) == evaluate(c.right, env) for c in program.checks)
    except (ValueError, ZeroDivisionError):
        return None
    return env if holds else None


@dataclass(frozen=True)
class _Rows:
    """A value that lies in rows of a larger one, which is written when rows of others fill the gaps.

    Attributes:
        space: "arena" or "output".
        owner: names the larger value, or is the number of the output.
        start: the first byte.
        length: bytes of a row.
        count: how many rows.
        pitch: bytes from the beginning of one row to that of the next.
    """

    space: str
    owner: int
    start: int
    length: int
    count: int
    pitch: int

    @property
    def end(self) -> int:
        return self.start + (self.count - 1) * self.pitch + self.length

    def meets(self, start: int, end: int) -> bool:
        """Whether bytes from the first row to the last are in a range."""
        return self.start < end and start < self.end

    def follows(self, other: "_Rows") -> bool:
        """Whether each row begins where the other's ends."""
        alike = replace(other, start=self.start, length=self.length) == self
        return alike and self.start == other.start + other.length


@dataclass
class _State:
    """What a run has done so far.

    Attributes:
        env: the values of symbols.
        arena: the ranges of it that are written, each with the value that it holds.
        heap: the bytes of each address in use.
        written: the addresses at which something is written.
        outputs: the ranges of bytes of each that are written, in order and joined where they meet.
        rows: what is written in rows, until these and others are one range.
        agrees: whether the numbers that a run is taken to read fulfil every check so far.
    """

    env: dict[str, int]
    arena: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    heap: dict[int, int] = field(default_factory=dict[int, int])
    written: set[int] = field(default_factory=set[int])
    outputs: dict[int, list[tuple[int, int]]] = field(
        default_factory=dict[int, list[tuple[int, int]]]
    )
    rows: list[_Rows] = field(default_factory=list[_Rows])
    agrees: bool = True


class _EndsError(Exception):
    """The run ends, since a check fails."""


class _Run:
    def __init__(self, program: rt.Program, env: Mapping[str, int]) -> None:
        self._program = program
        self._state = _State(dict(env))
        self._prepared: list[tuple[int, int]] = []
        self._copied: dict[rt.Copy, list[tuple[int, int]]] = {}
        self._step = "the beginning"

    def check(self) -> None:
        for launch in self._program.setup:
            self._at(launch)
            *read, written = launch.places
            for place in read:
                self._require(place.space == "weights", f"{place} is read at load")
            self._require(written.space == "prepared", f"{written} is written at load")
            self._prepared.append(self._range(written, launch.lengths[-1]))
        self._all(self._program.steps)
        self._step = "the end"
        given = {step.output for step in self._program.steps if isinstance(step, rt.Give)}
        for position, shape in enumerate(self._program.outputs):
            late = any(map(self._program.is_late, shape))
            self._require(late or position not in given, f"output {position} has a known size")
            self._require(not late or position in given, f"output {position} is not given")
            ranges = self._state.outputs.get(position)
            self._require(ranges is not None, f"output {position} is not written")
            whole = len(ranges or ()) == 1 and (ranges or [(0, 0)])[0][0] == 0
            self._require(whole, f"output {position} is written in parts: {ranges}")
        self._require(not self._state.heap, f"{_heaps(self._state.heap)} is not freed")

    def _at(self, step: rt.Step) -> None:
        self._step = str(step)

    def _require(self, holds: bool, problem: str) -> None:
        if not holds:
            raise CompileError(
                "XC4012",
                f"the program is wrong: {problem}, at: {self._step[:200]}",
                help="this is a mistake of the compiler: please report it",
            )

    def _do(self, step: rt.Step) -> None:
        for dim in step.dims:
            self._value(dim)
        match step:
            case rt.Launch():
                self._launch(step)
            case rt.Read():
                width = 8 if step.dtype == "i64" else 4
                self._read(step.place, None if step.index == 0 else (step.index + 1) * width)
                self._state.env[step.symbol] = _DATA
            case rt.Define():
                self._state.env[step.symbol] = self._value(step.dim)
            case rt.Check():
                if self._value(step.left) != self._value(step.right):
                    if not any(map(self._program.is_late, step.dims)):
                        raise _EndsError
                    self._state.agrees = False
            case rt.Allocate():
                self._require(step.slot not in self._state.heap, f"heap{step.slot} is in use")
                self._state.heap[step.slot] = self._value(step.size)
            case rt.Free():
                self._release(step.slot)
            case rt.Give():
                self._require(step.slot in self._state.written, f"heap{step.slot} is not written")
                self._release(step.slot)
                self._output(step.output, 0, 0)
            case rt.Copy():
                length = self._value(step.length)
                self._read(step.source, length)
                if step.target.space == "output":
                    position = self._value(step.target.offset)
                    joined = self._state.outputs.setdefault(position, [])
                    joined[:] = _joined([*joined, self._range(step.target, length)])
                else:
                    self._write(step.target, length)
                    self._copied.setdefault(step, []).append(self._range(step.target, length))
            case rt.Store():
                self._write(step.place, 8)
            case rt.Move():
                self._require(step.slot not in self._state.heap, f"heap{step.slot} is in use")
                self._require(
                    step.source in self._state.written, f"heap{step.source} is not written"
                )
                self._state.heap[step.slot] = self._state.heap[step.source]
                self._state.written.add(step.slot)
                self._release(step.source)
            case rt.Append():
                self._require(step.slot in self._state.heap, f"heap{step.slot} is not allocated")
                self._read(step.source, self._value(step.length))
                self._state.heap[step.slot] = _PLENTY
                self._state.written.add(step.slot)
            case rt.If():
                self._if(step)
            case rt.Loop():
                self._loop(step)

    def _if(self, step: rt.If) -> None:
        """Both branches, from the same state: what both have done is done afterwards."""
        self._read(step.cond, 1)
        before, after = self._state, list[_State]()
        for steps in (step.then, step.otherwise):
            self._state = deepcopy(before)
            with suppress(_EndsError):
                self._all(steps)
                after.append(self._state)
        self._at(step)
        if not after:
            raise _EndsError
        self._state = first = after[0]
        for other in after[1:]:
            self._require(first.heap.keys() == other.heap.keys(), "the branches leave other memory")
            self._require(first.outputs == other.outputs, "the branches write other outputs")
            first.written &= other.written
            first.agrees &= other.agrees
            first.arena = [part for part in first.arena if part in other.arena]
            first.rows = [part for part in first.rows if part in other.rows]
            first.env = {k: v for k, v in first.env.items() if k in other.env}

    def _loop(self, step: rt.Loop) -> None:
        """The first and the last iteration; what they copy to different places is copied to those between them, too."""
        count = self._value(step.trip) if step.counted else _ITERATIONS
        last = -1
        for number in sorted({0, count - 1} if count > 0 else ()):
            last = number
            self._state.env[step.iteration] = number
            if step.conditional:
                self._read(step.going, 1)
            self._all(step.body)
            self._at(step)
        for part in step.body if last > 0 else ():
            if isinstance(part, rt.Copy) and part.target.space == "arena":
                (first, _), (_, end) = self._copied[part][-2:]
                self._state.arena.append((first, end, part.target.value))
        self._state.env[step.iteration] = last + 1

    def _all(self, steps: Sequence[rt.Step]) -> None:
        for step in steps:
            self._at(step)
            self._do(step)

    def _launch(self, step: rt.Launch) -> None:
        count = len(step.places) - step.results
        self._require(len(step.lengths) == len(step.places), "lengths are missing")
        pairs = list(zip(step.places, step.lengths, strict=True))
        for place, length in pairs[:count]:
            self._read(place, self._value(length))
        for place, length in pairs[count:]:
            self._write(place, self._value(length))

    # -- memory ---------------------------------------------------------------------------------

    def _read(self, place: rt.Place, length: int | None) -> None:
        self._require(self._value(place.rows) <= 1, f"{place} is read in rows")
        if not self._state.agrees:  # sizes contradict each other: what counts is that it is there
            length = 0 if place.space == "heap" else min(1, length or 1)
        match place.space:
            case "arena":
                start, end = self._range(place, 1 if length is None else length)
                at = start
                for low, high, value in sorted(self._state.arena):
                    if low <= at < high and value == place.value:
                        at = high
                self._require(at >= end, f"{place} does not hold what is read")
            case "heap":
                self._inside(place, length or 0)
                written = place.slot in self._state.written
                self._require(written, f"{place} is read before it is written")
            case "prepared":
                start, end = self._range(place, 1 if length is None else length)
                known = any(low <= start and start < high for low, high in self._prepared)
                self._require(known or start >= end, f"{place} is not prepared")
            case "output":
                start, end = self._range(place, length or 0)
                ranges = self._state.outputs.get(self._value(place.offset), [])
                known = any(low <= start and end <= high for low, high in ranges)
                self._require(known, f"{place} is read before it is written")
            case "input" | "weights":
                pass
            case _:
                self._require(False, f"there is no memory {place}")

    def _write(self, place: rt.Place, length: int) -> None:
        count = self._value(place.rows)
        if count > 1 and length > 0:
            self._write_rows(place, length, count)
            return
        match place.space:
            case "arena":
                start, end = self._range(place, length)
                self._clear(place, start, end)
                self._state.rows = [
                    part
                    for part in self._state.rows
                    if part.space != "arena"
                    or part.owner == place.value
                    or not part.meets(start, end)
                ]
                if start < end:
                    self._state.arena.append((start, end, place.value))
            case "heap":
                self._inside(place, length)
                self._state.written.add(place.slot)
            case "output":
                self._output(self._value(place.offset), *self._range(place, length))
            case _:
                self._require(False, f"{place} is written")

    def _clear(self, place: rt.Place, start: int, end: int) -> None:
        """Whatever lies in a range of the arena is gone."""
        total = self._value(self._program.arena)
        self._require(start >= 0 and end <= total, f"{place} leaves the arena of {total}")
        self._state.arena = [
            part for old in self._state.arena for part in _outside(old, start, end)
        ]

    def _write_rows(self, place: rt.Place, length: int, count: int) -> None:
        """Write rows; where they and those of others fill a pitch, all of them are one range."""
        start, _ = self._range(place, 0)
        pitch, row = self._value(place.pitch), length // count
        self._require(row * count == length and row <= pitch, f"{place} has no whole rows")
        if place.space == "heap":
            self._inside(replace(place, rows=1), (count - 1) * pitch + row)
            self._state.written.add(place.slot)
            return
        self._require(place.space in ("arena", "output"), f"{place} is written in rows")
        owner = place.value if place.space == "arena" else self._value(place.offset)
        made = _Rows(place.space, owner, start, row, count, pitch)
        if place.space == "arena":
            self._clear(place, start, made.end)
        others = [p for p in self._state.rows if p.space == made.space and p.meets(start, made.end)]
        for part in others:
            apart = (start - part.start) % pitch >= part.length and (
                part.start - start
            ) % pitch >= row
            fits = part.owner == owner and (part.count, part.pitch) == (count, pitch) and apart
            again = part == made and place.space == "arena"
            self._require(
                again or fits or part.owner != owner, f"{place} is written over {part.start}"
            )
        kept = [p for p in self._state.rows if p not in others or (p.owner == owner and p != made)]
        chain = _chain(made, kept)
        if sum(part.length for part in chain) < pitch:
            self._state.rows = [*kept, made]
            return
        self._state.rows = [part for part in kept if part not in chain]
        first = chain[0].start
        if place.space == "output":
            self._output(owner, first, first + count * pitch)
        else:
            self._state.arena.append((first, first + count * pitch, owner))

    def _output(self, position: int, start: int, end: int) -> None:
        ranges = self._state.outputs.setdefault(position, [])
        again = any(
            (low < end and start < high) or (low, high) == (start, end) for low, high in ranges
        )
        self._require(not again, f"output {position} is written twice")
        ranges[:] = _joined([*ranges, (start, end)])

    def _inside(self, place: rt.Place, length: int) -> None:
        self._require(place.slot in self._state.heap, f"{place} is not allocated")
        start, end = self._range(place, length)
        size = self._state.heap[place.slot]
        self._require(start >= 0 and end <= max(size, 0), f"{place} leaves its {size} bytes")

    def _release(self, slot: int) -> None:
        self._require(slot in self._state.heap, f"heap{slot} is not in use")
        del self._state.heap[slot]
        self._state.written.discard(slot)

    def _range(self, place: rt.Place, length: Dim) -> tuple[int, int]:
        start = self._value(place.at if place.is_given else place.offset)
        return start, start + max(self._value(length), 0)

    def _value(self, dim: Dim) -> int:
        for name in symbols_of(dim):
            self._require(name in self._state.env, f"the size {name} is not known")
        try:
            return evaluate(dim, self._state.env)
        except (ValueError, ZeroDivisionError):  # a check of the program fails for this sample
            return 0


def _outside(part: tuple[int, int, int], start: int, end: int) -> list[tuple[int, int, int]]:
    """What is left of a range when another one is cut out."""
    low, high, value = part
    found = [(low, min(high, start), value), (max(low, end), high, value)]
    return [p for p in found if p[0] < p[1]] if low < end and start < high else [part]


def _chain(made: _Rows, others: Sequence[_Rows]) -> list[_Rows]:
    """The rows that follow each other without a gap, among them `made`."""
    chain = [made]
    while before := next((p for p in others if chain[0].follows(p)), None):
        chain.insert(0, before)
    while after := next((p for p in others if p.follows(chain[-1])), None):
        chain.append(after)
    return chain


def _joined(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges in order, those that meet being one."""
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def _heaps(heap: Mapping[int, int]) -> str:
    return ", ".join(f"heap{slot}" for slot in heap)
