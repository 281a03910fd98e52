"""Sequences and optional values that are known while the model is imported.

A sequence is a list of tensors there; an op on one takes tensors out of it or puts them in, so positions must be
constants. Sequences that are inputs or outputs of the model, or are carried by a loop, are not supported.
"""

from collections.abc import Sequence

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.slicing import Split
from xcompile.frontends.onnx.composition import Composition
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.ops_conv import static_sizes
from xcompile.frontends.onnx.registry import Result, onnx_op
from xcompile.frontends.onnx.sequences import TensorSequence

_MOST_PARTS = 1 << 16
"""Elements that a sequence gets from one tensor at most."""


@onnx_op("SequenceEmpty", since=11)
def sequence_empty(node: NodeContext) -> list[Result]:
    return [TensorSequence(())]


@onnx_op("SequenceConstruct", since=11)
def sequence_construct(node: NodeContext) -> list[Result]:
    return [TensorSequence(tuple(node.inputs()))]


def _position(node: NodeContext, index: int, count: int, most: int) -> int:
    """A position as a number from 0 to `most`; the input must be a constant."""
    found = node.const_ints(index)
    if found is None or len(found) != 1:
        raise node.error("XC2010", f"the position of {node.op_type} must be a constant")
    place = found[0] + (count if found[0] < 0 else 0)
    if not 0 <= place <= most:
        raise node.error("XC2006", f"position {found[0]} of a sequence of {count} tensors")
    return place


@onnx_op("SequenceInsert", since=11)
def sequence_insert(node: NodeContext) -> list[Result]:
    items = node.sequence(0).items
    count = len(items)
    place = _position(node, 2, count, count) if node.has_input(2) else count
    return [TensorSequence((*items[:place], node.input(1), *items[place:]))]


@onnx_op("SequenceErase", since=11)
def sequence_erase(node: NodeContext) -> list[Result]:
    items = node.sequence(0).items
    count = len(items)
    place = _position(node, 1, count, count - 1) if node.has_input(1) else count - 1
    return [TensorSequence((*items[:place], *items[place + 1 :]))]


@onnx_op("SequenceAt", since=11)
def sequence_at(node: NodeContext) -> list[Result]:
    items = node.sequence(0).items
    return [items[_position(node, 1, len(items), len(items) - 1)]]


@onnx_op("SequenceLength", since=11)
def sequence_length(node: NodeContext) -> list[Result]:
    return [node.constant(np.array(len(node.sequence(0).items), np.int64))]


@onnx_op("ConcatFromSequence", since=11)
def concat_from_sequence(node: NodeContext) -> list[Result]:
    c, items = Composition(node), list(node.sequence(0).items)
    if not items:
        raise node.error("XC2007", "ConcatFromSequence of an empty sequence")
    axis = node.attr("axis")
    if not node.attr("new_axis", 0):
        return [c.concat(items, axis)]
    return [c.concat([c.unsqueeze(x, axis) for x in items], axis)]


@onnx_op("SplitToSequence", since=11)
def split_to_sequence(node: NodeContext) -> list[Result]:
    """Parts of one element that lose their axis, of one size, or of the sizes that are given."""
    c, x = Composition(node), node.input(0)
    axis = node.axis(node.attr("axis", 0), node.rank(0))
    size = static_sizes(x)[axis]
    if size is None:
        raise node.error("XC2010", "SplitToSequence needs an axis of known size")
    lengths = _lengths(node, size)
    if not lengths:
        return [TensorSequence(())]
    made = node.make(Split, x=x, lengths=c.ints(*lengths), axis=axis, results=len(lengths))
    parts: Sequence[Value] = list(made.operation.results)
    if not node.has_input(1) and not node.attr("keepdims", 1):
        parts = [c.squeeze(part, axis) for part in parts]
    return [TensorSequence(tuple(parts))]


def _lengths(node: NodeContext, size: int) -> list[int]:
    if not node.has_input(1):
        return _parts_of(node, size, 1)
    given = node.const(1)
    if given is None:
        raise node.error("XC2010", "the lengths of SplitToSequence must be constants")
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


# -- optional values ------------------------------------------------------------------------------


@onnx_op("Optional", since=15)
def optional(node: NodeContext) -> list[Result]:
    if not node.has_input(0):
        raise node.error("XC1006", "an optional value without an element is not supported")
    return [node.any_input(0)]


@onnx_op("OptionalHasElement", since=15)
def optional_has_element(node: NodeContext) -> list[Result]:
    """What is not omitted has an element: optional values without one are not supported."""
    return [node.constant(np.array(node.has_input(0)))]


@onnx_op("OptionalGetElement", since=15)
def optional_get_element(node: NodeContext) -> list[Result]:
    return [node.any_input(0)]
