"""This compiler as a backend of ONNX (`onnx.backend.base`), for ONNX's own test suite and for tools that speak it.

rep = XcompileBackend.prepare(model)
outputs = rep.run([x])
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from xcompile.compiler.api import compile as compile_model
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.frontends.onnx.reader import NEWEST_OPSET

Array = np.ndarray[Any, np.dtype[Any]]

_DATA_SIZES = ("XC2010", "XC4011")
"""Codes that say that a size, place or axis depends on data."""
_SHORT = 8
"""Elements of an input that is tried as a constant when integers alone do not do."""


class Prepared(BackendRep):
    """A model that is ready to run.

    Many models of ONNX's suite have inputs that say sizes, axes or pads, which a compiled model must know. Such a model
    is compiled when it is run, for the sizes of its inputs and with as few of them as possible made constants; for the
    same sizes and constants it is compiled once.
    """

    def __init__(self, model: onnx.ModelProto, options: dict[str, Any]) -> None:
        self._model = model
        self._options = options
        self._compiled: dict[tuple[Any, ...], CompiledModel] = {}
        self._refusal: CompileError | None = None
        try:
            self._compiled[()] = compile_model(model, **options)
        except CompileError as error:
            if error.code not in _DATA_SIZES:
                raise
            self._refusal = error

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs, in order and by name, for arrays in order or by name.

        Raises:
            CompileError: the model is not supported.
            RuntimeModelError: the inputs do not fit.
        """
        names = [info.name for info in _free_inputs(self._model)]
        given = [inputs[n] for n in names] if isinstance(inputs, dict) else list(inputs)
        arrays = [v if isinstance(v, list) or v is None else np.asarray(v) for v in given]
        results = self._run(arrays)
        typed: Any = namedtupledict("Outputs", list(results))
        return typed(*results.values())

    def _run(self, arrays: Sequence[Any]) -> dict[str, Array]:
        if self._refusal is None:
            return self._compiled[()].run(arrays)
        for bound in ((), *_candidates(arrays)):
            free = [x for i, x in enumerate(arrays) if i not in bound]
            shapes = tuple(getattr(x, "shape", None) for x in arrays)
            key = (shapes, *((i, arrays[i].dtype.str, arrays[i].tobytes()) for i in bound))
            try:
                if key not in self._compiled:
                    model = _specialized(self._model, arrays, bound)
                    self._compiled[key] = compile_model(model, **self._options)
            except CompileError as error:
                if error.code not in _DATA_SIZES:
                    raise
                continue
            return self._compiled[key].run(free)
        raise self._refusal


def specialized(model: onnx.ModelProto, arrays: Sequence[Any]) -> Iterator[onnx.ModelProto]:
    """The model, then forms of it for arrays of these sizes with more and more of them as constants."""
    yield model
    for bound in ((), *_candidates(arrays)):
        yield _specialized(model, arrays, bound)


def _free_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    known = {t.name for t in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in known]


def _specialized(
    model: onnx.ModelProto, arrays: Sequence[Any], bound: Sequence[int]
) -> onnx.ModelProto:
    """The model for arrays of these sizes, those at the positions `bound` as constants."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    infos = {info.name: info for info in changed.graph.input}
    for position, (info, array) in enumerate(zip(_free_inputs(model), arrays, strict=True)):
        if position in bound:
            changed.graph.input.remove(infos[info.name])
            changed.graph.initializer.append(onnx.numpy_helper.from_array(array, info.name))
        elif isinstance(array, np.ndarray):
            shape = infos[info.name].type.tensor_type.shape
            shape.Clear()
            for size in array.shape:
                shape.dim.add().dim_value = size
    return changed


def _candidates(arrays: Sequence[Any]) -> Sequence[tuple[int, ...]]:
    """Positions of inputs that may say sizes: each alone, all vectors of integers, all short vectors besides."""
    flat = [(i, x) for i, x in enumerate(arrays) if isinstance(x, np.ndarray) and x.ndim < 2]
    whole = [i for i, x in flat if x.dtype.kind in "iu"]
    small = [i for i, x in flat if i in whole or x.size <= _SHORT]
    return [*((i,) for i in whole), tuple(whole), tuple(small)]


class XcompileBackend(Backend):
    """Compiles for the CPU of this machine. Keyword arguments go to `xcompile.compile`."""

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether the importer takes the model; nothing is compiled."""
        if not cls.supports_device(device):
            return False
        try:
            import_onnx(model)
        except CompileError as error:
            return error.code in _DATA_SIZES
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        """Compile a model.

        Raises:
            CompileError: the model is not supported.
            ValueError: the device is not the CPU.
        """
        if not cls.supports_device(device):
            raise ValueError(f"the device is CPU, not {device}")
        return Prepared(model, kwargs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node; its opset is `opset_version`, the newest by default."""
        version = kwargs.pop("opset_version", NEWEST_OPSET)
        arrays = [np.asarray(v) for v in inputs]
        names = [name for name in node.input if name]
        undeclared = onnx.TypeProto()
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [
                onnx.helper.make_tensor_value_info(
                    name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in zip(names, arrays, strict=True)
            ],
            [onnx.helper.make_value_info(name, undeclared) for name in node.output if name],
        )
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)]
        )
        return cls.prepare(model, device, **kwargs).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device.split(":", maxsplit=1)[0] == "CPU"


prepare = XcompileBackend.prepare
run_model = XcompileBackend.run_model
run_node = XcompileBackend.run_node
supports_device = XcompileBackend.supports_device
