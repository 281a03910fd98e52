"""Trains two small networks on 3,000 digits of 28×28 pixels and writes them as ONNX.

    python examples/mnist/train.py mnist_5k.csv.gz

`plain.onnx` has three convolutions, `separable.onnx` depthwise and 1×1 convolutions in the way of MobileNet. Both take
any number of images, float32 [N, 1, 28, 28] with grey values from 0 to 255, and give "scores", float32 [N, 10].
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from data import Digits, load
from layers import Arrays, BatchNorm, Conv, Depthwise, Layer, MaxPool, MeanAndDense, Relu
from onnx import TensorProto, helper, numpy_helper
from threadpoolctl import threadpool_limits

EPOCHS = 14
BATCH = 50
LEARNING_RATE = 4e-3
SCALE = np.float32(1 / 255)

Network = list[tuple[str, Layer]]


def plain(random: np.random.RandomState) -> Network:
    """Three 3×3 convolutions with two pools between them."""
    made: Network = []
    for place, channels in enumerate(((1, 16), (16, 32), (32, 64)), start=1):
        made += [
            (f"conv{place}", Conv(random, channels, 3)),
            (f"norm{place}", BatchNorm(channels[1])),
            (f"relu{place}", Relu()),
        ]
        if place < 3:
            made.append((f"pool{place}", MaxPool()))
    return [*made, ("scores", MeanAndDense(random, 64, 10))]


def separable(random: np.random.RandomState) -> Network:
    """A 3×3 convolution, then four pairs of a depthwise and a 1×1 convolution."""
    made: Network = [
        ("stem", Conv(random, (1, 16), 3)),
        ("stem.norm", BatchNorm(16)),
        ("stem.relu", Relu()),
    ]
    pairs = ((16, 32, 2), (32, 64, 1), (64, 64, 2), (64, 96, 1))
    for place, (before, behind, stride) in enumerate(pairs, start=1):
        made += [
            (f"depth{place}", Depthwise(random, before, stride)),
            (f"depth{place}.norm", BatchNorm(before)),
            (f"depth{place}.relu", Relu()),
            (f"point{place}", Conv(random, (before, behind), 1)),
            (f"point{place}.norm", BatchNorm(behind)),
            (f"point{place}.relu", Relu()),
        ]
    return [*made, ("scores", MeanAndDense(random, 96, 10))]


def scores_of(network: Network, images: np.ndarray, *, training: bool = False) -> np.ndarray:
    """The network's scores of images [n, 1, 28, 28]."""
    x = images.transpose(0, 2, 3, 1) * SCALE
    for _, layer in network:
        x = layer.forward(x, training=training)
    return x


def moved(images: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """The images, each moved by up to two pixels down and right or up and left."""
    made = np.zeros_like(images)
    padded = np.pad(images, ((0, 0), (0, 0), (2, 2), (2, 2)))
    for image, target, (y, x) in zip(
        padded, made, random.randint(0, 5, (len(images), 2)), strict=True
    ):
        target[...] = image[:, y : y + 28, x : x + 28]
    return made


def train(network: Network, digits: Digits) -> None:
    """Minimizes the mean cross entropy with Adam (Kingma and Ba, 2015), the step going to zero."""
    random = np.random.RandomState(1)
    moments: dict[tuple[int, str], Arrays] = {}
    last = EPOCHS * len(digits.images) // BATCH
    for step in range(last):
        if step * BATCH % len(digits.images) == 0:
            order = random.permutation(len(digits.images))
        chosen = order[step * BATCH % len(order) :][:BATCH]
        _step(network, moved(digits.images[chosen], random), digits.labels[chosen])
        rate = LEARNING_RATE * (1 - step / last)
        for place, (_, layer) in enumerate(network):
            for name, gradient in layer.gradients.items():
                found = moments.setdefault((place, name), {"m": np.float32(0), "v": np.float32(0)})
                found["m"] = found["m"] + np.float32(0.1) * (gradient - found["m"])
                found["v"] = found["v"] + np.float32(0.001) * (gradient**2 - found["v"])
                mean = found["m"] / np.float32(1 - 0.9 ** (step + 1))
                variance = found["v"] / np.float32(1 - 0.999 ** (step + 1))
                change = np.float32(rate) * mean / (np.sqrt(variance) + np.float32(1e-8))
                layer.parameters[name] = layer.parameters[name] - change


def _step(network: Network, images: np.ndarray, labels: np.ndarray) -> None:
    """One forward and one backward pass."""
    scores = scores_of(network, images, training=True)
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    gradient = exponentials / exponentials.sum(axis=1, keepdims=True)
    gradient[np.arange(len(labels)), labels] -= 1
    gradient /= np.float32(len(labels))
    for _, layer in reversed(network):
        gradient = layer.backward(gradient)


def to_onnx(network: Network, name: str) -> onnx.ModelProto:
    """The network as an ONNX model with a symbolic batch size N."""
    nodes = [helper.make_node("Mul", ["images", "scale"], ["scaled"], "scale")]
    constants: Arrays = {"scale": np.asarray(SCALE)}
    before = "scaled"
    for tensor, layer in network:
        made, values = layer.nodes(tensor, before)
        nodes += made
        constants |= values
        before = tensor
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 1, 28, 28])],
        [helper.make_tensor_value_info(before, TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(value, key) for key, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="mnist")
    onnx.checker.check_model(model, full_check=True)
    return model


def accuracy(network: Network, digits: Digits) -> float:
    """The percentage of digits that the network reads right."""
    scores = scores_of(network, digits.images)
    return 100 * float((scores.argmax(axis=1) == digits.labels).mean())


def main(arguments: Sequence[str] = tuple(sys.argv[1:])) -> None:
    """Trains both networks and writes them beside this file."""
    training, choosing, testing = load(Path(arguments[0]))
    for build in (plain, separable):
        network = build(np.random.RandomState(0))
        with threadpool_limits(1):
            train(network, training)
        name = build.__name__
        path = Path(__file__).with_name(f"{name}.onnx")
        path.write_bytes(to_onnx(network, name).SerializeToString(deterministic=True))
        read = [f"{accuracy(network, part):.1f} %" for part in (training, choosing, testing)]
        print(f"{path}: {path.stat().st_size:,} bytes; right of the three parts: {', '.join(read)}")


if __name__ == "__main__":
    main()
