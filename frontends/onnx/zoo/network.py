"""Collects the nodes and weights of a model of the zoo."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 17

Sizes = Sequence[int | str]
"""The sizes of a tensor; a name is a size that stays open."""


class Network:
    """A model in the making: calling it adds a node, and answers the name of its output.

    Args:
        name: of the graph.
        seed: of the weights.
    """

    def __init__(self, name: str, seed: int) -> None:
        self._name = name
        self._random = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output."""
        return self.many(op, 1, *inputs, **attributes)[0]

    def many(self, op: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        name = f"{op}_{len(self._nodes)}"
        names = [f"{name}:{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(op, list(inputs), names, name=name, **attributes))
        return names

    def constant(self, values: Any, dtype: Any = np.float32) -> str:
        """Add a constant."""
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def sizes(self, *values: int) -> str:
        """Add a constant of sizes or axes."""
        return self.constant(values, np.int64)

    def weight(self, *shape: int, inputs: int) -> str:
        """Add normal weights of variance 2 / `inputs`, which keeps activations near 1 through rectifiers."""
        return self.constant(self._random.standard_normal(shape) * np.sqrt(2 / inputs))

    # -- layers -------------------------------------------------------------------------------

    def dense(self, x: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        """`gain * x @ w + b` on the last axis."""
        weight = self.weight(inputs, outputs, inputs=max(1, round(inputs / gain**2)))
        product = self("MatMul", x, weight)
        return self("Add", product, self.constant(self._random.standard_normal(outputs) * 0.1))

    def batch_norm(self, x: str, channels: int, scale: float = 1.0) -> str:
        """Inference batch normalization whose statistics are near those of its input."""
        gamma, mean = (
            self._random.uniform(0.8, 1.2, channels),
            self._random.uniform(-0.1, 0.1, channels),
        )
        return self(
            "BatchNormalization", x, self.constant(gamma * scale), self.constant(np.full(channels, 0.1)),
            self.constant(mean), self.constant(self._random.uniform(0.9, 1.1, channels)),
        )  # fmt: skip

    def conv(
        self,
        x: str,
        inputs: int,
        outputs: int,
        kernel: Sequence[int],
        stride: int = 1,
        group: int = 1,
    ) -> str:
        """Convolution that keeps the size at stride 1, without bias."""
        taps = int(np.prod(kernel)) * (inputs // group)
        return self(
            "Conv", x, self.weight(outputs, inputs // group, *kernel, inputs=taps), group=group,
            kernel_shape=list(kernel), strides=[stride] * len(kernel), pads=[k // 2 for k in kernel] * 2,
        )  # fmt: skip

    def conv_norm_relu(
        self, x: str, inputs: int, outputs: int, kernel: Sequence[int], stride: int = 1
    ) -> str:
        """Convolution, batch normalization, rectifier."""
        return self("Relu", self.batch_norm(self.conv(x, inputs, outputs, kernel, stride), outputs))

    # -- the model ----------------------------------------------------------------------------

    def model(
        self, inputs: Mapping[str, tuple[str, Sizes]], output: str, sizes: Sizes
    ) -> onnx.ModelProto:
        """The finished model, its one output called "scores".

        Args:
            inputs: by name, the data type ("FLOAT", "INT32") and sizes.
            output: the value that is the output, float32.
            sizes: of the output.
        """
        self._nodes.append(helper.make_node("Identity", [output], ["scores"], name="scores"))
        described = [
            helper.make_tensor_value_info(name, onnx.TensorProto.DataType.Value(dtype), list(shape))
            for name, (dtype, shape) in inputs.items()
        ]
        scores = helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, list(sizes))
        graph = helper.make_graph(self._nodes, self._name, described, [scores], self._weights)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )
