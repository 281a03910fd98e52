"""Instructions worth naming: multiply-adds that LLVM does not find in ordinary vector code.

Each has three things: the LLVM intrinsic, its meaning in numpy, and a portable expansion into ordinary vector ops. The
intrinsic is what ships; the expansion lets any host run the kernels of any target in tests.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from xcompile.compiler.codegen.cpu.builder import Builder, Value, vector_type
from xcompile.compiler.codegen.cpu.lanes import Lanes
from xcompile.compiler.codegen.cpu.shuffles import shuffle

Expansion = Callable[..., Value]
"""Called with a Builder and the operands' values."""


@dataclass(frozen=True)
class Instruction:
    """A vector instruction.

    Attributes:
        name: as assembly calls it.
        intrinsic: LLVM's name of it.
        operands: the types of the operands, lanes and element.
        result: the type of the result.
        features: alternatives that make it available, each a set of LLVM's feature names.
        meaning: what it computes, on numpy arrays with signed elements; which NaN comes of NaN is left open.
        expansion: writes the same in ops of arith and vector.
    """

    name: str
    intrinsic: str
    operands: tuple[tuple[int, str], ...]
    result: tuple[int, str]
    features: tuple[frozenset[str], ...]
    meaning: Callable[..., np.ndarray] = field(compare=False)
    expansion: Expansion = field(compare=False)

    def write(self, b: Builder, *operands: Value, portable: bool = False) -> Value:
        """The instruction, or its expansion."""
        if portable:
            return self.expansion(b, *operands)
        types = ", ".join(vector_type(*t) for t in self.operands)
        values = ", ".join(operands)
        result = vector_type(*self.result)
        return b.op(f'llvm.call_intrinsic "{self.intrinsic}"({values}) : ({types}) -> {result}')


# -- meanings -----------------------------------------------------------------------------------------


def _wrapped(sums: np.ndarray) -> np.ndarray:
    """The low 32 bits."""
    return sums.astype(np.int64).astype(np.int32)


def _dot(
    left: type[np.integer], right: type[np.integer], group: int = 4
) -> Callable[..., np.ndarray]:
    def meaning(sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        products = a.view(left).astype(np.int64) * b.view(right).astype(np.int64)
        return _wrapped(sums.astype(np.int64) + products.reshape(-1, group).sum(axis=1))

    return meaning


def _pairs(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _dot(np.int16, np.int16, 2)(np.zeros(len(a) // 2, np.int32), a, b)


def _squares(sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    rows, columns = a.reshape(2, 8).astype(np.int64), b.reshape(2, 8).astype(np.int64)
    return _wrapped(sums.astype(np.int64) + (rows @ columns.T).reshape(4))


def _long_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.astype(np.int16) * b.astype(np.int16)


def _from_tables(low: np.ndarray, numbers: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.concatenate((low, high))[numbers.view(np.uint8) & 127]


def _exchanged(bytes_: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    rows, places = bytes_.reshape(-1, 16), numbers.view(np.uint8).reshape(-1, 16)
    chosen = np.take_along_axis(rows, (places & 15).astype(np.int64), axis=1)
    return np.where(places & 128, 0, chosen).astype(np.int8).reshape(-1)


def _neighbours(a: np.ndarray) -> np.ndarray:
    return a.reshape(-1, 2).sum(axis=1, dtype=np.int32)


_LEAST_NORMAL = 2.0**-126


def _flushed(x: np.ndarray) -> np.ndarray:
    """float32 with zeros of the same sign for denormals."""
    return np.where(np.abs(x) < np.float32(_LEAST_NORMAL), np.copysign(np.float32(0), x), x)


def _fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a·b + c of float32, rounded once: the sum in float64 rounded to odd, then to float32."""
    with np.errstate(all="ignore"):
        product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
        total = product + addend
        part = total - product
        rest = (product - (total - part)) + (addend - part)
        inexact = np.isfinite(total) & (rest != 0)
        raw = total.view(np.int64) - (inexact & ((rest < 0) == (total > 0)))
        return np.where(inexact, raw | 1, raw).view(np.float64).astype(np.float32)


def _bfloat_pairs(sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = [_flushed(v.astype(np.float32)).reshape(-1, 2) for v in (a, b)]
    total = _flushed(sums)
    for part in (1, 0):
        total = _flushed(_fused(wide[0][:, part], wide[1][:, part], total))
    return total


def _odd_sum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The sum of two float32: where it is inexact, the one of its two neighbours whose last bit is 1. No denormals."""
    with np.errstate(all="ignore"):
        a, b = x.astype(np.float64), y.astype(np.float64)
        total = a + b
        part = total - a
        rest = (a - (total - part)) + (b - part)
        near = total.astype(np.float32)
        low = total - near.astype(np.float64)
        low = np.where(low == 0, rest, low)
        inexact = (np.abs(total) < 2.0**128) & ((low < 0) | (low > 0))
        raw = near.view(np.int32) - (inexact & ((low < 0) == (near > 0)))
        made = np.where(inexact, raw | 1, raw).astype(np.int32).view(np.float32)
    return _flushed(made)


def _odd_pairs(sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    wide = [_flushed(v.astype(np.float32)).reshape(-1, 2) for v in (a, b)]
    with np.errstate(all="ignore"):
        products = _flushed(wide[0] * wide[1])
    return _odd_sum(_flushed(sums), _odd_sum(products[:, 0], products[:, 1]))


def _odd_squares(sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    rows = np.repeat(a.reshape(2, 1, 2, 2), 2, axis=1)
    columns = np.repeat(b.reshape(1, 2, 2, 2), 2, axis=0)
    for half in (0, 1):
        sums = _odd_pairs(sums, rows[:, :, half].reshape(-1), columns[:, :, half].reshape(-1))
    return sums


def _low_halves(sums: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _fused(a[:4].astype(np.float32), b[:4].astype(np.float32), sums)


# -- expansions: a lane of 32 bits is taken apart by shifts, which every machine has -------------------


def _cast(b: Builder, value: Value, source: tuple[int, str], target: tuple[int, str]) -> Value:
    return b.op(f"vector.bitcast {value} : {vector_type(*source)} to {vector_type(*target)}")


def _part(b: Builder, word: Value, lanes: int, number: int, bits: int, signed: bool) -> Value:
    """The part `number` of `bits` bits of each lane of 32, extended."""
    left = 32 - bits * (number + 1)
    if left:
        word = b.binary("arith.shli", word, b.int_constant(left, "i32", lanes), lanes, "i32")
    shift = b.int_constant(32 - bits, "i32", lanes)
    return b.binary("arith.shrsi" if signed else "arith.shrui", word, shift, lanes, "i32")


def _sum_parts(
    b: Builder, lanes: int, bits: int, signs: tuple[bool, bool], sums: Value | None, *words: Value
) -> Value:
    """The sums plus the products of all parts of each lane of two vectors of words."""
    for number in range(32 // bits):
        parts = [_part(b, w, lanes, number, bits, s) for w, s in zip(words, signs, strict=True)]
        product = b.binary("arith.muli", parts[0], parts[1], lanes, "i32")
        sums = product if sums is None else b.binary("arith.addi", sums, product, lanes, "i32")
    assert sums is not None
    return sums


def _expand_dot(lanes: int, signs: tuple[bool, bool]) -> Expansion:
    def expansion(b: Builder, sums: Value, x: Value, y: Value) -> Value:
        words = [_cast(b, v, (4 * lanes, "i8"), (lanes, "i32")) for v in (x, y)]
        return _sum_parts(b, lanes, 8, signs, sums, *words)

    return expansion


def _flush(b: Builder, x: Value, lanes: int) -> Value:
    """Zeros of the same sign for denormals."""
    m = Lanes(b, lanes, "f32")
    small = m.compare("olt", m.abs(x), m.const(_LEAST_NORMAL))
    sign = m.from_bits(m.int_op("arith.andi", m.bits(x), m.int_const(-(1 << 31))))
    return m.select(small, sign, x)


def _expand_bfloat_pairs(lanes: int) -> Expansion:
    def expansion(b: Builder, sums: Value, x: Value, y: Value) -> Value:
        m = Lanes(b, lanes, "f32")
        words = [_cast(b, v, (2 * lanes, "bf16"), (lanes, "i32")) for v in (x, y)]
        high = [m.int_op("arith.andi", word, m.int_const(-(1 << 16))) for word in words]
        low = [m.int_op("arith.shli", word, m.int_const(16)) for word in words]
        total = _flush(b, sums, lanes)
        for part in (high, low):
            left, right = (_flush(b, m.from_bits(raw), lanes) for raw in part)
            total = _flush(b, m.fma(left, right, total), lanes)
        return total

    return expansion


def _expand_odd_sum(b: Builder, x: Value, y: Value) -> Value:
    single, m = Lanes(b, 4, "f32"), Lanes(b, 4, "f64")
    total, rest = m.two_sum(single.convert(x, "f64"), single.convert(y, "f64"))
    near, zero = m.convert(total, "f32"), m.const(0.0)
    low = m.sub(total, single.convert(near, "f64"))
    low = m.select(m.compare("oeq", low, zero), rest, low)
    below = m.compare("olt", m.abs(total), m.const(2.0**128))
    inexact = m.both(below, m.compare("one", low, zero))
    positive = single.compare("ogt", near, single.const(0.0))
    behind = b.binary("arith.xori", m.compare("ogt", low, zero), positive, 4, "i1")
    raw, one, none = single.bits(near), single.int_const(1), single.int_const(0)
    back = single.select(m.both(inexact, behind), one, none, "i32")
    odd = single.select(inexact, one, none, "i32")
    raw = single.int_op("arith.ori", single.int_op("arith.subi", raw, back), odd)
    return _flush(b, single.from_bits(raw), 4)


def _odd_pairs_of_words(b: Builder, sums: Value, x: Value, y: Value) -> Value:
    """The sums plus, rounded to odd, the products of the two bfloat16 in each lane of two vectors of words."""
    m = Lanes(b, 4, "f32")
    high = [m.int_op("arith.andi", word, m.int_const(-(1 << 16))) for word in (x, y)]
    low = [m.int_op("arith.shli", word, m.int_const(16)) for word in (x, y)]
    products: list[Value] = []
    for part in (low, high):
        left, right = (_flush(b, m.from_bits(raw), 4) for raw in part)
        products.append(_flush(b, m.mul(left, right), 4))
    return _expand_odd_sum(b, _flush(b, sums, 4), _expand_odd_sum(b, *products))


def _expand_odd_pairs(b: Builder, sums: Value, x: Value, y: Value) -> Value:
    return _odd_pairs_of_words(b, sums, *(_cast(b, v, (8, "bf16"), (4, "i32")) for v in (x, y)))


def _expand_odd_squares(b: Builder, sums: Value, x: Value, y: Value) -> Value:
    rows, columns = (_cast(b, v, (8, "bf16"), (4, "i32")) for v in (x, y))
    for half in (0, 1):
        left = shuffle(b, rows, rows, 4, [half, half, 2 + half, 2 + half], "i32")
        right = shuffle(b, columns, columns, 4, [half, 2 + half, half, 2 + half], "i32")
        sums = _odd_pairs_of_words(b, sums, left, right)
    return sums


def _expand_low_halves(b: Builder, sums: Value, x: Value, y: Value) -> Value:
    low = [shuffle(b, v, v, 8, range(4), "f16") for v in (x, y)]
    wide = [b.op(f"arith.extf {v} : vector<4xf16> to vector<4xf32>") for v in low]
    return b.fma(wide[0], wide[1], sums, 4, "f32")


def _expand_pairs(lanes: int) -> Expansion:
    def expansion(b: Builder, x: Value, y: Value) -> Value:
        words = [_cast(b, v, (2 * lanes, "i16"), (lanes, "i32")) for v in (x, y)]
        return _sum_parts(b, lanes, 16, (True, True), None, *words)

    return expansion


def _expand_squares(b: Builder, sums: Value, x: Value, y: Value) -> Value:
    rows, columns = (_cast(b, v, (16, "i8"), (4, "i32")) for v in (x, y))
    for half in (0, 1):
        left = shuffle(b, rows, rows, 4, [half, half, 2 + half, 2 + half], "i32")
        right = shuffle(b, columns, columns, 4, [half, 2 + half, half, 2 + half], "i32")
        sums = _sum_parts(b, 4, 8, (True, True), sums, left, right)
    return sums


def _expand_long_products(b: Builder, x: Value, y: Value) -> Value:
    wide = [b.op(f"arith.extsi {v} : vector<8xi8> to vector<8xi16>") for v in (x, y)]
    return b.binary("arith.muli", wide[0], wide[1], 8, "i16")


def _expand_neighbours(b: Builder, x: Value) -> Value:
    word = _cast(b, x, (8, "i16"), (4, "i32"))
    low, high = (_part(b, word, 4, number, 16, True) for number in (0, 1))
    return b.binary("arith.addi", low, high, 4, "i32")


def _expand_from_tables(lanes: int) -> Expansion:
    kind = vector_type(lanes, "i8")

    def expansion(b: Builder, low: Value, numbers: Value, high: Value) -> Value:
        def both(bits: int) -> Value:
            return b.binary("arith.andi", numbers, b.int_constant(bits, "i8", lanes), lanes, "i8")

        def select(condition: Value, x: Value, y: Value) -> Value:
            return b.op(f"arith.select {condition}, {x}, {y} : vector<{lanes}xi1>, {kind}")

        place, made = both(lanes - 1), b.int_constant(0, "i8", lanes)
        upper = b.op(f"arith.cmpi ne, {both(lanes)}, {made} : {kind}")
        for entry in range(lanes):
            here = b.op(f"arith.cmpi eq, {place}, {b.int_constant(entry, 'i8', lanes)} : {kind}")
            low_entry, high_entry = (
                shuffle(b, v, v, lanes, [entry] * lanes, "i8") for v in (low, high)
            )
            made = select(here, select(upper, high_entry, low_entry), made)
        return made

    return expansion


def _expand_exchange(lanes: int) -> Expansion:
    kind = vector_type(lanes, "i8")

    def expansion(b: Builder, values: Value, numbers: Value) -> Value:
        zero = b.int_constant(0, "i8", lanes)
        places = b.binary("arith.andi", numbers, b.int_constant(15, "i8", lanes), lanes, "i8")
        made = zero
        for place in range(16):
            here = b.op(f"arith.cmpi eq, {places}, {b.int_constant(place, 'i8', lanes)} : {kind}")
            picks = [start + place for start in range(0, lanes, 16) for _ in range(16)]
            spread = shuffle(b, values, values, lanes, picks, "i8")
            made = b.op(f"arith.select {here}, {spread}, {made} : vector<{lanes}xi1>, {kind}")
        cleared = b.op(f"arith.cmpi slt, {numbers}, {zero} : {kind}")
        return b.op(f"arith.select {cleared}, {zero}, {made} : vector<{lanes}xi1>, {kind}")

    return expansion


# -- the instructions ---------------------------------------------------------------------------------


def vpdpbusd(lanes: int) -> Instruction:
    """x86: to each of 4, 8 or 16 int32 add four products of uint8 and int8; EVEX, or VEX with AVX-VNNI."""
    narrow = frozenset({"avx512vnni", "avx512vl"}), frozenset({"avxvnni"})
    return Instruction(
        "vpdpbusd",
        f"llvm.x86.avx512.vpdpbusd.{32 * lanes}",
        ((lanes, "i32"), (4 * lanes, "i8"), (4 * lanes, "i8")),
        (lanes, "i32"),
        (frozenset({"avx512vnni"}),) if lanes == 16 else narrow,
        _dot(np.uint8, np.int8),
        _expand_dot(lanes, (False, True)),
    )


def vdpbf16ps(lanes: int) -> Instruction:
    """x86: to each of 4, 8 or 16 float32 add two products of bfloat16, the second one of a pair first.

    Both are fused multiply-adds that round to nearest even and raise nothing, whatever the thread's modes are; denormal
    operands count as zero, and so do denormal results.
    """
    features = {"avx512bf16"} if lanes == 16 else {"avx512bf16", "avx512vl"}
    return Instruction(
        "vdpbf16ps",
        f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}",
        ((lanes, "f32"), (2 * lanes, "bf16"), (2 * lanes, "bf16")),
        (lanes, "f32"),
        (frozenset(features),),
        _bfloat_pairs,
        _expand_bfloat_pairs(lanes),
    )


def vpmaddwd(lanes: int) -> Instruction:
    """x86: 4, 8 or 16 int32, each the sum of two products of int16."""
    name, feature = {
        4: ("llvm.x86.sse2.pmadd.wd", "sse2"),
        8: ("llvm.x86.avx2.pmadd.wd", "avx2"),
        16: ("llvm.x86.avx512.pmaddw.d.512", "avx512bw"),
    }[lanes]
    return Instruction(
        "vpmaddwd",
        name,
        ((2 * lanes, "i16"), (2 * lanes, "i16")),
        (lanes, "i32"),
        (frozenset({feature}),),
        _pairs,
        _expand_pairs(lanes),
    )


def _arm_dot(name: str, kind: type[np.integer], signed: bool) -> Instruction:
    return Instruction(
        name,
        f"llvm.aarch64.neon.{name}.v4i32.v16i8",
        ((4, "i32"), (16, "i8"), (16, "i8")),
        (4, "i32"),
        (frozenset({"dotprod"}),),
        _dot(kind, kind),
        _expand_dot(4, (signed, signed)),
    )


SDOT = _arm_dot("sdot", np.int8, True)
"""AArch64: to each of 4 int32 add four products of int8."""

UDOT = _arm_dot("udot", np.uint8, False)
"""AArch64: to each of 4 int32 add four products of uint8."""

SMMLA = Instruction(
    "smmla",
    "llvm.aarch64.neon.smmla.v4i32.v16i8",
    ((4, "i32"), (16, "i8"), (16, "i8")),
    (4, "i32"),
    (frozenset({"i8mm"}),),
    _squares,
    _expand_squares,
)
"""AArch64: to a 2x2 matrix of int32 add the product of two rows and two columns of eight int8."""

FMLAL = Instruction(
    "fmlal",
    "llvm.aarch64.neon.fmlal.v4f32.v8f16",
    ((4, "f32"), (8, "f16"), (8, "f16")),
    (4, "f32"),
    (frozenset({"fp16fml"}),),
    _low_halves,
    _expand_low_halves,
)
"""AArch64: to each of 4 float32 add the product of two float16, the first four of eight; rounded once."""

BFDOT = Instruction(
    "bfdot",
    "llvm.aarch64.neon.bfdot.v4f32.v8bf16",
    ((4, "f32"), (8, "bf16"), (8, "bf16")),
    (4, "f32"),
    (frozenset({"bf16"}),),
    _odd_pairs,
    _expand_odd_pairs,
)
"""AArch64: to each of 4 float32 add the sum of two products of bfloat16.

Both sums are rounded to odd, whatever the thread's modes are (but for the one of FEAT_EBF16, which no system sets);
denormal operands count as zero, and so do denormal results.
"""

BFMMLA = Instruction(
    "bfmmla",
    "llvm.aarch64.neon.bfmmla",
    ((4, "f32"), (8, "bf16"), (8, "bf16")),
    (4, "f32"),
    (frozenset({"bf16"}),),
    _odd_squares,
    _expand_odd_squares,
)
"""AArch64: to a 2x2 matrix of float32 add the product of two rows and two columns of four bfloat16, as two `bfdot`."""

SMULL = Instruction(
    "smull",
    "llvm.aarch64.neon.smull.v8i16",
    ((8, "i8"), (8, "i8")),
    (8, "i16"),
    (frozenset({"neon"}),),
    _long_products,
    _expand_long_products,
)
"""AArch64: 8 products of int8, in int16."""

SADDLP = Instruction(
    "saddlp",
    "llvm.aarch64.neon.saddlp.v4i32.v8i16",
    ((8, "i16"),),
    (4, "i32"),
    (frozenset({"neon"}),),
    _neighbours,
    _expand_neighbours,
)
"""AArch64: sums of two neighbours of int16, in int32; with an addition it becomes `sadalp`."""


def vpshufb(lanes: int) -> Instruction:
    """x86: for each of 16, 32 or 64 bytes, that of the same 128 bits with a number, or 0 for negative numbers."""
    name, feature = {
        16: ("llvm.x86.ssse3.pshuf.b.128", "ssse3"),
        32: ("llvm.x86.avx2.pshuf.b", "avx2"),
        64: ("llvm.x86.avx512.pshuf.b.512", "avx512bw"),
    }[lanes]
    return Instruction(
        "vpshufb",
        name,
        ((lanes, "i8"), (lanes, "i8")),
        (lanes, "i8"),
        (frozenset({feature}),),
        _exchanged,
        _expand_exchange(lanes),
    )


VPERMI2B = Instruction(
    "vpermi2b",
    "llvm.x86.avx512.vpermi2var.qi.512",
    ((64, "i8"), (64, "i8"), (64, "i8")),
    (64, "i8"),
    (frozenset({"avx512vbmi"}),),
    _from_tables,
    _expand_from_tables(64),
)
"""x86: for each of 64 bytes, the entry with the number that its low 7 bits are, of a table in two registers."""

INSTRUCTIONS = (
    *(vpdpbusd(lanes) for lanes in (4, 8, 16)),
    *(vpmaddwd(lanes) for lanes in (4, 8, 16)),
    *(vdpbf16ps(lanes) for lanes in (4, 8, 16)),
    SDOT,
    UDOT,
    SMMLA,
    FMLAL,
    BFDOT,
    BFMMLA,
    SMULL,
    SADDLP,
    VPERMI2B,
    *(vpshufb(lanes) for lanes in (16, 32, 64)),
)
"""All instructions there are."""
