"""Ops on boxes of detectors."""

import numpy as np

from xcompile.compiler.ir.op import Value
from xcompile.dialects.nn.boxes import FindBoxes, ListBoxes
from xcompile.dialects.nn.reduce import ReduceSum
from xcompile.frontends.onnx.context import NodeContext
from xcompile.frontends.onnx.registry import onnx_op


@onnx_op("NonMaxSuppression", since=10)
def non_max_suppression(node: NodeContext) -> list[Value]:
    def number(index: int, default: np.generic) -> Value:
        if node.has_input(index):
            return node.one_element(node.input(index))
        return node.constant(np.array(default))

    found = node.make(
        FindBoxes,
        boxes=node.input(0),
        scores=node.input(1),
        limit=number(2, np.int64(0)),
        overlap=number(3, np.float32(0)),
        least=node.one_element(node.input(4)) if node.has_input(4) else None,
        centered=bool(node.attr("center_point_box", 0)),
    )
    count = node.make(ReduceSum, x=found.found, axes=(0, 1), keepdims=False).y
    return [node.make(ListBoxes, count=count, found=found.found, chosen=found.chosen).y]
