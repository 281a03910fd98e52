"""ONNX nodes and small graphs, compiled and run: the shortest way to state what a compiled model gives."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.support.options import Options
from xcompile.compiler.worker.pool import WorkerPool


@functools.cache
def shared_pool() -> WorkerPool:
    """Workers for all compiled tests of a process."""
    return worker_pool(Options())


def compiled(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[Any, Sequence[int | str | None]]],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    *,
    opset: int = 17,
) -> CompiledModel:
    """A model of nodes, its inputs given as dtype and sizes."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.dtype(d)), s)
            for n, (d, s) in inputs.items()
        ],
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in outputs],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return compile_model(model, pool=shared_pool(), threads=1)


def run(
    op: str,
    *inputs: Any,
    opset: int = 17,
    outputs: int = 1,
    constants: Sequence[int] = (),
    **attributes: Any,
) -> Any:
    """The outputs of a compiled node for the given arrays (None: omitted), the only one bare.

    The node is compiled with known sizes and with unknown ones, and both must give the same bits. Inputs whose
    positions are in `constants` are initializers.
    """
    given = {f"x{i}": np.asarray(a) for i, a in enumerate(inputs) if a is not None}
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name="node", **attributes)
    fixed = {f"x{i}": given[f"x{i}"] for i in constants}
    free = {n: a for n, a in given.items() if n not in fixed}
    found: list[list[np.ndarray]] = []
    for dynamic in (False, True):
        shapes = {n: (a.dtype, [None] * a.ndim if dynamic else a.shape) for n, a in free.items()}
        made = compiled([node], shapes, results, fixed, opset=opset)
        found.append(list(made.executable.run(list(free.values())).values()))
    for static, dynamic in zip(*found, strict=True):
        assert static.dtype == dynamic.dtype
        wide = [a if a.dtype.isbuiltin == 1 else a.astype(np.float64) for a in (static, dynamic)]
        np.testing.assert_array_equal(*wide)
    return found[0][0] if outputs == 1 else found[0]
