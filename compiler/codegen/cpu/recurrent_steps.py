"""Emitter of the recurrent steps of rnn, gru and lstm, from the sums of products on: see `recurrent_layer.py`."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from xcompile.compiler.codegen.cpu.builder import Buffer, Index, Value
from xcompile.compiler.codegen.cpu.products import products_of
from xcompile.compiler.codegen.cpu.pull import Pull, Source
from xcompile.compiler.codegen.cpu.recurrent_codes import StateCodes
from xcompile.compiler.codegen.cpu.recurrent_layer import Finish, Layer, Part, Row
from xcompile.compiler.schedule.recurrent import (
    RecurrentPacking,
    RecurrentProblem,
    RecurrentSchedule,
    row_stride,
)
from xcompile.compiler.schedule.schedule import TargetNumbers


def _rnn(layer: Layer, now: Index, row: Row, part: Part, sums: Sequence[Value]) -> None:
    layer.give(layer.activate(0, sums[0]), now, row, part)


def _gru_gates(layer: Layer, now: Index, row: Row, part: Part, sums: Sequence[Value]) -> None:
    """The update gate, and the state that the reset gate lets through."""
    update, reset = (layer.activate(0, x) for x in sums)
    old = layer.load_state(0, now, row, part)
    layer.store_state(1, update, 0, row, part)
    layer.store_state(2, layer.s.mul(reset, old), 0, row, part)


def _gru(layer: Layer, now: Index, row: Row, part: Part, sums: Sequence[Value]) -> None:
    """The next state, from all three sums or from what `_gru_gates` made and one."""
    s = layer.s
    if len(sums) == 1:
        update, inner = layer.load_state(1, 0, row, part), sums[0]
    else:
        update, reset = (layer.activate(0, x) for x in sums[:2])
        inner = s.add(layer.read_gate(2, row, part), s.mul(reset, sums[2]))
    kept = s.mul(update, layer.load_state(0, now, row, part))
    new = s.mul(s.sub(s.const(1), update), layer.activate(1, inner))
    layer.give(s.add(new, kept), now, row, part)


def _lstm(layer: Layer, now: Index, row: Row, part: Part, sums: Sequence[Value]) -> None:
    s, op, hidden = layer.s, layer.op, layer.problem.hidden

    def gate(number: int, cell: Value) -> Value:
        total = sums[number]
        if op.peephole is not None:
            weight = layer.read(op.peephole, [layer.direction], part, number * hidden)
            total = s.add(total, s.mul(weight, cell))
        return layer.activate(0, total)

    old = layer.load_state(1, 0, row, part)
    enter = gate(0, old)
    forget = s.sub(s.const(1), enter) if op.input_forget else gate(2, old)
    cell = s.add(s.mul(forget, old), s.mul(enter, layer.activate(1, sums[3])))
    leave = gate(1, cell)
    layer.store_state(1, layer.alive(row, cell, old), 0, row, part)
    layer.give(s.mul(leave, layer.activate(2, cell)), now, row, part)


_FINISH: dict[tuple[str, bool], Finish] = {
    ("nn.rnn", True): _rnn,
    ("nn.gru", False): _gru_gates,
    ("nn.gru", True): _gru,
    ("nn.lstm", True): _lstm,
}
"""What becomes of the sums of a product, by op and whether it is the last product of a step."""


def emit_recurrent(
    pull: Pull,
    op: Any,
    problem: RecurrentProblem,
    schedule: RecurrentSchedule,
    target: TargetNumbers,
    r: Buffer,
    results: Sequence[Source],
    scratch: Buffer,
    begin: Index,
    end: Index,
) -> None:
    """Write the units [begin, end) of a layer.

    Args:
        pull: gives elements of the operands, a vector of the target at a time.
        op: the layer, without w.
        problem: what is computed.
        schedule: a schedule that `check` accepts.
        target: the machine.
        r: what `pack` made of r.
        results: where the results lie.
        scratch: `scratch_bytes` of memory, aligned to 64 bytes.
        begin: the first unit of `extent`'s axis.
        end: the unit after the last.

    Raises:
        ScheduleError: the schedule is not legal.
    """
    schedule.check(problem, target)
    b, stride, batch = pull.b, row_stride(problem, target), pull.shape(op.x)[1]
    size = schedule.sequences * stride * problem.bits // 8
    states = [b.view(scratch, n * size, problem.dtype) for n in (0, *range(2, states_of(op)))]
    packing = RecurrentPacking.of(problem, schedule, target)
    count = len(problem.products)
    finishes = [_FINISH[op.NAME, number + 1 == count] for number in range(count)]
    products, codes = products_of(problem.form(target), target), None
    if problem.quantized:
        behind = states_of(op) * size
        codes = StateCodes.of(b, problem, schedule, target, r, scratch, behind)
    groups = b.ceildiv(batch, schedule.sequences)
    with b.loop(begin, end) as unit, pull.scope():
        direction, group = b.unflatten(unit, (problem.directions, groups))
        direction = direction if problem.directions > 1 else 0
        first = b.mul(group, schedule.sequences)
        present = b.min(b.sub(batch, first), schedule.sequences)
        if isinstance(batch, int) and batch % schedule.sequences == 0:
            present = schedule.sequences

        def write(direction: Index, function: int) -> None:
            with pull.scope():
                Layer(
                    pull, op, problem, schedule, packing, r, results, states, stride, direction,
                    function, first, present, finishes, products, codes,
                ).write()  # fmt: skip

        if _directions_agree(op):
            write(direction, 0)
        else:
            forward = b.compare("eq", direction, 0)
            b.either(forward, partial(write, 0, 0), partial(write, 1, 1))


def states_of(op: Any) -> int:
    """Vectors of hidden elements a sequence that are kept: h twice, and what else a step needs."""
    if op.NAME == "nn.gru":
        return 2 if op.linear_before_reset else 4
    return 3 if op.NAME == "nn.lstm" else 2


def _directions_agree(op: Any) -> bool:
    """Whether all directions have the same functions, so that one code serves them."""
    count = op.FUNCTIONS
    return all(
        tuple(given[:count]) == tuple(given[count:])
        for given in (op.activations, op.alphas, op.betas)
        if op.directions > 1
    )
