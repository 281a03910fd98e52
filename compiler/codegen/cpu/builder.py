"""A small writer of loops-level MLIR text (arith, scf, vector, memref) for the CPU emitters.

Values are SSA names (`%12`). An `Index` is either a Python integer, known while emitting, or the name of a
value of type `index`; arithmetic on integers is folded at once, so that one emitter serves static and
dynamic sizes. A `Buffer` is a flat view of a kernel argument; emitters compute linear offsets in
elements themselves.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

Value = str
Index = int | str


@dataclass(frozen=True)
class Buffer:
    """A flat view of memory: the SSA name of a `memref<?x{dtype}>` and its element type."""

    name: Value
    dtype: str

    @property
    def type(self) -> str:
        return f"memref<?x{self.element}>"

    @property
    def element(self) -> str:
        """The type of an element in memory; see `in_memory`."""
        return in_memory(self.dtype)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.lstrip("bfiu")) // 8


def in_memory(dtype: str) -> str:
    """The type that memory has elements of, and lanes that change places: of bfloat16 integers.

    LLVM takes such ops on bfloat16 apart where there is no instruction for them, by way of float32.
    """
    return "i16" if dtype == "bf16" else dtype


def vector_type(lanes: int, dtype: str) -> str:
    """`vector<8xf32>`; with no lanes (0) the scalar type itself."""
    return f"vector<{lanes}x{dtype}>" if lanes else dtype


class Builder:
    """Writes one function. Method names follow the ops they write.

    `lanes` arguments give the vector length; 0 means a scalar.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._constants: dict[tuple[str, str], Value] = {}
        self._head: list[str] = []
        self._count = 0

    # -- text ---------------------------------------------------------------------------------

    def name(self) -> Value:
        """A fresh SSA name."""
        self._count += 1
        return f"%{self._count}"

    def line(self, text: str) -> None:
        """Write a line that defines nothing."""
        self._lines.append(text)

    def op(self, text: str) -> Value:
        """Write `%n = text` and return `%n`."""
        result = self.name()
        self._lines.append(f"{result} = {text}")
        return result

    # -- constants: written once, at the top of the function --------------------------------

    def constant(self, literal: str, dtype: str, lanes: int = 0) -> Value:
        """A scalar or splat constant; `literal` is MLIR's text for the element."""
        kind = vector_type(lanes, dtype)
        key = (literal, kind)
        if key not in self._constants:
            result = self.name()
            value = f"dense<{literal}> : {kind}" if lanes else f"{literal} : {kind}"
            if dtype == "i1" and not lanes:
                value = literal
            self._head.append(f"{result} = arith.constant {value}")
            self._constants[key] = result
        return self._constants[key]

    def float_constant(self, value: float, dtype: str = "f32", lanes: int = 0) -> Value:
        """A float constant, rounded to the nearest value of `dtype` ("f64", "f32", "f16", "bf16")."""
        return self.constant(float_literal(value, dtype), dtype, lanes)

    def int_constant(self, value: int, dtype: str = "i64", lanes: int = 0) -> Value:
        """An integer constant; i1 takes 0 or 1."""
        literal = ("true" if value else "false") if dtype == "i1" else str(value)
        return self.constant(literal, dtype, lanes)

    def zero(self, dtype: str, lanes: int = 0) -> Value:
        """Zero of a float or an integer type."""
        if dtype.startswith("i"):
            return self.int_constant(0, dtype, lanes)
        return self.float_constant(0.0, dtype, lanes)

    def index(self, value: Index) -> Value:
        """The SSA name of an index."""
        return self.constant(str(value), "index") if isinstance(value, int) else value

    # -- index arithmetic with folding --------------------------------------------------------

    def add(self, *terms: Index) -> Index:
        known = sum(t for t in terms if isinstance(t, int))
        result: Index | None = None
        for term in terms:
            if isinstance(term, str):
                result = term if result is None else self.op(f"arith.addi {result}, {term} : index")
        if result is None:
            return known
        return self.op(f"arith.addi {result}, {self.index(known)} : index") if known else result

    def sub(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        if b == 0:
            return a
        return self.op(f"arith.subi {self.index(a)}, {self.index(b)} : index")

    def mul(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1:
            return b
        if b == 1:
            return a
        return self.op(f"arith.muli {self.index(a)}, {self.index(b)} : index")

    def div(self, a: Index, b: Index) -> Index:
        """Floor division of non-negative indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        return a if b == 1 else self.op(f"arith.divui {self.index(a)}, {self.index(b)} : index")

    def ceildiv(self, a: Index, b: Index) -> Index:
        """Ceiling division of non-negative indices."""
        return self.div(self.add(a, self.sub(b, 1)), b)

    def rem(self, a: Index, b: Index) -> Index:
        """Remainder of non-negative indices."""
        if isinstance(a, int) and isinstance(b, int):
            return a % b
        return 0 if b == 1 else self.op(f"arith.remui {self.index(a)}, {self.index(b)} : index")

    def min(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b)
        return self.op(f"arith.minsi {self.index(a)}, {self.index(b)} : index")

    def max(self, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return max(a, b)
        return self.op(f"arith.maxsi {self.index(a)}, {self.index(b)} : index")

    def compare(self, predicate: str, a: Index, b: Index) -> Value | bool:
        """Compare indices (`eq ne slt sle sgt sge`); a Python bool when both are known."""
        if isinstance(a, int) and isinstance(b, int):
            return {
                "eq": a == b, "ne": a != b, "slt": a < b, "sle": a <= b, "sgt": a > b, "sge": a >= b,
            }[predicate]  # fmt: skip
        return self.op(f"arith.cmpi {predicate}, {self.index(a)}, {self.index(b)} : index")

    def both(self, a: Value | bool, b: Value | bool) -> Value | bool:
        """The conjunction of two conditions."""
        if isinstance(a, bool):
            return b if a else False
        if isinstance(b, bool):
            return a if b else False
        return self.op(f"arith.andi {a}, {b} : i1")

    def select(self, condition: Value | bool, a: Index, b: Index) -> Index:
        """The index `a` where the condition holds, else `b`."""
        if isinstance(condition, bool):
            return a if condition else b
        return self.op(f"arith.select {condition}, {self.index(a)}, {self.index(b)} : index")

    def unflatten(self, flat: Index, sizes: Sequence[Index]) -> list[Index]:
        """The multi-index of a row-major flat index; the first size is not needed."""
        out: list[Index] = []
        for size in reversed(sizes[1:]):
            out.append(self.rem(flat, size))
            flat = self.div(flat, size)
        out.append(flat)
        return out[::-1]

    def flatten(self, index: Sequence[Index], strides: Sequence[Index]) -> Index:
        """The sum of index times stride."""
        return self.add(*(self.mul(i, s) for i, s in zip(index, strides, strict=True)))

    # -- memory -------------------------------------------------------------------------------

    def load(self, buffer: Buffer, at: Index, lanes: int = 0, mask: Value | None = None) -> Value:
        """Load a scalar or a vector from element `at`; masked-off lanes are zero and not touched."""
        index, kind = self.index(at), vector_type(lanes, buffer.element)
        if not lanes:
            value = self.op(f"memref.load {buffer.name}[{index}] : {buffer.type}")
        elif mask is None:
            value = self.op(f"vector.load {buffer.name}[{index}] : {buffer.type}, {kind}")
        else:
            other = self.zero(buffer.element, lanes)
            value = self.op(
                f"vector.maskedload {buffer.name}[{index}], {mask}, {other} : "
                f"{buffer.type}, vector<{lanes}xi1>, {kind} into {kind}"
            )
        return self.bitcast(value, buffer.element, buffer.dtype, lanes)

    def bitcast(self, value: Value, source: str, to: str, lanes: int = 0) -> Value:
        """The bits of elements as elements of another type of the same width."""
        if source == to:
            return value
        kinds = vector_type(lanes, source), vector_type(lanes, to)
        return self.op(f"arith.bitcast {value} : {kinds[0]} to {kinds[1]}")

    def zero_unless(
        self, condition: Value | bool, value: Value, dtype: str, lanes: int = 0
    ) -> Value:
        """Elements, or zeros where a condition does not hold."""
        if isinstance(condition, bool):
            return value if condition else self.zero(dtype, lanes)
        kept = in_memory(dtype)
        raw, zero = self.bitcast(value, dtype, kept, lanes), self.zero(kept, lanes)
        made = self.op(f"arith.select {condition}, {raw}, {zero} : {vector_type(lanes, kept)}")
        return self.bitcast(made, kept, dtype, lanes)

    def load_unaligned(self, buffer: Buffer, at: Index, dtype: str) -> Value:
        """A scalar of another type from the bytes at `at` of a buffer of bytes, at any address."""
        place = self.op(
            f"memref.view {buffer.name}[{self.index(at)}][{self.index(_VIEW)}] : {buffer.type} to memref<?x{dtype}>"
        )
        kind = vector_type(1, dtype)
        one = self.op(
            f"vector.load {place}[{self.index(0)}] {{alignment = 1 : i64}} : memref<?x{dtype}>, {kind}"
        )
        return self.op(f"vector.extract {one}[0] : {dtype} from {kind}")

    def store(
        self, value: Value, buffer: Buffer, at: Index, lanes: int = 0, mask: Value | None = None
    ) -> None:
        """Store a scalar or a vector at element `at`; masked-off lanes are not touched."""
        index = self.index(at)
        kind = vector_type(lanes, buffer.element)
        value = self.bitcast(value, buffer.dtype, buffer.element, lanes)
        if not lanes:
            self.line(f"memref.store {value}, {buffer.name}[{index}] : {buffer.type}")
        elif mask is None:
            self.line(f"vector.store {value}, {buffer.name}[{index}] : {buffer.type}, {kind}")
        else:
            self.line(
                f"vector.maskedstore {buffer.name}[{index}], {mask}, {value} : "
                f"{buffer.type}, vector<{lanes}xi1>, {kind}"
            )

    def view(self, scratch: Buffer, offset: int, dtype: str) -> Buffer:
        """Scratch memory (i8) from byte `offset` on, as a flat buffer of `dtype`."""
        head = self.index(offset)
        name = self.op(
            f"memref.view {scratch.name}[{head}][{self.index(_VIEW)}] : {scratch.type} to memref<?x{in_memory(dtype)}>"
        )
        return Buffer(name, dtype)

    def prefetch(self, buffer: Buffer, at: Index, locality: int = 3) -> None:
        """Prefetch the cache line of element `at` for reading; 3 is the nearest cache."""
        self.line(
            f"memref.prefetch {buffer.name}[{self.index(at)}], read, locality<{locality}>, data : {buffer.type}"
        )

    def tail_mask(self, count: Index, lanes: int) -> Value:
        """A mask of `lanes` lanes whose first `count` are on."""
        return self.op(f"vector.create_mask {self.index(count)} : vector<{lanes}xi1>")

    # -- vectors ------------------------------------------------------------------------------

    def broadcast(self, scalar: Value, dtype: str, lanes: int) -> Value:
        return self.op(f"vector.broadcast {scalar} : {dtype} to {vector_type(lanes, dtype)}")

    def fma(self, a: Value, b: Value, c: Value, lanes: int, dtype: str = "f32") -> Value:
        """a·b + c with one rounding."""
        if lanes:
            return self.op(f"vector.fma {a}, {b}, {c} : {vector_type(lanes, dtype)}")
        return self.op(f"math.fma {a}, {b}, {c} : {dtype}")

    def binary(self, op: str, a: Value, b: Value, lanes: int, dtype: str = "f32") -> Value:
        """A binary op of one type: `binary("arith.addf", a, b, 8)`."""
        return self.op(f"{op} {a}, {b} : {vector_type(lanes, dtype)}")

    # -- control flow -------------------------------------------------------------------------

    @contextmanager
    def loop(self, low: Index, high: Index, step: Index = 1) -> Iterator[Index]:
        """`scf.for`; yields the induction variable. A loop of exactly one trip is not written."""
        if (
            isinstance(low, int)
            and isinstance(high, int)
            and isinstance(step, int)
            and low < high <= low + step
        ):
            yield low
            return
        iv = self.name()
        self.line(
            f"scf.for {iv} = {self.index(low)} to {self.index(high)} step {self.index(step)} {{"
        )
        yield iv
        self.line("}")

    def reduce(
        self,
        low: Index,
        high: Index,
        step: Index,
        init: Sequence[Value],
        types: Sequence[str],
        body: Callable[[Index, list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """`scf.for` that carries values: `body(iv, carried)` returns the next ones."""
        if (
            isinstance(low, int)
            and isinstance(high, int)
            and isinstance(step, int)
            and low < high <= low + step
        ):
            return list(body(low, list(init)))
        iv, result = self.name(), self.name()
        arguments = [self.name() for _ in init]
        joined = ", ".join(types)
        carried = ", ".join(f"{a} = {v}" for a, v in zip(arguments, init, strict=True))
        self.line(
            f"{result}:{len(init)} = scf.for {iv} = {self.index(low)} to {self.index(high)} "
            f"step {self.index(step)} iter_args({carried}) -> ({joined}) {{"
        )
        following = body(iv, arguments)
        self.line(f"scf.yield {', '.join(following)} : {joined}")
        self.line("}")
        return [f"{result}#{i}" for i in range(len(init))]

    def repeat(self, start: Index, step: Callable[[Value], tuple[Value | bool, Index]]) -> Value:
        """`scf.while`: an index that `step` replaces as long as it says so; the last one.

        `step` gives whether to go on, and the next index.
        """
        at, after, last = self.name(), self.name(), self.name()
        self.line(f"{last} = scf.while ({at} = {self.index(start)}) : (index) -> index {{")
        again, following = step(at)
        going = self.int_constant(int(again), "i1") if isinstance(again, bool) else again
        self.line(f"scf.condition({going}) {self.index(following)} : index")
        self.line(f"}} do {{\n^bb0({after}: index):\nscf.yield {after} : index\n}}")
        return last

    def choose(
        self,
        condition: Value | bool,
        types: Sequence[str],
        then: Callable[[], Sequence[Value]],
        otherwise: Callable[[], Sequence[Value]],
    ) -> list[Value]:
        """`scf.if` with results; a condition known while emitting writes one branch only."""
        if isinstance(condition, bool):
            return list(then() if condition else otherwise())
        result, joined = self.name(), ", ".join(types)
        self.line(f"{result}:{len(types)} = scf.if {condition} -> ({joined}) {{")
        self.line(f"scf.yield {', '.join(then())} : {joined}")
        self.line("} else {")
        self.line(f"scf.yield {', '.join(otherwise())} : {joined}")
        self.line("}")
        return [f"{result}#{i}" for i in range(len(types))]

    @contextmanager
    def when(self, condition: Value | bool) -> Iterator[None]:
        """`scf.if` without results; it is not written for a condition known to hold."""
        if condition is True:
            yield
            return
        if condition is False:
            condition = self.int_constant(0, "i1")
        self.line(f"scf.if {condition} {{")
        yield
        self.line("}")

    def either(
        self, condition: Value | bool, then: Callable[[], None], otherwise: Callable[[], None]
    ) -> None:
        """`scf.if` with an else and without results; one branch only for a known condition."""
        if isinstance(condition, bool):
            (then if condition else otherwise)()
            return
        self.line(f"scf.if {condition} {{")
        then()
        self.line("} else {")
        otherwise()
        self.line("}")

    # -- the function -------------------------------------------------------------------------

    def function(self, symbol: str, signature: "Signature") -> str:
        """The whole module: constants first, then what was written."""
        views = [
            f"%b{i} = memref.reinterpret_cast %p{i} to offset: [0], sizes: [{self.index(_VIEW)}], strides: [1] : "
            f"memref<1x{in_memory(dtype)}> to memref<?x{in_memory(dtype)}>"
            for i, dtype in enumerate(signature.buffers)
        ]
        body = "\n".join([*self._head, *views, *self._lines])
        return f"func.func @{symbol}({signature.text()}) {{\n{body}\nreturn\n}}\n"


_VIEW = 1 << 40
"""The nominal extent of the flat views: larger than any buffer, never read."""


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel function: see docs/architecture.md, "The native boundary".

    Attributes:
        buffers: element types of inputs, outputs and, when `scratch`, the scratch buffer ("i8").
        sizes: how many size parameters follow.
        scratch: whether the last buffer is scratch memory.
        aliased: buffers that may share memory with another one (no `noalias` promise for these).
    """

    buffers: tuple[str, ...]
    sizes: int = 0
    scratch: bool = False
    aliased: frozenset[int] = frozenset()

    def buffer(self, position: int) -> Buffer:
        return Buffer(f"%b{position}", self.buffers[position])

    def size(self, position: int) -> Value:
        return f"%s{position}"

    begin: Value = "%begin"
    end: Value = "%end"

    def text(self) -> str:
        buffers = [
            f"%p{i}: memref<1x{in_memory(dtype)}>"
            + ("" if i in self.aliased else " {llvm.noalias}")
            for i, dtype in enumerate(self.buffers)
        ]
        sizes = [f"%s{i}: index" for i in range(self.sizes)]
        return ", ".join([*buffers, *sizes, "%begin: index", "%end: index"])


def float_literal(value: float, dtype: str) -> str:
    """MLIR's text of a float, exact: hexadecimal bits of `dtype`."""
    import ml_dtypes
    import numpy as np

    kinds = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    bits = np.asarray(value).astype(kinds[dtype])
    return f"0x{int.from_bytes(bits.tobytes(), 'little'):0{2 * bits.dtype.itemsize}X}"
