"""Models of frameworks with channels last, as exporters write them: a transposition around each op of ONNX that wants
channels first. None is left between their convolutions.
"""

import numpy as np
import pytest

from tests.e2e.compiled_node import shared_pool
from tests.e2e.networks import Network, reference
from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.opt import optimize_module
from xcompile.compiler.target.host import host_target
from xcompile.frontends.onnx.importer import import_onnx

FIRST, LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def first(n, op, x, *inputs, **attributes):
    """An op with channels first on an image with channels last."""
    return n("Transpose", n(op, n("Transpose", x, perm=FIRST), *inputs, **attributes), perm=LAST)


def conv(n, x, before, after, size=3, **attributes):
    attributes = {"pads": [size // 2] * 4} | attributes
    made = first(n, "Conv", x, n.weight(after, before, size, size), **attributes)
    return n("Relu", n("Add", made, n.weight(after)))


def ints(n, *values):
    return n.constant(np.array(values, np.int64))


def network(sizes=("N", 17, 17, 3)):
    """Convolutions with, between them: padding, pooling, a residual, a concatenation, a split, a slice, batch
    normalization written out, squeeze and excitation, and a mean at the end.
    """
    n = Network()
    x = n("Pad", "x", ints(n, 0, 0, 0, 0, 0, 1, 1, 0))
    x = conv(n, x, 3, 16, pads=[0] * 4, strides=[2, 2])
    x = first(n, "MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    normal = n("Add", n("Mul", x, n.weight(16)), n.weight(1, 1, 1, 16))
    x = n("Add", x, conv(n, n("Relu", normal), 16, 16))
    low = n("Slice", x, ints(n, 0), ints(n, 8), ints(n, 3))
    high = n("Slice", x, ints(n, 8), ints(n, 16), ints(n, -1))
    x = n("Concat", conv(n, low, 8, 16), high, conv(n, high, 8, 8, 1), axis=-1)
    pixel = n("ReduceMean", x, axes=[1, 2], keepdims=1)
    gate = n("Sigmoid", conv(n, conv(n, pixel, 32, 16, 1), 16, 32, 1))
    x = conv(n, n("Mul", x, gate), 32, 16)
    x = conv(n, n("Slice", x, ints(n, 1, 0), ints(n, 2**31 - 1, 3), ints(n, 1, 2)), 16, 16)
    x = n("LeakyRelu", n("Clip", x, n.constant(np.float32(-1)), n.constant(np.float32(6))))
    mean = n("ReduceMean", conv(n, x, 16, 24), axes=[1, 2], keepdims=0)
    y = n("MatMul", mean, n.weight(24, 10))
    return n.model({"x": ("FLOAT", sizes)}, {y: ("FLOAT", [sizes[0], 10])})


def transposes(model):
    """How many there are after the passes on graphs."""
    module = import_onnx(model)
    with module.context:
        return optimize_module(module, "@graph", host_target()).count('"nn.transpose"')


def test_the_image_is_transposed_once_and_nothing_else():
    model = network()
    assert transposes(model) == 1
    made = compile_model(model, pool=shared_pool(), threads=1)
    launches = [s.symbol for s in made.artifact.program.launches]
    families = [made.artifact.kernels[s].family for s in launches]
    assert families.count("map") == 8
    x = np.random.default_rng(0).standard_normal((2, 17, 17, 3)).astype(np.float32)
    np.testing.assert_allclose(made(x), reference(model, {"x": x})[0], rtol=1e-4, atol=1e-4)


def heads(batch, sizes, classes=21):
    """The heads of a detector: each moves its channels to the end and is joined with the others, then come scores."""
    n = Network()
    ends = []
    for i in range(len(sizes)):
        y = n("Conv", f"x{i}", n.weight(4 * classes, 16, 1, 1))
        y = n("Transpose", y, perm=LAST)
        ends.append(n("Reshape", y, ints(n, 0, -1, classes)))
    y = n("Softmax", n("Concat", *ends, axis=1), axis=-1)
    inputs = {f"x{i}": ("FLOAT", [batch, 16, size, size]) for i, size in enumerate(sizes)}
    return n.model(inputs, {y: ("FLOAT", [batch, None, classes])})


@pytest.mark.parametrize(
    ("batch", "sizes"),
    [(1, [7, 4, 2]), (1, ["H", "I", "J"]), (1, [3]), (1, range(1, 7)), ("N", [7, 4, 2]), ("N", ["H", "I", "J"])],
    ids=["static", "dynamic", "one", "six", "batches", "open batches and sizes"],
)  # fmt: skip
def test_the_heads_of_a_detector_are_written_where_they_are_joined(batch, sizes):
    """A convolution and a transposition a head, and nothing for the concatenation, with an open batch too."""
    model = heads(batch, sizes)
    made = compile_model(model, pool=shared_pool(), threads=1)
    program = made.artifact.program
    families = [made.artifact.kernels[s.symbol].family for s in program.launches]
    assert families.count("conv") == len(sizes)
    assert families.count("map") == len(sizes)
    random = np.random.default_rng(0)
    known = [n if isinstance(n, int) else 5 + i for i, n in enumerate(sizes)]
    count = batch if isinstance(batch, int) else 3
    feeds = {
        f"x{i}": random.standard_normal((count, 16, n, n)).astype(np.float32)
        for i, n in enumerate(known)
    }
    wanted = reference(model, feeds)[0]
    np.testing.assert_allclose(made(*feeds.values()), wanted, rtol=1e-4, atol=1e-5)


def test_heads_without_another_shape_between_are_one_kernel():
    """Transpositions and their concatenation: a kernel with a range for each head."""
    n = Network()
    ends = [n("Transpose", f"x{i}", perm=[0, 2, 1]) for i in range(3)]
    y = n("Concat", *ends, axis=1)
    inputs = {f"x{i}": ("FLOAT", ["N", 8, f"L{i}"]) for i in range(3)}
    model = n.model(inputs, {y: ("FLOAT", ["N", None, 8])})
    made = compile_model(model, pool=shared_pool(), threads=1)
    assert len(made.artifact.program.launches) == 1
    random = np.random.default_rng(0)
    feeds = {
        f"x{i}": random.standard_normal((2, 8, size)).astype(np.float32)
        for i, size in enumerate((17, 4, 1))
    }
    np.testing.assert_array_equal(made(*feeds.values()), reference(model, feeds)[0])


def test_the_same_without_known_sizes():
    """Channels are known by their weights only; the reference agrees on both sides of each pass."""
    model = network(("N", "H", "W", 3))
    assert transposes(model) == 1
    made = compile_model(model, pool=shared_pool(), threads=1, options={"verify-numerics": True})
    for size in (17, 20):
        x = np.random.default_rng(size).standard_normal((1, size, size, 3)).astype(np.float32)
        wanted = reference(model, {"x": x})[0]
        np.testing.assert_allclose(made(x), wanted, rtol=1e-4, atol=1e-4)


def test_without_the_pass_the_result_is_the_same():
    model = network()
    x = np.random.default_rng(0).standard_normal((1, 17, 17, 3)).astype(np.float32)
    made = compile_model(model, pool=shared_pool(), threads=1, passes="-nn-sink-transposes")
    assert "Transpose_6" in made.report()
    np.testing.assert_allclose(made(x), reference(model, {"x": x})[0], rtol=1e-4, atol=1e-4)
