"""Sequences of tensors, and optional values that are known while the model is imported.

Where the length of a sequence and the positions are known, an op takes tensors out of a list or puts them in; else the
sequence is packed, and the op is made of others. Sequences that are inputs or outputs of the model are not supported.
"""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.compiler.ir.regions import Body
from xcompile.dialects.nn.base import dtype_of, rank_of, tensor_type
from xcompile.dialects.nn.slicing import Split
from xcompile.frontends.onnx.carried import Carried
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_control import build_loop
from xcompile.frontends.onnx.ops_conv import static_sizes
from xcompile.frontends.onnx.packed import Packing
from xcompile.frontends.onnx.registry import onnx_op
from xcompile.frontends.onnx.sequences import AnySequence, Known, PackedSequence, TensorSequence
from xcompile.frontends.onnx.tensors import dtype_name

_MOST_PARTS = 1 << 16
"""Tensors that a list gets from one tensor at most."""

_MOST_COPIES = 64
"""How often the body of a SequenceMap is converted for a list at most."""


@onnx_op("SequenceEmpty", since=11)
def sequence_empty(node: NodeContext) -> list[Known]:
    return [TensorSequence((), dtype_name(node.attr("dtype", 1), "SequenceEmpty"))]


@onnx_op("SequenceConstruct", since=11)
def sequence_construct(node: NodeContext) -> list[Known]:
    items = tuple(node.inputs())
    if not items:
        raise node.error("XC1011", "SequenceConstruct has no inputs")
    return [TensorSequence(items, dtype_of(items[0]))]


def _list(node: NodeContext, positions: int) -> tuple[Value, ...] | None:
    """The tensors of the first input when it is a list and the position, if it is given, is a constant."""
    given = node.sequence(0)
    known = not node.has_input(positions) or node.const(positions) is not None
    return given.items if known and isinstance(given, TensorSequence) else None


def _position(node: NodeContext, index: int, count: int, most: int) -> int:
    """A constant position as a number from 0 to `most`."""
    found = node.const_ints(index)
    if found is None or len(found) != 1:
        raise node.error("XC2003", f"the position of {node.op_type} is one number")
    place = found[0] + (count if found[0] < 0 else 0)
    if not 0 <= place <= most:
        raise node.error("XC2006", f"position {found[0]} of a sequence of {count} tensors")
    return place


@onnx_op("SequenceInsert", since=11)
def sequence_insert(node: NodeContext) -> list[Known]:
    given, x, items = node.sequence(0), node.input(1), _list(node, 2)
    if dtype_of(x) != given.dtype:
        raise node.error("XC2002", f"a tensor of {dtype_of(x)} in a sequence of {given.dtype}")
    if items is None:
        packing = Packing(node)
        return [packing.insert(packing.packed(given, rank_of(x)), x, node.optional(2))]
    count = len(items)
    place = _position(node, 2, count, count) if node.has_input(2) else count
    return [TensorSequence((*items[:place], x, *items[place:]), given.dtype)]


@onnx_op("SequenceErase", since=11)
def sequence_erase(node: NodeContext) -> list[Known]:
    given, items = node.sequence(0), _list(node, 1)
    if items is None:
        packing = Packing(node)
        return [packing.erase(packing.packed(given), node.optional(1))]
    count = len(items)
    if not count:
        raise node.error("XC2006", "a tensor of an empty sequence is erased")
    place = _position(node, 1, count, count - 1) if node.has_input(1) else count - 1
    return [TensorSequence((*items[:place], *items[place + 1 :]), given.dtype)]


@onnx_op("SequenceAt", since=11)
def sequence_at(node: NodeContext) -> list[Known]:
    items = _list(node, 1)
    if items is None:
        packing = Packing(node)
        return [packing.at(packing.packed(node.sequence(0)), node.input(1))]
    return [items[_position(node, 1, len(items), len(items) - 1)]]


@onnx_op("SequenceLength", since=11)
def sequence_length(node: NodeContext) -> list[Known]:
    return [_length(node, node.sequence(0))]


def _length(node: NodeContext, given: AnySequence) -> Value:
    if isinstance(given, PackedSequence):
        return Packing(node).length(given)
    return node.constant(np.array(len(given.items), np.int64))


@onnx_op("ConcatFromSequence", since=11)
def concat_from_sequence(node: NodeContext) -> list[Known]:
    packing, given = Packing(node), node.sequence(0)
    new_axis = bool(node.attr("new_axis", 0))
    if isinstance(given, PackedSequence):
        if given.guess is not None:
            given.guess.read = True
        axis = node.axis(node.attr("axis"), given.rank + new_axis)
        return [packing.stacked(given, axis) if new_axis else packing.joined(given, axis)]
    if not given.items:
        raise node.error("XC2007", "ConcatFromSequence of an empty sequence")
    axis, items = node.attr("axis"), list(given.items)
    if not new_axis:
        return [packing.concat(items, axis)]
    return [packing.concat([packing.unsqueeze(x, axis) for x in items], axis)]


@onnx_op("SplitToSequence", since=11)
def split_to_sequence(node: NodeContext) -> list[Known]:
    """Parts of one element that lose their axis, of one size, or of the sizes that are given."""
    c, x = Composition(node), node.input(0)
    axis = node.axis(node.attr("axis", 0), node.rank(0))
    size = static_sizes(x)[axis]
    keepdims = node.has_input(1) or bool(node.attr("keepdims", 1))
    if size is None or (node.has_input(1) and node.const(1) is None):
        return [Packing(node).split(x, _computed_lengths(node, axis), axis, keepdims=keepdims)]
    lengths = _lengths(node, size)
    if not lengths:
        return [TensorSequence((), dtype_of(x))]
    made = node.make(Split, x=x, lengths=c.ints(*lengths), axis=axis, results=len(lengths))
    parts: list[Value] = list(made.operation.results)
    if not keepdims:
        parts = [c.squeeze(part, axis) for part in parts]
    return [TensorSequence(tuple(parts), dtype_of(x))]


def _lengths(node: NodeContext, size: int) -> list[int]:
    given = node.const(1)
    if given is None:
        return _parts_of(node, size, 1)
    if given.ndim > 1:
        raise node.error("XC2003", f"the lengths of SplitToSequence have rank {given.ndim}")
    if given.ndim:
        return [int(v) for v in given]
    each = int(given)
    if each < 1:
        raise node.error("XC2007", f"parts of {each} elements")
    return _parts_of(node, size, each)


def _parts_of(node: NodeContext, size: int, each: int) -> list[int]:
    """The lengths of parts of `each` elements, the last one shorter."""
    if size > each * _MOST_PARTS:
        raise node.error("XC2010", f"more than {_MOST_PARTS} parts")
    return [min(each, size - start) for start in range(0, size, each)]


def _computed_lengths(node: NodeContext, axis: int) -> Value:
    """The lengths of parts as a vector of int64; a run in which they do not fit ends with an error."""
    packing = Packing(node)
    size = packing.size(node.input(0), axis)
    given = node.optional(1)
    if given is None:
        return packing.parts(size, node.constant(np.array(1)))
    if rank_of(given) > 1:
        raise node.error("XC2003", f"the lengths of SplitToSequence have rank {rank_of(given)}")
    lengths = packing.cast(given, "i64")
    return packing.fitting(lengths, size) if rank_of(given) else packing.parts(size, lengths)


@onnx_op("SequenceMap", since=17)
def sequence_map(node: NodeContext) -> list[Known]:
    """The results of the body for each position: those of the first sequence decide how many there are."""
    given = [node.any_input(i) for i in range(node.input_count)]
    first, packing = node.sequence(0), Packing(node)
    lists = [v for v in given if isinstance(v, TensorSequence)]
    packed = any(isinstance(v, PackedSequence) for v in given)
    if packed or len(lists[0].items) > _MOST_COPIES or not lists[0].items:
        sequences = [v if isinstance(v, Value) else packing.packed(v) for v in given]
        return _mapped(node, sequences, _length(node, first))
    count = len(lists[0].items)
    if any(len(v.items) != count for v in lists):
        raise node.error("XC2004", "the sequences of SequenceMap differ in length")
    rows = [
        node.run_body("body", [v.items[i] if isinstance(v, TensorSequence) else v for v in given])
        for i in range(count)
    ]
    columns = [[node.tensor(v, "a result of SequenceMap") for v in row] for row in rows]
    return [TensorSequence(items, dtype_of(items[0])) for items in zip(*columns, strict=True)]


def _mapped(node: NodeContext, given: Sequence[Known], count: Value) -> list[Known]:
    """The results of the body for `count` positions, by a loop that inserts them."""
    packing = Packing(node)

    def results(index: Value) -> list[Value]:
        parts = [packing.at(v, index) if isinstance(v, PackedSequence) else v for v in given]
        return [node.tensor(v, "a result of SequenceMap") for v in node.run_body("body", parts)]

    trial = Body([tensor_type((), "i64")], node.location)
    with trial:
        kinds = [(dtype_of(v), rank_of(v)) for v in results(trial.arguments[0])]
    node.scope.discard(trial.holder)
    empty = [packing.packed(TensorSequence((), dtype), rank) for dtype, rank in kinds]
    carried, true = Carried(node, empty), node.constant(np.array(True))

    def step(index: Value, tensors: Sequence[Value]) -> tuple[Value, list[Value], list[Value]]:
        before = carried.values(iter(tensors))
        pairs = zip(before, results(index), strict=True)
        after = [
            packing.insert(packing.packed(s), x, None) for s, x in pairs if not isinstance(s, Value)
        ]
        return true, carried.spread(after), []

    made = build_loop(node, count, None, carried.tensors, step, carried.growing)
    return [*carried.values(iter(made.results))]


# -- optional values ------------------------------------------------------------------------------


@onnx_op("Optional", since=15)
def optional(node: NodeContext) -> list[Known]:
    if not node.has_input(0):
        raise node.error("XC1006", "an optional value without an element is not supported")
    return [node.any_input(0)]


@onnx_op("OptionalHasElement", since=15)
def optional_has_element(node: NodeContext) -> list[Known]:
    """What is not omitted has an element: optional values without one are not supported."""
    return [node.constant(np.array(node.has_input(0)))]


@onnx_op("OptionalGetElement", since=15)
def optional_get_element(node: NodeContext) -> list[Known]:
    return [node.any_input(0)]
