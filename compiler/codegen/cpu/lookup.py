"""Tables of bytes: 256 entries, looked up for a whole vector where the machine permutes bytes of registers."""

from collections.abc import Sequence

from xcompile.compiler.codegen.cpu import isa
from xcompile.compiler.codegen.cpu.builder import Buffer, Builder, Value
from xcompile.compiler.codegen.cpu.coordinates import Coordinate
from xcompile.compiler.codegen.cpu.pull import Pull, pulls
from xcompile.compiler.ir.op import Op

_WIDE = isa.VPERMI2B.result[0]
"""Bytes of the registers that `vpermi2b` permutes."""


@pulls("nn.lookup")
def _lookup(pull: Pull, op: Op, at: Sequence[Coordinate]) -> Value:
    x, table = op.operands
    numbers, buffer = pull.value(x, at), pull.sources[table].buffer
    if not pull.lanes:
        return _entry(pull.b, buffer, numbers)
    if pull.features >= isa.VPERMI2B.features[0] and pull.lanes <= _WIDE:
        return _permuted(pull.b, buffer, numbers, pull.lanes)
    return _one_by_one(pull.b, buffer, numbers, pull.lanes)


def _entry(b: Builder, table: Buffer, number: Value) -> Value:
    """The entry of one byte."""
    return b.load(table, b.op(f"arith.index_castui {number} : i8 to index"))


def _one_by_one(b: Builder, table: Buffer, numbers: Value, lanes: int) -> Value:
    kind, made = f"vector<{lanes}xi8>", b.int_constant(0, "i8", lanes)
    for lane in range(lanes):
        number = b.op(f"vector.extract {numbers}[{lane}] : i8 from {kind}")
        entry = _entry(b, table, number)
        made = b.op(f"vector.insert {entry}, {made} [{lane}] : i8 into {kind}")
    return made


def _permuted(b: Builder, table: Buffer, numbers: Value, lanes: int) -> Value:
    """Two registers of the table answer for numbers below 128, two for those above."""
    kind, wide = f"vector<{lanes}xi8>", f"vector<{_WIDE}xi8>"
    if lanes < _WIDE:
        picks = [i % lanes for i in range(_WIDE)]
        numbers = b.op(f"vector.shuffle {numbers}, {numbers} {picks} : {kind}, {kind}")
    parts = [b.load(table, start, _WIDE) for start in range(0, 4 * _WIDE, _WIDE)]
    low = isa.VPERMI2B.write(b, parts[0], numbers, parts[1])
    high = isa.VPERMI2B.write(b, parts[2], numbers, parts[3])
    above = b.op(f"arith.cmpi slt, {numbers}, {b.int_constant(0, 'i8', _WIDE)} : {wide}")
    made = b.op(f"arith.select {above}, {high}, {low} : vector<{_WIDE}xi1>, {wide}")
    if lanes == _WIDE:
        return made
    return b.op(
        f"vector.extract_strided_slice {made} {{offsets = [0], sizes = [{lanes}], strides = [1]}} : {wide} to {kind}"
    )
