"""Small random models whose sizes n and m are not known when they are compiled.

A graph is drawn op by op; each op is one that means something for all sizes of at least 1. Values stay near 1, so that
tolerances are those of the arithmetic.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

Size = int | str
"""An integer, a symbol, or the text of what is only known to be at least 1."""


@dataclass(frozen=True)
class Tensor:
    """A value of the graph."""

    name: str
    shape: tuple[Size, ...]


@dataclass
class Graph:
    """A graph while it is drawn.

    Attributes:
        draw: hypothesis' draw function.
        random: for the values of weights.
        nodes: the nodes so far.
        weights: initializers by name.
        length: the most terms of any sum so far.
    """

    draw: Callable[..., object]
    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    length: int = 1

    def choose(self, *options: object) -> object:
        return self.draw(st.sampled_from(options))

    def axis(self, shape: Sequence[Size], known: bool = False) -> int | None:
        """An axis, one of known size if asked for."""
        axes = [i for i, d in enumerate(shape) if isinstance(d, int) or not known]
        return self.draw(st.sampled_from(axes)) if axes else None

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def values(self, *shape: int, scale: float = 1.0) -> str:
        return self.weight((self.random.standard_normal(shape) * scale).astype(np.float32))

    def add(
        self, op: str, inputs: Sequence[str], shape: Sequence[Size], **attributes: object
    ) -> Tensor:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return Tensor(name, tuple(shape))


Maker = Callable[[Graph, Tensor, Sequence[Tensor]], Tensor | None]
"""Adds an op that reads a value (and maybe others); None where it would not fit."""


def _unary(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor:
    op = g.choose(
        "Relu",
        "Sigmoid",
        "Tanh",
        "Neg",
        "Abs",
        "Erf",
        "Softplus",
        "HardSwish",
        "Atan",
        "Sin",
        "Elu",
    )
    return g.add(op, [x.name], x.shape)


def _binary(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor:
    op = g.choose("Add", "Sub", "Mul", "Max", "Min")
    same = [t.name for t in others if t.shape == x.shape]
    broadcast = [d if isinstance(d, int) and g.choose(True, False) else 1 for d in x.shape]
    other = g.choose(*same) if same and g.choose(True, False) else g.values(*broadcast)
    operands = [x.name, other] if g.choose(True, False) else [other, x.name]
    return g.add(op, operands, x.shape)


def _transpose(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor:
    perm = g.draw(st.permutations(range(len(x.shape))))
    return g.add("Transpose", [x.name], [x.shape[i] for i in perm], perm=perm)


def _flatten(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor:
    axis = g.draw(st.integers(0, len(x.shape)))
    halves = [_product(x.shape[:axis]), _product(x.shape[axis:])]
    return g.add("Flatten", [x.name], halves, axis=axis)


def _product(sizes: Sequence[Size]) -> Size:
    if all(isinstance(d, int) for d in sizes):
        return int(np.prod(sizes))
    return "*".join(f"({d})" for d in sizes)


def _slice(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor:
    axis, step = g.axis(x.shape), g.choose(1, 2, 3, -1, -2)
    size = x.shape[axis]
    bounds = (2**62, -(2**62)) if step < 0 else (0, 2**62)
    places = [g.weight(np.array([v])) for v in (*bounds, axis, step)]
    new = (
        -(-size // abs(step))
        if isinstance(size, int)
        else size
        if abs(step) == 1
        else f"ceil({size}/{abs(step)})"
    )
    return g.add("Slice", [x.name, *places], [*x.shape[:axis], new, *x.shape[axis + 1 :]])


def _pad(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor:
    axis, low, high = g.axis(x.shape), g.choose(0, 1, 2), g.choose(0, 1)
    pads = np.zeros((2, len(x.shape)), np.int64)
    pads[:, axis] = low, high
    mode = g.choose("constant", "edge")
    size = x.shape[axis]
    new = size + low + high if isinstance(size, int) else f"{size}+{low + high}"
    shape = [*x.shape[:axis], new, *x.shape[axis + 1 :]]
    return g.add("Pad", [x.name, g.weight(pads.reshape(-1))], shape, mode=mode)


def _concat(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor:
    axis = g.axis(x.shape)
    rest = [*x.shape[:axis], *x.shape[axis + 1 :]]
    fitting = [
        t
        for t in others
        if len(t.shape) == len(x.shape) and [*t.shape[:axis], *t.shape[axis + 1 :]] == rest
    ]
    other = g.choose(*fitting, x)
    sizes = [t.shape[axis] for t in (x, other)]
    new = sum(sizes) if all(isinstance(d, int) for d in sizes) else f"{sizes[0]}+{sizes[1]}"
    return g.add(
        "Concat", [x.name, other.name], [*x.shape[:axis], new, *x.shape[axis + 1 :]], axis=axis
    )


def _gather(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor | None:
    axis = g.axis(x.shape, known=True)
    if axis is None:
        return None
    places = g.random.integers(-x.shape[axis], x.shape[axis], 3)
    return g.add(
        "Gather", [x.name, g.weight(places)], [*x.shape[:axis], 3, *x.shape[axis + 1 :]], axis=axis
    )


def _reduce(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor:
    kind, keep = g.choose("Mean", "Max", "Min", "L2", "LogSumExp", "SumSquare"), g.choose(0, 1)
    axes = sorted({g.axis(x.shape) for _ in range(g.choose(1, 2))})
    g.length *= 4 * len(axes)
    shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes]
    y = g.add(f"Reduce{kind}", [x.name, g.weight(np.array(axes))], shape, keepdims=keep)
    return g.add("Tanh", [y.name], shape)


def _softmax(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor:
    return g.add(g.choose("Softmax", "LogSoftmax"), [x.name], x.shape, axis=g.axis(x.shape))


def _matmul(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor | None:
    depth, columns = x.shape[-1], g.choose(1, 3, 17)
    if len(x.shape) < 2 or not isinstance(depth, int):
        return None
    g.length *= depth
    w = g.values(depth, columns, scale=depth**-0.5)
    return g.add("MatMul", [x.name, w], [*x.shape[:-1], columns])


def _conv(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor | None:
    if len(x.shape) < 3 or not isinstance(x.shape[1], int):
        return None
    rank, channels, k = len(x.shape) - 2, g.choose(1, 4, 17), g.choose(1, 3)
    g.length *= x.shape[1] * k**rank
    w = g.values(channels, x.shape[1], *[k] * rank, scale=(x.shape[1] * k**rank) ** -0.5)
    shape = [x.shape[0], channels, *x.shape[2:]]
    return g.add("Conv", [x.name, w, g.values(channels)], shape, pads=[k // 2] * 2 * rank)


def _pool(g: Graph, x: Tensor, others: Sequence[Tensor]) -> Tensor | None:
    if len(x.shape) < 3:
        return None
    rank, stride = len(x.shape) - 2, g.choose(1, 2)
    shape = [*x.shape[:2], *(_pooled(d, stride) for d in x.shape[2:])]
    window = {"kernel_shape": [3] * rank, "strides": [stride] * rank, "pads": [1] * 2 * rank}
    return g.add(g.choose("MaxPool", "AveragePool"), [x.name], shape, **window)


def _pooled(size: Size, stride: int) -> Size:
    if stride == 1:
        return size
    return (size - 1) // 2 + 1 if isinstance(size, int) else f"pool({size})"


MAKERS: tuple[Maker, ...] = (
    _unary, _unary, _binary, _binary, _transpose, _flatten, _slice, _pad, _concat, _gather, _reduce, _softmax, _matmul,
    _conv, _pool,
)  # fmt: skip

SHAPES: tuple[tuple[Size, ...], ...] = (
    ("n", 4, "m", 5),
    ("n", 16, 6, 6),
    (1, 3, "n", "m"),
    ("n", "m", 8),
    (2, 7, "n"),
    ("n", 19),
    ("m",),
)


@dataclass(frozen=True)
class Model:
    """A drawn model.

    Attributes:
        proto: the model; its input is x.
        shape: of x.
        length: the most terms that a chain of sums has.
    """

    proto: onnx.ModelProto
    shape: tuple[Size, ...]
    length: int

    def data(self, n: int, m: int, seed: int = 0) -> np.ndarray:
        """An input for given sizes."""
        sizes = [{"n": n, "m": m}.get(d, d) for d in self.shape]
        return np.random.default_rng(seed).standard_normal(sizes).astype(np.float32)


@st.composite
def models(draw: Callable[..., object]) -> Model:
    """A model of up to eight ops with one input and one or two outputs."""
    g = Graph(draw, np.random.default_rng(draw(st.integers(0, 99))))
    made = [Tensor("x", draw(st.sampled_from(SHAPES)))]
    for _ in range(draw(st.integers(2, 8))):
        source = g.choose(made[-1], *made[-3:])
        new = draw(st.sampled_from(MAKERS))(g, source, made)
        if new is not None and len(new.shape) > 0:
            made.append(new)
    outputs = list(dict.fromkeys([made[-1].name, g.choose(*made).name]) - {"x": None}.keys()) or []
    if not outputs:
        outputs = [g.add("Neg", ["x"], made[0].shape).name]
    graph = helper.make_graph(
        g.nodes,
        "random",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, made[0].shape)],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in g.weights.items()],
    )
    opsets = [helper.make_opsetid("", 20)]
    proto = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return Model(proto, made[0].shape, g.length)
