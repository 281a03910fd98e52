"""Layout assignment converts as few elements as the best of all choices, found by trying every one."""

import itertools

import numpy as np
import pytest
from torch_mlir import ir

from tests.numerics.graphs import Graph
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.rewrite import walk
from xcompile.compiler.target.registry import targets
from xcompile.dialects.nn.binary import Add
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.slicing import Concat
from xcompile.dialects.nn.softmax import Softmax
from xcompile.dialects.nn.unary import Relu
from xcompile.passes.nn.assign_layout import AssignLayout

LAYOUTS = {
    "conv": [True],
    "softmax": [False],
    "relu": [True, False],
    "add": [True, False],
    "concat": [True, False],
}
"""Whether the ops read and write blocks; those with two entries may choose."""


class RandomGraph:
    """At most 12 ops on images; values are numbered, 0 is the input.

    Attributes:
        ops: the kind and the operands of each op; its result is the value of the next number.
        channels: of each value.
        outputs: what is returned.
        module: the graph in the IR.
    """

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        g = Graph((1, 16, 6, 6))
        values, self.channels = [g.inputs[0]], [16]
        self.ops: list[tuple[str, list[int]]] = []
        for _ in range(int(random.integers(4, 13))):
            kind = str(
                random.choice(["conv", "conv", "relu", "relu", "add", "add", "softmax", "concat"])
            )
            a = int(random.integers(max(0, len(values) - 4), len(values)))
            equal = [i for i, c in enumerate(self.channels) if c == self.channels[a]]
            b = int(random.choice(equal))
            x, c = values[a], self.channels[a]
            if kind == "conv":
                weight = np.zeros((16, c, 1, 1), np.float32)
                value = g.make(Conv, x=x, w=weight, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1))
            elif kind == "concat":
                value = g.make(Concat, xs=[x, values[b]], axis=1)
            elif kind == "add":
                value = g.make(Add, a=x, b=values[b])
            else:
                value = g.make(Relu, x=x) if kind == "relu" else g.make(Softmax, x=x, axis=1)
            values.append(value)
            self.channels.append({"conv": 16, "concat": 2 * c}.get(kind, c))
            self.ops.append((kind, [a, b] if kind in ("add", "concat") else [a]))
        used = {operand for _, operands in self.ops for operand in operands}
        self.outputs = [i for i in range(1, len(values)) if i not in used]
        self.module = g.done(*[values[i] for i in self.outputs])

    def least(self) -> int:
        """The fewest elements that must be converted."""
        return min(map(self._cost, itertools.product(*[LAYOUTS[kind] for kind, _ in self.ops])))

    def _cost(self, layouts: tuple[bool, ...]) -> int:
        made = [False, *layouts]
        read: list[set[bool]] = [set() for _ in made]
        for (_, operands), layout in zip(self.ops, layouts, strict=True):
            for operand in operands:
                read[operand].add(layout)
        for output in self.outputs:
            read[output].add(False)
        converted = [bool(found - {layout}) for found, layout in zip(read, made, strict=True)]
        return sum(36 * c for c, needed in zip(self.channels, converted, strict=True) if needed)


@pytest.mark.parametrize("seed", range(80))
def test_no_choice_converts_fewer_elements(seed: int) -> None:
    with context():
        graph = RandomGraph(seed)
        AssignLayout(8).run(graph.module, PassContext(targets()["x86-avx2"]))
        shapes = [
            ir.RankedTensorType(operation.results[0].type).shape
            for operation in walk(graph.module)
            if operation.name == "nn.relayout"
        ]
    assert sum(int(np.prod(shape)) for shape in shapes) == graph.least()
