"""Element functions of the elementwise ops.

16-bit floats are computed in float32 and rounded at each op, float16 in itself where that is the same;
integers wrap. What the ops mean is said in `dialects/nn`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from xcompile.compiler.codegen.cpu import hyperbolic, power, remainder, trig
from xcompile.compiler.codegen.cpu import math as m
from xcompile.compiler.codegen.cpu.builder import Builder, Value, vector_type
from xcompile.compiler.codegen.cpu.casts import cast, convert
from xcompile.compiler.codegen.cpu.pull import At, Pull, pulls, register_dtype
from xcompile.compiler.ir.dtypes import bits_of, is_float, is_unsigned
from xcompile.compiler.ir.op import Op
from xcompile.compiler.ir.rewrite import maker
from xcompile.dialects.kernel import FITS, PLAIN
from xcompile.dialects.nn.base import dtype_of

_FLOAT_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": m.exp, "log": m.log, "sqrt": m.sqrt, "reciprocal": m.reciprocal, "sin": trig.sin, "cos": trig.cos,
    "tan": trig.tan, "asin": trig.asin, "acos": trig.acos, "atan": trig.atan, "tanh": m.tanh,
    "sinh": hyperbolic.sinh, "cosh": hyperbolic.cosh, "asinh": hyperbolic.asinh, "acosh": hyperbolic.acosh,
    "atanh": hyperbolic.atanh,
    "erf": m.erf, "rsqrt": m.rsqrt, "sigmoid": m.sigmoid, "softplus": m.softplus, "mish": m.mish,
    "floor": m.floor, "ceil": m.ceil, "round": m.round_even,
}  # fmt: skip
"""Ops that are one function of `math`, `trig` or `hyperbolic`."""


_ROUNDED_ONCE = frozenset(
    f"nn.{name}"
    for name in (
        "add", "sub", "mul", "div", "sqrt", "abs", "neg", "relu", "maximum", "minimum", "clip", "where",
        "floor", "ceil", "round", "equal", "less", "less_equal", "greater", "greater_equal",
    )
)  # fmt: skip
"""Ops that give the same in float16 as in float32 and rounded: they round once, correctly, or not at all."""


class Scalars:
    """Arithmetic on vectors of one element type: what the handlers below are written in."""

    def __init__(self, b: Builder, lanes: int, dtype: str) -> None:
        self.b = b
        self.lanes = lanes
        self.dtype = dtype
        self.register = register_dtype(dtype)
        self.type = vector_type(lanes, self.register)
        self.float = is_float(dtype)

    def const(self, value: float) -> Value:
        if self.float:
            return self.b.float_constant(value, self.dtype, self.lanes)
        return self.b.int_constant(int(value), self.register, self.lanes)

    def op(self, name: str, *operands: Value) -> Value:
        return self.b.op(f"{name} {', '.join(operands)} : {self.type}")

    def add(self, x: Value, y: Value) -> Value:
        return self.op("arith.addf" if self.float else "arith.addi", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        return self.op("arith.subf" if self.float else "arith.subi", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return self.op("arith.mulf" if self.float else "arith.muli", x, y)

    def div(self, x: Value, y: Value) -> Value:
        return self.op("arith.divf", x, y)

    def compare(self, predicate: str, x: Value, y: Value) -> Value:
        """`lt le gt ge eq ne`; comparisons with NaN are false but for `ne`."""
        if self.float:
            return self.op(f"arith.cmpf {'une' if predicate == 'ne' else 'o' + predicate},", x, y)
        sign = (
            ""
            if predicate in ("eq", "ne")
            else "u"
            if is_unsigned(self.dtype) or self.dtype == "i1"
            else "s"
        )
        return self.op(f"arith.cmpi {sign}{predicate},", x, y)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        flag = f"{vector_type(self.lanes, 'i1')}, " if self.lanes else ""
        return self.b.op(f"arith.select {condition}, {x}, {y} : {flag}{self.type}")

    def call(self, function: Callable[..., Value], *operands: Value) -> Value:
        """A function of `math`."""
        return function(self.b, *operands, self.lanes, self.dtype)

    def maximum(self, x: Value, y: Value) -> Value:
        if self.float:
            return self.call(m.maximum, x, y)
        return self.op(
            "arith.maxui" if is_unsigned(self.dtype) or self.dtype == "i1" else "arith.maxsi", x, y
        )

    def minimum(self, x: Value, y: Value) -> Value:
        if self.float:
            return self.call(m.minimum, x, y)
        return self.op(
            "arith.minui" if is_unsigned(self.dtype) or self.dtype == "i1" else "arith.minsi", x, y
        )


Rule = Callable[[Scalars, Any, Sequence[Value]], Value]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        _RULES.update({f"nn.{name}": rule for name in names})
        pulls(*(f"nn.{name}" for name in names))(_apply)
        return rule

    return register


def _apply(pull: Pull, op: Op, at: At) -> Value:
    """Pull the operands, compute in the arithmetic type, round to the result's."""
    result = pull.sizes.shape(op.results[0])
    operands = [pull.broadcast(v, at, result) for v in op.operands]
    dtypes = [dtype_of(v) for v in op.operands]
    in_half = op.NAME in _ROUNDED_ONCE and "fullfp16" in pull.features
    wider = ("bf16",) if in_half else ("f16", "bf16")
    return evaluate(pull.b, pull.lanes, op, operands, dtypes, wider)


def evaluate(
    b: Builder,
    lanes: int,
    op: Op,
    operands: Sequence[Value],
    dtypes: Sequence[str],
    widened: Sequence[str],
) -> Value:
    """One elementwise op on values in registers; what is of the types `widened` is computed in float32."""
    narrow = [d in widened for d in dtypes]
    wide = ["f32" if n else d for n, d in zip(narrow, dtypes, strict=True)]
    values = [
        cast(b, v, d, "f32", lanes) if n else v
        for v, d, n in zip(operands, dtypes, narrow, strict=True)
    ]
    value = _RULES[op.NAME](Scalars(b, lanes, wide[-1]), op, values)
    result = dtype_of(op.results[0])
    return cast(b, value, "f32", result, lanes) if result in widened else value


# -- one operand ----------------------------------------------------------------------------------


@_rule(*_FLOAT_FUNCTIONS)
def _function(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.call(_FLOAT_FUNCTIONS[op.NAME.removeprefix("nn.")], *x)


@_rule("abs")
def _abs(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    if s.float:
        return s.op("math.absf", x[0])
    if is_unsigned(s.dtype):
        return x[0]
    return s.op("arith.maxsi", x[0], s.sub(s.const(0), x[0]))


@_rule("neg")
def _neg(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.op("arith.negf", x[0]) if s.float else s.sub(s.const(0), x[0])


@_rule("sign")
def _sign(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    if s.float:
        return s.call(m.sign, x[0])
    below = s.const(0) if is_unsigned(s.dtype) else s.const(-1)
    positive = s.select(s.compare("gt", x[0], s.const(0)), s.const(1), s.const(0))
    return (
        positive
        if is_unsigned(s.dtype)
        else s.select(s.compare("lt", x[0], s.const(0)), below, positive)
    )


@_rule("relu")
def _relu(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.call(m.relu, x[0]) if s.float else s.maximum(x[0], s.const(0))


@_rule("hard_sigmoid")
def _hard_sigmoid(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    line = s.add(s.mul(x[0], s.const(op.alpha)), s.const(op.beta))
    return s.minimum(s.maximum(line, s.const(0)), s.const(1))


@_rule("hard_swish")
def _hard_swish(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    line = s.add(s.mul(x[0], s.const(1 / 6)), s.const(0.5))
    return s.mul(x[0], s.minimum(s.maximum(line, s.const(0)), s.const(1)))


@_rule("leaky_relu")
def _leaky_relu(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.select(s.compare("lt", x[0], s.const(0)), s.mul(x[0], s.const(op.alpha)), x[0])


@_rule("elu")
def _elu(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    low = s.mul(s.call(m.expm1, x[0]), s.const(op.alpha))
    return s.select(s.compare("lt", x[0], s.const(0)), low, x[0])


@_rule("celu")
def _celu(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    low = s.mul(s.call(m.expm1, s.div(x[0], s.const(op.alpha))), s.const(op.alpha))
    return s.add(s.maximum(x[0], s.const(0)), s.minimum(low, s.const(0)))


@_rule("selu")
def _selu(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    low = s.mul(s.call(m.expm1, x[0]), s.const(op.alpha))
    return s.mul(s.select(s.compare("le", x[0], s.const(0)), low, x[0]), s.const(op.gamma))


@_rule("gelu")
def _gelu(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.call(m.gelu_tanh if op.approximate == "tanh" else m.gelu, x[0])


@_rule("softsign")
def _softsign(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.div(x[0], s.add(s.op("math.absf", x[0]), s.const(1)))


@_rule("swish")
def _swish(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    scaled = x[0] if op.alpha == 1 else s.mul(x[0], s.const(op.alpha))
    return s.mul(x[0], s.call(m.sigmoid, scaled))


@_rule("thresholded_relu")
def _thresholded_relu(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.select(s.compare("le", x[0], s.const(op.alpha)), s.const(0), x[0])


@_rule("shrink")
def _shrink(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    above = s.select(
        s.compare("gt", x[0], s.const(op.lambd)), s.sub(x[0], s.const(op.bias)), s.const(0)
    )
    return s.select(s.compare("lt", x[0], s.const(-op.lambd)), s.add(x[0], s.const(op.bias)), above)


@_rule("is_nan")
def _is_nan(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.compare("ne", x[0], x[0])


@_rule("is_inf")
def _is_inf(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    infinity = float("inf")
    if op.negative and op.positive:
        return s.compare("eq", s.op("math.absf", x[0]), s.const(infinity))
    if op.negative or op.positive:
        return s.compare("eq", x[0], s.const(infinity if op.positive else -infinity))
    return s.b.int_constant(0, "i1", s.lanes)


@_rule("not", "bitwise_not")
def _not(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.op("arith.xori", x[0], s.const(1 if s.dtype == "i1" else -1))


@pulls("nn.cast")
def _cast(pull: Pull, op: Any, at: At) -> Value:
    """A conversion; floats that are rounded to fit int32 are rounded by it."""
    known, source = op.operation.attributes, op.x
    rounded = maker(source) if FITS in known and dtype_of(source) == "f32" else None
    nearest = rounded is not None and rounded.NAME == "nn.round" and source not in pull.sources
    x = pull.value(rounded.operands[0] if nearest and rounded is not None else source, at)
    return convert(
        pull.b,
        x,
        dtype_of(source),
        op.to,
        pull.lanes,
        saturate=op.saturate,
        rounding=op.rounding,
        fits=FITS in known,
        number=PLAIN in known,
        nearest=nearest,
    )


@pulls("nn.bitcast")
def _bitcast(pull: Pull, op: Any, at: At) -> Value:
    """Bools are bytes: a byte that is not 0 is true."""
    source, to, x = dtype_of(op.x), op.to, pull.value(op.x, at)
    if source == "i1":
        x, source = convert(pull.b, x, "i1", "ui8", pull.lanes), "ui8"
    if to == "i1":
        byte = x if register_dtype(source) == "i8" else pull.bits(x, source, "i8")
        return convert(pull.b, byte, "ui8", "i1", pull.lanes)
    return pull.bits(x, source, to)


# -- two operands ---------------------------------------------------------------------------------


@_rule("add")
def _add(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.add(*x)


@_rule("sub")
def _sub(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.sub(*x)


@_rule("mul")
def _mul(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.mul(*x)


@_rule("div")
def _div(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.div(*x) if s.float else _integer_division(s, x, remainder=False)


def _integer_division(s: Scalars, x: Sequence[Value], *, remainder: bool) -> Value:
    """Quotient or remainder toward zero; `x / 0` and `x mod 0` are 0, and the least integer by -1 wraps."""
    zero = s.compare("eq", x[1], s.const(0))
    unsigned = is_unsigned(s.dtype)
    special = (
        zero
        if unsigned
        else s.b.op(
            f"arith.ori {zero}, {s.compare('eq', x[1], s.const(-1))} : {vector_type(s.lanes, 'i1')}"
        )
    )
    divisor = s.select(special, s.const(1), x[1])
    name = ("rem" if remainder else "div") + ("ui" if unsigned else "si")
    result = s.op(f"arith.{name}", x[0], divisor)
    if not unsigned and not remainder:
        result = s.select(special, s.sub(s.const(0), x[0]), result)
    return s.select(zero, s.const(0), result)


@_rule("mod")
def _mod(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    if s.float:
        return _float_remainder(s, x, fmod=op.fmod)
    result = _integer_division(s, x, remainder=True)
    if op.fmod or is_unsigned(s.dtype):
        return result
    differs = s.compare("lt", s.op("arith.xori", result, x[1]), s.const(0))
    nonzero = s.compare("ne", result, s.const(0))
    wrong = s.b.op(f"arith.andi {differs}, {nonzero} : {vector_type(s.lanes, 'i1')}")
    return s.select(wrong, s.add(result, x[1]), result)


def _float_remainder(s: Scalars, x: Sequence[Value], *, fmod: bool) -> Value:
    """The remainder with the sign of the dividend, or moved to that of the divisor."""
    result = s.call(remainder.fmod, *x)
    if fmod:
        return result
    zero, flag = s.const(0), vector_type(s.lanes, "i1")
    signs = [s.compare("lt", v, zero) for v in (result, x[1])]
    differs = s.b.op(f"arith.xori {signs[0]}, {signs[1]} : {flag}")
    moved = s.select(differs, s.add(result, x[1]), result)
    return s.select(s.compare("eq", result, zero), s.op("math.copysign", zero, x[1]), moved)


@pulls("nn.pow")
def _pow(pull: Pull, op: Any, at: At) -> Value:
    """Powers; small whole constant exponents of floats are products."""
    b, lanes = pull.b, pull.lanes
    shape = pull.sizes.shape(op.y)
    base, kind = pull.broadcast(op.a, at, shape), dtype_of(op.a)
    if not is_float(kind) and not is_float(dtype_of(op.b)):
        exponent = pull.broadcast(op.b, at, shape)
        return _integer_power(Scalars(b, lanes, kind), base, exponent, dtype_of(op.b))
    wide = "f64" if kind == "f64" or not is_float(kind) else "f32"
    s = Scalars(b, lanes, wide)
    x = convert(b, base, kind, wide, lanes)
    known = pull.sizes.content(op.b)
    if known is not None and known in ((2,), (3,)) and is_float(kind):
        square = s.mul(x, x)
        return convert(b, square if known == (2,) else s.mul(square, x), wide, kind, lanes)
    exponent = convert(b, pull.broadcast(op.b, at, shape), dtype_of(op.b), wide, lanes)
    return convert(b, power.pow(b, x, exponent, lanes, wide), wide, kind, lanes)


def _integer_power(s: Scalars, base: Value, exponent: Value, dtype: str) -> Value:
    """By squaring, wrapping; a negative exponent gives 1 / base^|exponent| toward zero, which is 0 for most bases."""
    e = Scalars(s.b, s.lanes, dtype)
    negative = None if is_unsigned(dtype) else e.compare("lt", exponent, e.const(0))
    if negative is not None:
        exponent = e.select(negative, e.sub(e.const(0), exponent), exponent)

    def square(_: object, carried: list[Value]) -> Sequence[Value]:
        power, factor, rest = carried
        odd = e.compare("ne", e.op("arith.andi", rest, e.const(1)), e.const(0))
        power = s.select(odd, s.mul(power, factor), power)
        return [power, s.mul(factor, factor), e.op("arith.shrui", rest, e.const(1))]

    types = [s.type, s.type, e.type]
    power = s.b.reduce(0, bits_of(dtype), 1, [s.const(1), base, exponent], types, square)[0]
    if negative is None:
        return power
    inverse = _integer_division(s, [s.const(1), power], remainder=False)
    return s.select(negative, inverse, power)


@_rule("maximum")
def _maximum(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.op("arith.maxnumf", *x) if PLAIN in op.operation.attributes else s.maximum(*x)


@_rule("minimum")
def _minimum(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.op("arith.minnumf", *x) if PLAIN in op.operation.attributes else s.minimum(*x)


@_rule("prelu")
def _prelu(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.select(s.compare("lt", x[0], s.const(0)), s.mul(*x), x[0])


@_rule("equal", "less", "less_equal", "greater", "greater_equal")
def _compare(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    names = {
        "equal": "eq",
        "less": "lt",
        "less_equal": "le",
        "greater": "gt",
        "greater_equal": "ge",
    }
    return s.compare(names[op.NAME.removeprefix("nn.")], *x)


@_rule("and", "or", "xor", "bitwise_and", "bitwise_or", "bitwise_xor")
def _bits(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.op(f"arith.{op.NAME.removeprefix('nn.').removeprefix('bitwise_')}i", *x)


@_rule("bit_shift")
def _bit_shift(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    """Shifts by less than 0 or by the width and more leave nothing but the sign."""
    most = s.const(bits_of(s.dtype) - 1)
    by = s.op("arith.minui", x[1], most)  # a negative shift is a huge unsigned one
    beyond = s.op("arith.cmpi ugt,", x[1], most)
    if op.left:
        return s.select(beyond, s.const(0), s.op("arith.shli", x[0], by))
    if is_unsigned(s.dtype):
        return s.select(beyond, s.const(0), s.op("arith.shrui", x[0], by))
    return s.op("arith.shrsi", x[0], by)  # by the width less one is by more: only the sign stays


# -- three operands -------------------------------------------------------------------------------


@_rule("where")
def _where(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    return s.select(*x)


@_rule("clip")
def _clip(s: Scalars, op: Any, x: Sequence[Value]) -> Value:
    value, bounds = x[0], list(x[1:])
    if op.low is not None:
        value = s.maximum(value, bounds.pop(0))
    return s.minimum(value, bounds.pop(0)) if bounds else value
