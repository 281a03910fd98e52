"""Trains a small convolutional network on 797 digits and writes it as ONNX.

    python examples/digits/train.py [digits.onnx]

The network and its gradients are written out in numpy. Its input "images" takes any number of images, float32
[N, 1, 8, 8] with grey values from 0 to 16; its output "scores" is float32 [N, 10].
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from data import Digits, load
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper
from threadpoolctl import threadpool_limits

Parameters = dict[str, np.ndarray]

CHANNELS = (16, 32)
EPOCHS = 60
BATCH = 32
LEARNING_RATE = 3e-3
SCALE = np.float32(1 / 16)


def initial_parameters(random: np.random.RandomState) -> Parameters:
    """Weights after He et al., 2015, and zero biases."""
    first, second = CHANNELS
    shapes = {"w1": (first, 1, 3, 3), "w2": (second, first, 3, 3), "w3": (10, second * 4 * 4)}
    parameters: Parameters = {}
    for name, shape in shapes.items():
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        parameters[name] = (random.standard_normal(shape) * deviation).astype(np.float32)
        parameters[name.replace("w", "b")] = np.zeros(shape[0], np.float32)
    return parameters


def patches(x: np.ndarray) -> np.ndarray:
    """The 3×3 surroundings of every pixel of [n, c, h, w], zeros outside: [n, h, w, c · 9]."""
    n, c, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = sliding_window_view(padded, (3, 3), axis=(2, 3))
    return windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * 9)


def convolve(columns: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """A 3×3 convolution, given the patches of its input: [n, h, w, c · 9] to [n, c', h, w]."""
    return (columns @ weight.reshape(len(weight), -1).T + bias).transpose(0, 3, 1, 2)


def scatter(columns: np.ndarray, channels: int) -> np.ndarray:
    """The gradient of `patches`: adds each patch where it was taken from."""
    n, h, w, _ = columns.shape
    taken = columns.reshape(n, h, w, channels, 3, 3).transpose(4, 5, 0, 3, 1, 2)
    padded = np.zeros((n, channels, h + 2, w + 2), columns.dtype)
    for row in range(3):
        for column in range(3):
            padded[:, :, row : row + h, column : column + w] += taken[row, column]
    return padded[:, :, 1:-1, 1:-1]


def gradients(parameters: Parameters, images: np.ndarray, labels: np.ndarray) -> Parameters:
    """The gradients of the mean cross entropy."""
    n = len(images)
    columns1 = patches(images * SCALE)
    hidden1 = np.maximum(convolve(columns1, parameters["w1"], parameters["b1"]), 0)
    blocks = hidden1.reshape(n, -1, 4, 2, 4, 2)
    pooled = blocks.max(axis=(3, 5))
    columns2 = patches(pooled)
    hidden2 = np.maximum(convolve(columns2, parameters["w2"], parameters["b2"]), 0)
    flat = hidden2.reshape(n, -1)
    scores = flat @ parameters["w3"].T + parameters["b3"]

    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    d_scores = exponentials / exponentials.sum(axis=1, keepdims=True)
    d_scores[np.arange(n), labels] -= 1
    d_scores /= n
    d_hidden2 = (d_scores @ parameters["w3"]).reshape(hidden2.shape) * (hidden2 > 0)
    w2, d_w2, d_b2 = parameters["w2"], *_of_convolution(columns2, d_hidden2)
    d_rows = d_hidden2.transpose(0, 2, 3, 1) @ w2.reshape(len(w2), -1)
    d_pooled = scatter(d_rows, w2.shape[1])
    largest = blocks == pooled[:, :, :, np.newaxis, :, np.newaxis]
    d_hidden1 = (largest * d_pooled[:, :, :, np.newaxis, :, np.newaxis]).reshape(hidden1.shape)
    d_w1, d_b1 = _of_convolution(columns1, d_hidden1 * (hidden1 > 0))
    return {
        "w1": d_w1.reshape(parameters["w1"].shape),
        "b1": d_b1,
        "w2": d_w2.reshape(w2.shape),
        "b2": d_b2,
        "w3": d_scores.T @ flat,
        "b3": d_scores.sum(axis=0),
    }


def _of_convolution(columns: np.ndarray, d_result: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of a convolution's weight, as rows, and of its bias."""
    rows = d_result.transpose(0, 2, 3, 1).reshape(-1, d_result.shape[1])
    return rows.T @ columns.reshape(len(rows), -1), rows.sum(axis=0)


def batches(digits: Digits, random: np.random.RandomState) -> Iterator[tuple[np.ndarray, ...]]:
    """One epoch: every digit once; two batches of five are moved by a pixel."""
    order = random.permutation(len(digits.images))
    for start in range(0, len(order), BATCH):
        chosen = order[start : start + BATCH]
        distance, axis = random.choice([0, 0, 0, -1, 1]), random.randint(2, 4)
        yield np.roll(digits.images[chosen], distance, axis), digits.labels[chosen]


def train(digits: Digits) -> Parameters:
    """Minimizes the mean cross entropy with Adam (Kingma and Ba, 2015), the step going to zero."""
    random = np.random.RandomState(1)
    parameters = initial_parameters(random)
    first = {name: np.zeros_like(value) for name, value in parameters.items()}
    second = {name: np.zeros_like(value) for name, value in parameters.items()}
    step, last = 0, EPOCHS * -(-len(digits.images) // BATCH)
    for _ in range(EPOCHS):
        for images, labels in batches(digits, random):
            rate = LEARNING_RATE * (1 - step / last)
            step += 1
            for name, gradient in gradients(parameters, images, labels).items():
                first[name] += 0.1 * (gradient - first[name])
                second[name] += 0.001 * (gradient**2 - second[name])
                mean, variance = first[name] / (1 - 0.9**step), second[name] / (1 - 0.999**step)
                parameters[name] -= (rate * mean / (np.sqrt(variance) + 1e-8)).astype(np.float32)
    return parameters


def to_onnx(parameters: Parameters) -> onnx.ModelProto:
    """The network as an ONNX model with a symbolic batch size N."""
    conv = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Mul", ["images", "scale"], ["scaled"], "scale"),
        helper.make_node("Conv", ["scaled", "w1", "b1"], ["c1"], "conv1", **conv),
        helper.make_node("Relu", ["c1"], ["r1"], "relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "w2", "b2"], ["c2"], "conv2", **conv),
        helper.make_node("Relu", ["c2"], ["r2"], "relu2"),
        helper.make_node("Flatten", ["r2"], ["flat"], "flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["scores"], "dense", transB=1),
    ]
    constants = {"scale": np.asarray(SCALE), **parameters}
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 1, 8, 8])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="digits")
    onnx.checker.check_model(model, full_check=True)
    return model


def main() -> None:
    """Trains the network and writes it to the path given, `digits.onnx` beside this file by default."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("digits.onnx")
    training, _ = load()
    with threadpool_limits(1):  # the products are too small to be shared between threads
        model = to_onnx(train(training))
    path.write_bytes(model.SerializeToString(deterministic=True))
    print(f"{path}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
