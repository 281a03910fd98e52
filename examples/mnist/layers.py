"""Layers of convolutional networks with their gradients, in numpy, images as [n, h, w, c], and what they are in ONNX.

Each layer keeps what its gradient needs between `forward` and `backward`. Parameters and gradients are arrays by name.
"""

from typing import Protocol

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import helper

Arrays = dict[str, np.ndarray]

EPSILON = 1e-5
MOMENTUM = 0.9


class Layer(Protocol):
    """One step of a network.

    Attributes:
        parameters: what is learned.
        gradients: of the parameters, after `backward`.
        statistics: what is observed in training and used afterwards.
    """

    parameters: Arrays
    gradients: Arrays
    statistics: Arrays

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        """The layer's result."""
        ...

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """The gradient of the input, given that of the result."""
        ...

    def nodes(self, name: str, x: str) -> tuple[list[onnx.NodeProto], Arrays]:
        """ONNX nodes that compute the tensor `name` from the tensor `x`, and their constants."""
        ...


class _Stateless:
    """A layer without parameters."""

    def __init__(self) -> None:
        self.parameters: Arrays = {}
        self.gradients: Arrays = {}
        self.statistics: Arrays = {}


class Conv(_Stateless):
    """A convolution without bias, with zeros around the image.

    Args:
        random: the source of its first weights (He et al., 2015).
        channels: of input and result.
        size: of the window, odd.
        stride: of the window.
    """

    def __init__(
        self, random: np.random.RandomState, channels: tuple[int, int], size: int, stride: int = 1
    ) -> None:
        super().__init__()
        self.size, self.stride, self.channels = size, stride, channels
        terms = size * size * channels[0]
        weight = random.standard_normal((terms, channels[1])) * np.sqrt(2 / terms)
        self.parameters["w"] = weight.astype(np.float32)

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        """The layer's result."""
        del training
        self._shape = x.shape
        self._columns = self._patches(x)
        return self._columns @ self.parameters["w"]

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """The gradient of the input, given that of the result."""
        rows = dy.reshape(-1, dy.shape[-1])
        self.gradients["w"] = self._columns.reshape(len(rows), -1).T @ rows
        return self._scattered(dy @ self.parameters["w"].T)

    def nodes(self, name: str, x: str) -> tuple[list[onnx.NodeProto], Arrays]:
        """ONNX nodes that compute the tensor `name` from the tensor `x`, and their constants."""
        k, pad = self.size, self.size // 2
        weight = self.parameters["w"].reshape(k, k, *self.channels).transpose(3, 2, 0, 1)
        sizes = {"kernel_shape": [k, k], "pads": [pad] * 4, "strides": [self.stride] * 2}
        node = helper.make_node("Conv", [x, f"{name}.w"], [name], name, **sizes)
        return [node], {f"{name}.w": np.ascontiguousarray(weight)}

    def _patches(self, x: np.ndarray) -> np.ndarray:
        """The surroundings of each pixel of the result: [n, h', w', size · size · c]."""
        k, s = self.size, self.stride
        if k == 1 and s == 1:
            return x
        padded = _padded(x, k // 2)
        windows = sliding_window_view(padded, (k, k), axis=(1, 2))[:, ::s, ::s]
        return windows.transpose(0, 1, 2, 4, 5, 3).reshape(*windows.shape[:3], -1)

    def _scattered(self, columns: np.ndarray) -> np.ndarray:
        """The gradient of `_patches`: adds each patch where it was taken from."""
        k, s = self.size, self.stride
        if k == 1 and s == 1:
            return columns
        n, h, w, c = self._shape
        pad, (rows, cols) = k // 2, columns.shape[1:3]
        taken = columns.reshape(n, rows, cols, k, k, c)
        padded = np.zeros((n, h + 2 * pad, w + 2 * pad, c), np.float32)
        for i in range(k):
            for j in range(k):
                padded[:, i : i + rows * s : s, j : j + cols * s : s] += taken[:, :, :, i, j]
        return padded[:, pad:-pad, pad:-pad]


class Depthwise(_Stateless):
    """A 3×3 convolution of each channel by itself, without bias, with zeros around the image."""

    def __init__(self, random: np.random.RandomState, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.stride, self.channels = stride, channels
        weight = random.standard_normal((3, 3, channels)) * np.sqrt(2 / 9)
        self.parameters["w"] = weight.astype(np.float32)

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        """The layer's result."""
        del training
        self._padded = _padded(x, 1)
        self._result = (-(-x.shape[1] // self.stride), -(-x.shape[2] // self.stride))
        return sum(
            self._tap(self._padded, i, j) * self.parameters["w"][i, j]
            for i in range(3)
            for j in range(3)
        )

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """The gradient of the input, given that of the result."""
        dx, weight = np.zeros_like(self._padded), self.parameters["w"]
        gradient = np.zeros_like(weight)
        for i in range(3):
            for j in range(3):
                gradient[i, j] = (self._tap(self._padded, i, j) * dy).sum(axis=(0, 1, 2))
                self._tap(dx, i, j)[...] += dy * weight[i, j]
        self.gradients["w"] = gradient
        return dx[:, 1:-1, 1:-1]

    def nodes(self, name: str, x: str) -> tuple[list[onnx.NodeProto], Arrays]:
        """ONNX nodes that compute the tensor `name` from the tensor `x`, and their constants."""
        weight = self.parameters["w"].transpose(2, 0, 1)[:, np.newaxis]
        sizes = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [self.stride] * 2}
        node = helper.make_node(
            "Conv", [x, f"{name}.w"], [name], name, group=self.channels, **sizes
        )
        return [node], {f"{name}.w": np.ascontiguousarray(weight)}

    def _tap(self, padded: np.ndarray, i: int, j: int) -> np.ndarray:
        """What one weight of the window is multiplied by."""
        s, (rows, columns) = self.stride, self._result
        return padded[:, i : i + rows * s : s, j : j + columns * s : s]


class BatchNorm(_Stateless):
    """Batch normalization (Ioffe and Szegedy, 2015) of the channels, the last axis."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.parameters = {"g": np.ones(channels, np.float32), "b": np.zeros(channels, np.float32)}
        self.statistics = {"m": np.zeros(channels, np.float32), "v": np.ones(channels, np.float32)}

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        """The layer's result."""
        mean, variance = self.statistics["m"], self.statistics["v"]
        if training:
            axes = tuple(range(x.ndim - 1))
            mean, variance = x.mean(axis=axes), x.var(axis=axes)
            for name, seen in (("m", mean), ("v", variance)):
                self.statistics[name] += (1 - MOMENTUM) * (seen - self.statistics[name])
        self._factor = 1 / np.sqrt(variance + np.float32(EPSILON))
        self._normal = (x - mean) * self._factor
        return self._normal * self.parameters["g"] + self.parameters["b"]

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """The gradient of the input, given that of the result."""
        axes = tuple(range(dy.ndim - 1))
        self.gradients = {"g": (dy * self._normal).sum(axis=axes), "b": dy.sum(axis=axes)}
        count = np.float32(dy.size // dy.shape[-1])
        centred = dy - (self.gradients["b"] + self._normal * self.gradients["g"]) / count
        return centred * (self.parameters["g"] * self._factor)

    def nodes(self, name: str, x: str) -> tuple[list[onnx.NodeProto], Arrays]:
        """ONNX nodes that compute the tensor `name` from the tensor `x`, and their constants."""
        values = {**self.parameters, **self.statistics}
        constants = {f"{name}.{key}": values[key] for key in ("g", "b", "m", "v")}
        node = helper.make_node(
            "BatchNormalization", [x, *constants], [name], name, epsilon=EPSILON
        )
        return [node], constants


class Relu(_Stateless):
    """max(x, 0)."""

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        """The layer's result."""
        del training
        self._positive = x > 0
        return np.maximum(x, 0)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """The gradient of the input, given that of the result."""
        return dy * self._positive

    def nodes(self, name: str, x: str) -> tuple[list[onnx.NodeProto], Arrays]:
        """ONNX nodes that compute the tensor `name` from the tensor `x`, and their constants."""
        return [helper.make_node("Relu", [x], [name], name)], {}


class MaxPool(_Stateless):
    """The greatest of each 2×2 pixels."""

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        """The layer's result."""
        del training
        n, h, w, c = x.shape
        self._blocks = x.reshape(n, h // 2, 2, w // 2, 2, c)
        self._greatest = self._blocks.max(axis=(2, 4), keepdims=True)
        return self._greatest[:, :, 0, :, 0]

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """The gradient of the input, given that of the result."""
        chosen = self._blocks == self._greatest
        n, h, _, w, _, c = self._blocks.shape
        return (chosen * dy[:, :, np.newaxis, :, np.newaxis]).reshape(n, 2 * h, 2 * w, c)

    def nodes(self, name: str, x: str) -> tuple[list[onnx.NodeProto], Arrays]:
        """ONNX nodes that compute the tensor `name` from the tensor `x`, and their constants."""
        sizes = {"kernel_shape": [2, 2], "strides": [2, 2]}
        return [helper.make_node("MaxPool", [x], [name], name, **sizes)], {}


class MeanAndDense(_Stateless):
    """The mean over the pixels, then a matrix product with a bias: scores."""

    def __init__(self, random: np.random.RandomState, channels: int, classes: int) -> None:
        super().__init__()
        weight = random.standard_normal((channels, classes)) * np.sqrt(1 / channels)
        self.parameters = {"w": weight.astype(np.float32), "b": np.zeros(classes, np.float32)}

    def forward(self, x: np.ndarray, *, training: bool) -> np.ndarray:
        """The layer's result."""
        del training
        self._shape, self._mean = x.shape, x.mean(axis=(1, 2))
        return self._mean @ self.parameters["w"] + self.parameters["b"]

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """The gradient of the input, given that of the result."""
        self.gradients = {"w": self._mean.T @ dy, "b": dy.sum(axis=0)}
        d_mean = dy @ self.parameters["w"].T / np.float32(self._shape[1] * self._shape[2])
        return np.broadcast_to(d_mean[:, np.newaxis, np.newaxis], self._shape)

    def nodes(self, name: str, x: str) -> tuple[list[onnx.NodeProto], Arrays]:
        """ONNX nodes that compute the tensor `name` from the tensor `x`, and their constants."""
        made = [
            helper.make_node("GlobalAveragePool", [x], [f"{name}.mean"], f"{name}.mean"),
            helper.make_node("Flatten", [f"{name}.mean"], [f"{name}.row"], f"{name}.row"),
            helper.make_node("Gemm", [f"{name}.row", f"{name}.w", f"{name}.b"], [name], name),
        ]
        return made, {f"{name}.{key}": value for key, value in self.parameters.items()}


def _padded(x: np.ndarray, pad: int) -> np.ndarray:
    return np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
