"""Small networks that tests compile, built with onnx's own helpers."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """Collects nodes and weights of a model."""

    def __init__(self, seed=0):
        self._random = np.random.default_rng(seed)
        self._nodes, self._weights = [], []

    def weight(self, *shape, scale=0.2):
        name = f"w{len(self._weights)}"
        array = (self._random.standard_normal(shape) * scale).astype(np.float32)
        return self.constant(array, name)

    def constant(self, array, name=None):
        name = name or f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def __call__(self, op, *inputs, outputs=1, **attributes):
        names = [f"v{len(self._nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(
            op, list(inputs), names, name=f"{op}_{len(self._nodes)}", **attributes
        )
        self._nodes.append(node)
        return names[0] if outputs == 1 else names

    def model(self, inputs, outputs, opset=17):
        """The model: `inputs` and `outputs` map names to (dtype, shape)."""
        infos = [
            [
                helper.make_tensor_value_info(n, getattr(TensorProto, d), s)
                for n, (d, s) in group.items()
            ]
            for group in (inputs, outputs)
        ]
        graph = helper.make_graph(self._nodes, "network", *infos, self._weights)
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8
        )


def residual_network(batch="N", size=16):
    """Convolutions with a residual connection, a concatenation, pools and a dense layer."""
    n = Network()
    stem = n("Relu", n("Conv", "x", n.weight(16, 3, 3, 3), n.weight(16), pads=[1, 1, 1, 1]))
    left = n("Relu", n("Conv", stem, n.weight(16, 16, 1, 1), n.weight(16)))
    right = n("Conv", left, n.weight(16, 16, 3, 3), n.weight(16), pads=[1, 1, 1, 1])
    joined = n("Relu", n("Add", right, stem))
    pooled = n("MaxPool", joined, kernel_shape=[2, 2], strides=[2, 2])
    both = n("Concat", pooled, n("Conv", pooled, n.weight(16, 16, 1, 1)), axis=1)
    mean = n("Flatten", n("GlobalAveragePool", both))
    y = n("Softmax", n("Gemm", mean, n.weight(10, 32), n.weight(10), transB=1))
    return n.model({"x": ("FLOAT", [batch, 3, size, size])}, {y: ("FLOAT", [batch, 10])})


def reference(model, feeds):
    """The outputs by onnxruntime without its optimizations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    data = model if isinstance(model, bytes | str) else model.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def save(model, path):
    onnx.save(model, path)
    return path
