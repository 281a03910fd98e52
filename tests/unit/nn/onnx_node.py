"""One ONNX node, imported and interpreted: the shortest way to state what an op computes."""

import numpy as np
from onnx import helper

from tests.unit.frontends.onnx_models import model
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx


def run(op, *inputs, opset=17, outputs=1, dynamic=True, constants=(), **attributes):
    """The outputs of a node for the given arrays (None: omitted), the only one bare.

    Sizes of the inputs are not known when the model is compiled, unless `dynamic` is off; inputs
    whose positions are in `constants` are initializers.
    """
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name="node", **attributes)
    given = {n: np.asarray(a) for n, a in zip(names, inputs, strict=True) if n}
    fixed = {f"x{i}" for i in constants}
    kinds = {n: helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in given.items()}
    shapes = {
        n: [None] * a.ndim if dynamic else a.shape for n, a in given.items() if n not in fixed
    }
    weights = {n: a for n, a in given.items() if n in fixed}
    proto = model([node], shapes, results, weights, opset=opset, dtypes=kinds)
    found = interpret(import_onnx(proto), [a for n, a in given.items() if n not in fixed])
    return found[0] if outputs == 1 else found


def f32(*values):
    return np.array(values if len(values) != 1 else values[0], np.float32)


def arange(*shape):
    return np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
