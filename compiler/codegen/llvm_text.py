"""Rewrites the LLVM IR text of MLIR's LLVM for the older LLVM that makes the machine code.

MLIR's wheel prints the text of LLVM 24, llvmlite reads the text of LLVM 22. Two things differ in what our
modules contain:

* Float constants. LLVM 24 writes `1.000000e-01` (to be rounded to the constant's type), `+inf`, `+qnan`,
  `+nan(0x1)` (quiet, with payload), `+snan(0x1)` (signaling) and `f0x3DCCCCCD` (the bits). LLVM 22 reads bits
  only for anything that is not exact, and spells them by type: `0xH` half, `0xR` bfloat, and the 16 digits of
  the *widened* value for float and double.
* Attributes of intrinsics. The reader knows the attributes of its own intrinsics, so a declaration needs none,
  and an attribute which only the newer LLVM knows would be refused.
"""

import functools
import re
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class _Format:
    """An IEEE 754 binary interchange format, by the widths of its two fields."""

    exponent_bits: int
    fraction_bits: int

    @property
    def infinity(self) -> int:
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def quiet_bit(self) -> int:
        return 1 << (self.fraction_bits - 1)

    @property
    def sign_bit(self) -> int:
        return 1 << (self.exponent_bits + self.fraction_bits)


_FORMATS = {
    "half": _Format(5, 10),
    "bfloat": _Format(8, 7),
    "float": _Format(8, 23),
    "double": _Format(11, 52),
}
# A literal or a type is never part of a name (%1.5, @llvm.fma.v4f32, @float): names have these characters before it.
_LITERAL = (
    r"(?<![\w.$@%\-+])"
    r"(?:[+-]?[0-9]+\.[0-9]+(?:e[+-]?[0-9]+)?|f0x[0-9A-Fa-f]+|[+-](?:inf|qnan|s?nan\(0x[0-9a-fA-F]+\)))"
    r"(?![\w.])"
)
_HINT = re.compile(
    r"\.[0-9]|[+-](?:inf|q?s?nan)|f0x"
)  # in every line with a literal; quick to search
_TOKEN = re.compile(
    rf'(?P<string>"[^"]*")|(?P<type>(?<![\w.$@%])(?:half|bfloat|float|double)(?![\w.]))|(?P<literal>{_LITERAL})'
)
_INTRINSIC = re.compile(r"^(declare [^\n]*@llvm\.[^\n]*?)((?: #[0-9]+)+)$", re.MULTILINE)
_ATTRIBUTE_GROUP = re.compile(r"^attributes (#[0-9]+) = \{[^\n]*\}\n?", re.MULTILINE)


def downgrade(text: str) -> str:
    """Return `text`, a module as LLVM 24 prints it, in the words of LLVM 22; constants keep every bit."""
    lines = [_rewrite_line(line) if _HINT.search(line) else line for line in text.split("\n")]
    return _drop_unused_groups(_INTRINSIC.sub(r"\1", "\n".join(lines)))


def _rewrite_line(line: str) -> str:
    """Rewrite the float literals of one line; the type of each is the last float type before it."""
    type_name = ""

    def replace(match: re.Match[str]) -> str:
        nonlocal type_name
        if match["type"]:
            type_name = match["type"]
        elif match["literal"] and type_name:
            return encode(type_name, match["literal"])
        return match[0]

    return _TOKEN.sub(replace, line)


def _drop_unused_groups(text: str) -> str:
    used = set(re.findall(r"(#[0-9]+)\b", _ATTRIBUTE_GROUP.sub("", text)))
    return _ATTRIBUTE_GROUP.sub(lambda group: group[0] if group[1] in used else "", text)


@functools.lru_cache(maxsize=4096)
def encode(type_name: str, literal: str) -> str:
    """Return LLVM 22's hexadecimal spelling of LLVM 24's `literal` of type half, bfloat, float or double."""
    bits = _bits(_FORMATS[type_name], literal)
    if type_name == "half":
        return f"0xH{bits:04X}"
    if type_name == "bfloat":
        return f"0xR{bits:04X}"
    return f"0x{_widen(bits) if type_name == 'float' else bits:016X}"


def _bits(form: _Format, literal: str) -> int:
    """Return the bit pattern which `literal` names in the format `form`."""
    if literal.startswith("f0x"):
        return int(literal[3:], 16)
    sign = form.sign_bit if literal[0] == "-" else 0
    magnitude = literal.lstrip("+-")
    if magnitude == "inf":
        return sign | form.infinity
    if magnitude == "qnan":
        return sign | form.infinity | form.quiet_bit
    if "nan" in magnitude:
        quiet = 0 if magnitude.startswith("s") else form.quiet_bit
        return sign | form.infinity | quiet | int(magnitude[magnitude.index("x") + 1 : -1], 16)
    return sign | _round(form, Fraction(magnitude))


def _round(form: _Format, value: Fraction) -> int:
    """Return the bits of the number of `form` nearest to `value` >= 0, ties to even, overflow to infinity."""
    if not value:
        return 0
    bias = (1 << (form.exponent_bits - 1)) - 1
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    exponent = max(exponent, 1 - bias)
    significand = round(value / Fraction(2) ** (exponent - form.fraction_bits))
    # A normal number's leading bit adds one to the exponent field, and so does a carry of the rounding.
    return min(((exponent + bias - 1) << form.fraction_bits) + significand, form.infinity)


def _widen(bits: int) -> int:
    """Return the bits of the double equal to the float `bits`; a NaN keeps its sign, quietness and payload."""
    single, double = _FORMATS["float"], _FORMATS["double"]
    shift = double.fraction_bits - single.fraction_bits
    sign = double.sign_bit if bits & single.sign_bit else 0
    magnitude = bits & (single.sign_bit - 1)
    exponent, fraction = (
        magnitude >> single.fraction_bits,
        magnitude & ((1 << single.fraction_bits) - 1),
    )
    if exponent == 255:
        return sign | double.infinity | fraction << shift
    scale = Fraction(2) ** (max(exponent, 1) - 127 - single.fraction_bits)
    return sign | _round(
        double, ((1 << single.fraction_bits if exponent else 0) + fraction) * scale
    )
