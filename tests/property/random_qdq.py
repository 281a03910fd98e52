"""Random quantized models in QDQ form, and what they mean: every op in float, in numpy of its own.

A model is drawn step by step, and each step is evaluated at once, so that the next scale fits the range of what it
quantizes. Nothing here is shared with the compiler.
"""

import itertools
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper


@dataclass(frozen=True)
class Tensor:
    """A dequantized value: its name, its elements in float32, and the names of its scale and zero point."""

    name: str
    array: np.ndarray
    parameters: tuple[str, str]


def quantized(x: np.ndarray, scale: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """ONNX QuantizeLinear of one scale."""
    limits = np.iinfo(zero.dtype)
    whole = np.rint(x.astype(np.float32) / np.float32(scale)).astype(np.float64) + int(zero)
    return np.clip(whole, limits.min, limits.max).astype(zero.dtype)


def dequantized(q: np.ndarray, scale: np.ndarray, zero: np.ndarray, axis: int = 0) -> np.ndarray:
    """ONNX DequantizeLinear of one scale, or one for each element of an axis."""
    shape = [-1 if i == axis % q.ndim else 1 for i in range(q.ndim)] if scale.ndim else []
    difference = q.astype(np.int64) - zero.astype(np.int64).reshape(shape)
    return difference.astype(np.float32) * scale.reshape(shape)


def convolved(
    x: np.ndarray, w: np.ndarray, strides: tuple[int, int], pads: tuple[int, ...], groups: int
) -> np.ndarray:
    """A convolution of images in float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    m, kh, kw = w.shape[0], *w.shape[2:]
    height, width = (
        (size - k) // s + 1 for size, k, s in zip(x.shape[2:], (kh, kw), strides, strict=True)
    )
    y = np.zeros((x.shape[0], m, height, width))
    for g, i, j in itertools.product(range(groups), range(kh), range(kw)):
        inputs = slice(g * w.shape[1], (g + 1) * w.shape[1])
        outputs = slice(g * m // groups, (g + 1) * m // groups)
        rows = slice(i, i + (height - 1) * strides[0] + 1, strides[0])
        columns = slice(j, j + (width - 1) * strides[1] + 1, strides[1])
        taps = w[outputs, :, i, j].astype(np.float64)
        y[:, outputs] += np.einsum("nchw,mc->nmhw", x[:, inputs, rows, columns], taps)
    return y


def pooled(x: np.ndarray, kernel: int, stride: int, pad: int, kind: str) -> np.ndarray:
    """A maximum, or a mean over cells inside ("average") or with the padding ("included")."""
    fill = -np.inf if kind == "max" else 0.0
    widths = ((0, 0), (0, 0), (pad, pad), (pad, pad))
    padded = np.pad(x.astype(np.float64), widths, constant_values=fill)
    inside = np.pad(np.ones(x.shape), widths, constant_values=float(kind == "included"))
    view, cells = (
        np.lib.stride_tricks.sliding_window_view(v, (kernel, kernel), (2, 3))[:, :, ::stride, ::stride]
        for v in (padded, inside)
    )  # fmt: skip
    if kind == "max":
        return view.max(axis=(-1, -2))
    return view.sum(axis=(-1, -2)) / cells.sum(axis=(-1, -2))


@dataclass
class Builder:
    """A model while it is drawn.

    Attributes:
        random: what draws.
        nodes: the nodes so far.
        constants: initializers by name.
        images: values of rank 4, the newest last.
    """

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    images: list[Tensor] = field(default_factory=list)

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, *options: object) -> object:
        return options[int(self.random.integers(len(options)))]

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    # -- quantization -----------------------------------------------------------------------------

    def step(self, array: np.ndarray) -> tuple[str, str]:
        """A scale and a zero point for the range of an array, now and then too narrow for it."""
        dtype = np.dtype(self.pick(np.uint8, np.uint8, np.int8))
        share = 0.83 if self.chance(0.3) else 1.0  # of which no step is a simple multiple
        low, high = min(0.0, float(array.min()) * share), max(0.0, float(array.max()) * share)
        scale = np.float32(max(high - low, 1e-3) / 255)
        zero = np.clip(np.rint(-low / scale), 0, 255) + np.iinfo(dtype).min
        return self.constant(scale), self.constant(zero.astype(dtype))

    def requantize(
        self, name: str, array: np.ndarray, parameters: tuple[str, str] | None = None
    ) -> Tensor:
        """Quantize a float and dequantize it again."""
        parameters = parameters or self.step(array)
        scale, zero = (self.constants[p] for p in parameters)
        codes = quantized(array, scale, zero)
        inner = self.node(
            "DequantizeLinear", self.node("QuantizeLinear", name, *parameters), *parameters
        )
        return Tensor(inner, dequantized(codes, scale, zero), parameters)

    def weights(self, shape: tuple[int, ...], axis: int) -> tuple[str, np.ndarray, np.ndarray]:
        """Quantized weights: the name, the floats that they mean, and their scales."""
        dtype = np.dtype(self.pick(np.int8, np.int8, np.uint8))
        limits = np.iinfo(dtype)
        codes = self.random.integers(limits.min, limits.max + 1, shape).astype(dtype)
        channels = shape[axis]
        several = self.chance(0.6)
        scale = (self.random.random(channels if several else ()) * 0.01 + 0.002).astype(np.float32)
        if dtype == np.uint8 or self.chance(0.2):
            zero = self.random.integers(limits.min // 2 + 100, limits.min // 2 + 140, scale.shape)
        else:
            zero = np.zeros(scale.shape)
        zero = np.asarray(zero).astype(dtype)
        given = [self.constant(codes), self.constant(np.asarray(scale))]
        if zero.any() or self.chance(0.5):
            given.append(self.constant(zero))
        else:
            zero = np.zeros_like(zero)
        place = axis if self.chance(0.5) else axis - len(shape)
        name = self.node("DequantizeLinear", *given, **({"axis": place} if several else {}))
        return name, dequantized(codes, np.asarray(scale), zero, axis), np.asarray(scale)

    def bias(self, x: Tensor, scale: np.ndarray, channels: int) -> tuple[str, np.ndarray]:
        """A bias of int32 with the product's scale, or a float."""
        if self.chance(0.3):
            values = self.random.standard_normal(channels).astype(np.float32)
            return self.constant(values), values
        step = self.constants[x.parameters[0]] * np.broadcast_to(scale, (channels,))
        codes = self.random.integers(-3000, 3000, channels).astype(np.int32)
        name = self.node("DequantizeLinear", self.constant(codes), self.constant(step), axis=0)
        return name, codes.astype(np.float32) * step

    def activation(self, name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
        """A ReLU, clip or leaky ReLU, or nothing."""
        kind = self.pick("Relu", "Clip", "LeakyRelu", "", "")
        if kind == "Relu":
            return self.node("Relu", name), np.maximum(array, 0)
        if kind == "Clip":
            top = np.float32(array.max() * 0.7 + 0.1)
            bounds = self.constant(np.float32(0)), self.constant(top)
            return self.node("Clip", name, *bounds), np.clip(array, 0, top)
        if kind == "LeakyRelu":
            return self.node("LeakyRelu", name, alpha=0.125), np.where(
                array < 0, 0.125 * array, array
            )
        return name, array

    # -- steps ------------------------------------------------------------------------------------

    def conv(self) -> None:
        x = self.images[-1]
        channels = x.array.shape[1]
        groups = int(self.pick(1, 1, 1, channels, 2 if channels % 2 == 0 else 1))
        kernel = int(self.pick(1, 3)) if min(x.array.shape[2:]) >= 3 else 1
        stride = int(self.pick(1, 1, 2))
        pads = tuple(int(p) for p in self.random.integers(0, 2, 4)) if kernel == 3 else (0,) * 4
        outputs = channels if groups == channels else int(self.pick(4, 8, 10))
        name, w, scale = self.weights((outputs, channels // groups, kernel, kernel), 0)
        y = convolved(x.array, w, (stride, stride), pads, groups)
        inputs = [x.name, name]
        if self.chance(0.7):
            bias, values = self.bias(x, scale, outputs)
            inputs.append(bias)
            y = y + values.reshape(-1, 1, 1)
        made = self.node("Conv", *inputs, strides=[stride] * 2, pads=list(pads), group=groups)
        self.images.append(self.requantize(*self.activation(made, y)))

    def residual(self) -> None:
        x = self.images[-1]
        others = [o for o in self.images[:-1] if o.array.shape == x.array.shape]
        if not others:
            return self.conv()
        other = others[int(self.random.integers(len(others)))]
        made = self.node("Add", x.name, other.name)
        y = x.array + other.array
        return self.images.append(self.requantize(*self.activation(made, y)))

    def concat(self) -> None:
        x = self.images[-1]
        others = [o for o in self.images[:-1] if o.array.shape[2:] == x.array.shape[2:]]
        if not others or x.array.shape[1] > 24:
            return self.conv()
        other = others[int(self.random.integers(len(others)))]
        if self.chance(0.5):  # as exporters do it: all parts and the result have one step
            other = self.requantize(other.name, other.array, x.parameters)
        made = self.node("Concat", x.name, other.name, axis=1)
        y = np.concatenate([x.array, other.array], axis=1)
        return self.images.append(
            self.requantize(made, y, x.parameters if self.chance(0.5) else None)
        )

    def pool(self) -> None:
        x = self.images[-1]
        if min(x.array.shape[2:]) < 4:
            return self.conv()
        kind = str(self.pick("max", "average", "included"))
        size, stride, pad = self.pick((2, 2, 0), (3, 2, 1), (3, 1, 1))
        window = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
        if kind == "max":
            made = self.node("MaxPool", x.name, **window)
        else:
            made = self.node(
                "AveragePool", x.name, **window, count_include_pad=int(kind == "included")
            )
        y = pooled(x.array, size, stride, pad, kind)
        keep = x.parameters if kind == "max" and self.chance(0.7) else None
        return self.images.append(self.requantize(made, y, keep))

    def move(self) -> None:
        x = self.images[-1]
        kind = self.pick("transpose", "pad", "slice", "shuffle")
        n, c, h, w = x.array.shape
        if kind == "transpose":
            made, y = self.node("Transpose", x.name, perm=[0, 1, 3, 2]), x.array.swapaxes(2, 3)
        elif kind == "pad":
            pads = self.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2]))
            made, y = (
                self.node("Pad", x.name, pads),
                np.pad(x.array, ((0, 0), (0, 0), (1, 0), (0, 2))),
            )
        elif kind == "slice" and h > 2:
            given = [self.constant(np.array([v])) for v in (1, h, 2)]
            made, y = self.node("Slice", x.name, *given), x.array[:, :, 1:h]
        else:
            groups = 2 if c % 2 == 0 else 1
            split, merged = (
                self.constant(np.array(s)) for s in ((n, groups, c // groups, h, w), (n, c, h, w))
            )
            made = self.node("Transpose", self.node("Reshape", x.name, split), perm=[0, 2, 1, 3, 4])
            made = self.node("Reshape", made, merged)
            y = x.array.reshape(n, groups, c // groups, h, w).swapaxes(1, 2).reshape(n, c, h, w)
        keep = x.parameters if self.chance(0.7) else None
        self.images.append(self.requantize(made, np.ascontiguousarray(y), keep))

    def gate(self) -> None:
        """A value times its hard sigmoid, as attention over channels has it."""
        x = self.images[-1]
        gate = np.clip(x.array / np.float32(6) + np.float32(0.5), 0, 1)
        name = self.node("HardSigmoid", x.name, alpha=1 / 6, beta=0.5)
        other = self.requantize(name, gate)
        made = self.node("Mul", x.name, other.name)
        self.images.append(self.requantize(made, x.array * other.array))

    def head(self) -> Tensor:
        """A mean over the image and a matrix product."""
        x = self.images[-1]
        mean = x.array.astype(np.float64).mean(axis=(2, 3), keepdims=True)
        pooled_ = self.requantize(self.node("GlobalAveragePool", x.name), mean)
        flat = self.node("Flatten", pooled_.name)
        rows = pooled_.array.reshape(len(mean), -1)
        transposed = self.chance(0.5)
        channels = rows.shape[1]
        shape, axis = ((6, channels), 0) if transposed else ((channels, 6), 1)
        name, w, scale = self.weights(shape, axis)
        y = rows.astype(np.float64) @ (w.T if transposed else w).astype(np.float64)
        bias, values = self.bias(pooled_, scale, 6)
        if self.chance(0.5):
            made = self.node("Gemm", flat, name, bias, transB=int(transposed))
        else:
            right = self.node("Transpose", name, perm=[1, 0]) if transposed else name
            made = self.node("Add", self.node("MatMul", flat, right), bias)
        return self.requantize(*self.activation(made, y + values))


@dataclass(frozen=True)
class Model:
    """A model and what it gives for an input.

    Attributes:
        proto: the model, with the input `x` and the output `y`.
        x: the input.
        y: the output in float.
        scale: that of the output: one step of its integers.
    """

    proto: onnx.ModelProto
    x: np.ndarray
    y: np.ndarray
    scale: float


def model(seed: int, steps: int = 5) -> Model:
    """The model of a seed."""
    b = Builder(np.random.default_rng(seed))
    channels, size = int(b.pick(3, 4, 6)), int(b.pick(7, 8, 10))
    x = b.random.standard_normal((int(b.pick(1, 2)), channels, size, size)).astype(np.float32)
    b.images.append(b.requantize("x", x))
    b.conv()
    for _ in range(steps):
        kinds = (b.conv, b.conv, b.residual, b.concat, b.pool, b.move, b.gate)
        kinds[int(b.random.integers(len(kinds)))]()
    last = b.head() if b.chance(0.6) else b.images[-1]
    b.nodes.append(helper.make_node("Identity", [last.name], ["y"]))
    graph = helper.make_graph(
        b.nodes,
        f"qdq{seed}",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in b.constants.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)
    return Model(proto, x, last.array, float(b.constants[last.parameters[0]]))
