"""What reports count: operations and bytes, against a count made from the ONNX model alone."""

import math

import numpy as np
import onnx
import pytest

import xcompile
from tests.e2e.networks import Network, residual_network
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.report import measure
from xcompile.compiler.support.options import Options


@pytest.fixture(scope="module")
def pool():
    with worker_pool(Options()) as started:
        yield started


def operations(model):
    """Floating-point operations by op, from ONNX's own shape inference; a multiply-add is two."""
    inferred = onnx.shape_inference.infer_shapes(model).graph
    shapes = {i.name: list(i.dims) for i in inferred.initializer}
    for info in (*inferred.input, *inferred.value_info, *inferred.output):
        shapes[info.name] = [d.dim_value for d in info.type.tensor_type.shape.dim]
    found: dict[str, int] = {}
    for node in inferred.node:
        x, y = math.prod(shapes[node.input[0]]), math.prod(shapes[node.output[0]])
        count = {
            "Conv": lambda y=y, node=node: 2 * y * math.prod(shapes[node.input[1]][1:]),
            "Gemm": lambda y=y, node=node: 2 * y * shapes[node.input[0]][1],
            "MatMul": lambda y=y, node=node: 2 * y * shapes[node.input[0]][-1],
            "Relu": lambda y=y: y,
            "Add": lambda y=y: y,
            "MaxPool": lambda y=y: 4 * y,
            "GlobalAveragePool": lambda x=x: x,
            "Softmax": lambda y=y: 4 * y,
        }.get(node.op_type, lambda: 0)()
        found[node.op_type] = found.get(node.op_type, 0) + count
    return found


@pytest.mark.parametrize("batch", [1, 3])
def test_operations_of_all_launches_are_those_of_the_model(pool, batch):
    compiled = xcompile.compile(residual_network(), pool=pool)
    x = np.zeros((batch, 3, 16, 16), np.float32)
    rows = measure(compiled.artifact, [x], repeats=1)
    counted = operations(residual_network(batch=batch))
    assert min(counted[op] for op in ("Conv", "Gemm", "Relu", "Add", "MaxPool", "Softmax")) > 0
    assert sum(row.flops for row in rows) == sum(counted.values()) + batch * 10  # the bias of Gemm


def test_bytes_of_a_launch_are_those_of_its_operands_and_results(pool):
    n = Network()
    y = n("MatMul", "x", n.weight(64, 48))
    z = n("Transpose", n("Add", y, n.weight(48)), perm=[1, 0])
    model = n.model({"x": ("FLOAT", [32, 64])}, {z: ("FLOAT", [48, 32])})
    rows = measure(
        xcompile.compile(model, pool=pool).artifact, [np.zeros((32, 64), np.float32)], repeats=1
    )
    product, moved = rows[0], rows[-1]
    assert product.flops == 2 * 32 * 64 * 48 + 32 * 48
    assert product.bytes == 4 * (32 * 64 + 64 * 48 + 48 + 32 * 48)
    assert (moved.flops, moved.bytes) == (0, 4 * 2 * 32 * 48)
