"""Conversions between all element types, the same on every target.

Element types: "f64 f32 f16 bf16 i64 i32 i16 i8 i4 i2 u64 u32 u16 u8 u4 u2 bool" and the small floats (see `float8.py`);
a bool is an i8 of 0 or 1, a small float its bits as i8, unsigned integers are signless ones in the IR. The rules,
where ONNX leaves them open:

- float to float rounds to nearest even; too large is infinity.
- float to integer truncates toward zero to 64 bits and keeps the low bits; NaN, infinities and what does not fit
  64 bits become 0. So float32 [300, NaN, inf, -inf, 50, -50] to int8 is [44, 0, 0, 0, 50, -50].
- integer to integer keeps the low bits; to bool is "not zero", and NaN is true.
- integer to f16, bf16 or a small float goes through float32, f64 to these does not round twice.
"""

from xcompile.compiler.codegen.cpu.builder import Builder, Value, vector_type
from xcompile.compiler.codegen.cpu.float8 import (
    FORMATS,
    POWERS,
    decode,
    decode_power,
    encode,
    encode_power,
)
from xcompile.compiler.codegen.cpu.lanes import Lanes

FLOATS = ("f64", "f32", "f16", "bf16")
_BITS = {"f64": 64, "f32": 32, "f16": 16, "bf16": 16, "bool": 8}


def storage(dtype: str) -> str:
    """The IR's element type of `dtype`: signless integers, i8 for bool."""
    return "i8" if dtype == "bool" else dtype.replace("u", "i")


def bits(dtype: str) -> int:
    """The width of an element in memory."""
    return _BITS.get(dtype) or int(dtype[1:])


def cast(
    b: Builder,
    x: Value,
    source: str,
    target: str,
    lanes: int,
    *,
    saturate: bool = True,
    rounding: str = "up",
    fits: bool = False,
    number: bool = False,
    nearest: bool = False,
) -> Value:
    """`x` of element type `source` as `target`; see the rules above.

    `saturate` is for small floats, `rounding` for powers of two. With `fits`, floats are NaN or fit int32; with
    `number` as well, none is NaN; with `nearest` as well, float32 goes to the nearest integer, ties to even.
    """
    if source == target:
        return x
    if source == POWERS:
        return cast(b, decode_power(b, x, lanes), "f32", target, lanes, saturate=saturate)
    if target == POWERS:
        wide = _narrowed(b, x, source, lanes)
        return encode_power(b, wide, lanes, saturate=saturate, rounding=rounding)
    if source in FORMATS:
        return cast(b, decode(b, x, source, lanes), "f32", target, lanes, saturate=saturate)
    if target in FORMATS:
        wide = _narrowed(b, x, source, lanes)
        return encode(b, wide, target, lanes, saturate=saturate)
    if target == "bool":
        return _to_bool(b, x, source, lanes)
    if source in FLOATS and target in FLOATS:
        return _float_to_float(b, x, source, target, lanes)
    if source in FLOATS:
        if fits and source in ("f64", "f32") and bits(target) <= 32:
            whole = _fitting(b, x, source, lanes, number=number, nearest=nearest)
            return _resize(b, whole, "i32", target, lanes)
        return _float_to_int(b, x, source, target, lanes)
    if target in FLOATS:
        return _int_to_float(b, x, source, target, lanes)
    return _resize(b, x, source, target, lanes)


def _narrowed(b: Builder, x: Value, source: str, lanes: int) -> Value:
    """`x` as an f32 that rounds on as `x` itself would."""
    if source == "f64":
        return _round_to_odd(b, x, lanes)
    return cast(b, x, source, "f32", lanes)


def convert(
    b: Builder,
    x: Value,
    source: str,
    to: str,
    lanes: int,
    *,
    saturate: bool = True,
    rounding: str = "up",
    fits: bool = False,
    number: bool = False,
    nearest: bool = False,
) -> Value:
    """A cast between register values of any element types, as `nn.cast` means it; arguments as of `cast`."""
    if source == to:
        return x
    if source == "i1":
        x = b.op(f"arith.extui {x} : {vector_type(lanes, 'i1')} to {vector_type(lanes, 'i8')}")
    made = cast(
        b, x, _name(source), _name(to), lanes, saturate=saturate, rounding=rounding, fits=fits,
        number=number, nearest=nearest,
    )  # fmt: skip
    if to == "i1":
        made = b.op(
            f"arith.trunci {made} : {vector_type(lanes, 'i8')} to {vector_type(lanes, 'i1')}"
        )
    return made


def _name(dtype: str) -> str:
    return "bool" if dtype == "i1" else dtype.replace("ui", "u")


def _convert(b: Builder, op: str, x: Value, source: str, target: str, lanes: int) -> Value:
    return b.op(f"{op} {x} : {vector_type(lanes, source)} to {vector_type(lanes, target)}")


def _resize(b: Builder, x: Value, source: str, target: str, lanes: int) -> Value:
    """Integer to integer: drop high bits or extend by the source's signedness."""
    if bits(source) == bits(target):
        return x
    widen = "arith.extsi" if source.startswith("i") else "arith.extui"
    op = "arith.trunci" if bits(target) < bits(source) else widen
    return _convert(b, op, x, storage(source), storage(target), lanes)


def _to_bool(b: Builder, x: Value, source: str, lanes: int) -> Value:
    if source in ("f16", "bf16"):
        x, source = _float_to_float(b, x, source, "f32", lanes), "f32"
    kind = vector_type(lanes, storage(source))
    if source in FLOATS:
        flag = b.op(f"arith.cmpf une, {x}, {b.float_constant(0.0, source, lanes)} : {kind}")
    else:
        zero = b.int_constant(0, storage(source), lanes)
        flag = b.op(f"arith.cmpi ne, {x}, {zero} : {kind}")
    return _convert(b, "arith.extui", flag, "i1", "i8", lanes)


def _int_to_float(b: Builder, x: Value, source: str, target: str, lanes: int) -> Value:
    step = "f64" if target == "f64" else "f32"
    op = "arith.sitofp" if source.startswith("i") else "arith.uitofp"
    value = _convert(b, op, x, storage(source), step, lanes)
    return _float_to_float(b, value, step, target, lanes)


def _float_to_float(b: Builder, x: Value, source: str, target: str, lanes: int) -> Value:
    if source == target:
        return x
    if source == "bf16":
        wide = _convert(b, "arith.bitcast", x, "bf16", "i16", lanes)
        shifted = b.binary(
            "arith.shli",
            _convert(b, "arith.extui", wide, "i16", "i32", lanes),
            b.int_constant(16, "i32", lanes),
            lanes,
            "i32",
        )
        value = _convert(b, "arith.bitcast", shifted, "i32", "f32", lanes)
        return _float_to_float(b, value, "f32", target, lanes)
    if source == "f16" and target != "f32":
        value = _convert(b, "arith.extf", x, "f16", "f32", lanes)
        return _float_to_float(b, value, "f32", target, lanes)
    if source == "f64" and target in ("f16", "bf16"):
        return _float_to_float(b, _round_to_odd(b, x, lanes), "f32", target, lanes)
    if target == "bf16":
        return _to_bfloat(b, x, lanes)
    op = "arith.extf" if bits(target) > bits(source) else "arith.truncf"
    return _convert(b, op, x, source, target, lanes)


def _to_bfloat(b: Builder, x: Value, lanes: int) -> Value:
    """f32 to bf16 in integer arithmetic: add half an ulp less the tie bit, drop 16 bits."""
    m = Lanes(b, lanes, "f32")
    raw = m.bits(x)
    sixteen, one = m.int_const(16), m.int_const(1)
    odd = m.int_op("arith.andi", m.int_op("arith.shrui", raw, sixteen), one)
    rounded = m.int_op("arith.addi", raw, m.int_op("arith.addi", odd, m.int_const(0x7FFF)))
    quiet = m.int_op("arith.ori", raw, m.int_const(0x400000))
    chosen = m.select(m.compare("uno", x, x), quiet, rounded, "i32")
    short = _convert(
        b, "arith.trunci", m.int_op("arith.shrui", chosen, sixteen), "i32", "i16", lanes
    )
    return _convert(b, "arith.bitcast", short, "i16", "bf16", lanes)


def _round_to_odd(b: Builder, x: Value, lanes: int) -> Value:
    """f64 to f32 such that rounding the result once more is as good as rounding x once."""
    wide, m = Lanes(b, lanes, "f64"), Lanes(b, lanes, "f32")
    near = wide.convert(x, "f32")
    back = m.convert(near, "f64")
    too_far = wide.compare("ogt", wide.abs(back), wide.abs(x))
    raw = m.bits(near)
    toward_zero = m.select(too_far, m.int_op("arith.subi", raw, m.int_const(1)), raw, "i32")
    odd = m.int_op("arith.ori", toward_zero, m.int_const(1))
    inexact = wide.compare("one", back, x)
    return m.from_bits(m.select(inexact, odd, raw, "i32"))


def _fitting(
    b: Builder, x: Value, source: str, lanes: int, *, number: bool, nearest: bool
) -> Value:
    """Floats that are NaN or fit int32 as int32."""
    m = Lanes(b, lanes, source)
    if not number:
        x = m.select(m.compare("ord", x, x), x, m.const(0.0))
    if not nearest:
        return _convert(b, "arith.fptosi", x, source, "i32", lanes)
    kinds, name = (vector_type(lanes, source), vector_type(lanes, "i32")), "i32.f32"
    if lanes:
        name = f"v{lanes}i32.v{lanes}f32"
    return b.op(f'llvm.call_intrinsic "llvm.lrint.{name}"({x}) : ({kinds[0]}) -> {kinds[1]}')


def _float_to_int(b: Builder, x: Value, source: str, target: str, lanes: int) -> Value:
    if source in ("f16", "bf16"):
        x, source = _float_to_float(b, x, source, "f32", lanes), "f32"
    if target == "u64":
        return _to_unsigned_long(b, x, source, lanes)
    if target == "i64":
        safe = _or_zero(b, x, source, 2.0**63, lanes)
        return _convert(b, "arith.fptosi", safe, source, "i64", lanes)
    return _resize(b, _low_word(b, x, source, lanes), "i32", target, lanes)


def _or_zero(b: Builder, x: Value, source: str, top: float, lanes: int) -> Value:
    """The number itself if it is in [-2^63, top), else 0."""
    m = Lanes(b, lanes, source)
    fits = m.both(m.compare("oge", x, m.const(-(2.0**63))), m.compare("olt", x, m.const(top)))
    return m.select(fits, x, m.const(0.0))


def _low_word(b: Builder, x: Value, source: str, lanes: int) -> Value:
    """The low 32 bits of x truncated to 64: x less a multiple of 2^32, all in exact float arithmetic."""
    m = Lanes(b, lanes, source)
    whole = m.unary("math.trunc", _or_zero(b, x, source, 2.0**63, lanes))
    turns = m.unary("math.roundeven", m.mul(whole, m.const(2.0**-32)))
    rest = m.fma(turns, m.const(-(2.0**32)), whole)
    over = m.compare("oge", rest, m.const(2.0**31))
    rest = m.select(over, m.sub(rest, m.const(2.0**32)), rest)
    return _convert(b, "arith.fptosi", rest, source, "i32", lanes)


def _to_unsigned_long(b: Builder, x: Value, source: str, lanes: int) -> Value:
    m = Lanes(b, lanes, source)
    safe, top = _or_zero(b, x, source, 2.0**64, lanes), m.const(2.0**63)
    large = m.compare("oge", safe, top)
    low = m.select(large, m.sub(safe, top), safe)
    value = _convert(b, "arith.fptosi", low, source, "i64", lanes)
    sign = b.int_constant(-(1 << 63), "i64", lanes)
    return m.select(large, b.binary("arith.xori", value, sign, lanes, "i64"), value, "i64")
