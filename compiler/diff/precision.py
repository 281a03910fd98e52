"""Compares a float model with itself in another precision, or with a quantized model of another file.

Both are evaluated by the numpy meaning of their ops, the quantized one where quantization is explicit: behind the
passes that insert it and before those that lower it, which are exact. Tensors are matched by the model's names. The
outputs are those of the compiled code where this machine can run it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcompile.compiler.diff.inputs import Given, complete_inputs
from xcompile.compiler.diff.precision_report import LossReport, LossRow
from xcompile.compiler.driver import input_specs, resolved_pipeline
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import Pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.numerics.compare import Metrics, metrics
from xcompile.compiler.numerics.recording import Recorded, Recording, operations_of
from xcompile.compiler.quantize.equalize import equalize_channels
from xcompile.compiler.quantize.names import tensor_names
from xcompile.compiler.quantize.table import CalibrationTable
from xcompile.compiler.request import Request
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.conv import Conv, ConvTranspose
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.quantize import Dequantize
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.runtime.abi import TensorSpec

Inputs = Given | Callable[[Sequence[TensorSpec]], Given] | None

LOWERING = "nn-move-quantize"
"""The first pass that does away with explicit quantization."""

_CONVERSIONS = frozenset({"nn.quantize", "nn.dequantize", "nn.cast"})
"""Ops that only change the form of a tensor: their results are what the tensor is to who reads it, not the tensor."""

_PRODUCTS = (Conv, ConvTranspose, MatMul)


@dataclass
class _Model:
    """A module of the nn level and the names of its values."""

    module: Module
    names: Mapping[Value, Sequence[str]]

    @staticmethod
    def imported(model: Any) -> "_Model":
        """A model as its file says."""
        made: dict[Value, list[str]] = {}
        module = import_onnx(
            model, observe=lambda tensor, _, value: made.setdefault(value, []).append(tensor)
        )
        return _Model(module, made)

    @staticmethod
    def prepared(model: Any, request: Request, passes: Pipeline) -> "_Model":
        """A model behind some passes."""
        module = import_onnx(model, overridable=request.overridable)
        with module.context, ir.Location.unknown():
            refine_types(module, module.input_shapes())
            run_pipeline(
                module,
                passes,
                PassContext(
                    request.target,
                    calibration=request.calibration,
                    precisions=request.precisions,
                ),
            )
            known = {*module.output_names(), *(t for each in module.tensors.values() for t in each)}
            names = tensor_names(module, _CONVERSIONS).items()
            return _Model(module, {value: [name] for value, name in names if name in known})

    def record(self, inputs: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """The tensors of a run, by name."""
        with self.module.context, ir.Location.unknown():
            recording = Recording(self.module, inputs)
            recording.run()
            values = recording.values
            known = {
                name: values[value].array
                for value, names in self.names.items()
                for name in names
                if value in values
            }
            results = operations_of(self.module)[-1].operands
            outputs = zip(self.module.output_names(), results, strict=True)
            return known | {name: values[v].array for name, v in outputs if v in values}


def compare_precision(model: Any, request: Request, inputs: Inputs, name: str) -> "Comparison":
    """Compare a float model with itself behind the passes that the request's precision has.

    Args:
        model: an ONNX model.
        request: of a precision.
        inputs: arrays by name or in order, or a function that makes them; what is missing is random.
        name: what the model in the other precision is called.
    """
    whole = resolved_pipeline(request).passes
    names = [each.NAME for each in whole]
    before = whole[: names.index(LOWERING)] if LOWERING in names else whole
    first = next((i for i, each in enumerate(before) if each.CHANGES_VALUES), len(before))
    floating = _Model.prepared(model, request, Pipeline(before[:first]))
    if request.calibration and CalibrationTable.from_text(request.calibration).equalized:
        equalize_channels(floating.module)  # so that channels are of the same size in both
    other = _Model.prepared(model, request, Pipeline(before))
    return Comparison(floating, other, inputs, name)


def compare_models(model: Any, other: Any, inputs: Inputs) -> "Comparison":
    """Compare a float model with a quantized one whose tensors have the same names."""
    quantized = _Model.imported(other)
    return Comparison(_Model.imported(model), quantized, inputs, quantized.module.name)


class Comparison:
    """A float model and another one, on inputs.

    Attributes:
        inputs: one array an input.
    """

    def __init__(self, floating: _Model, other: _Model, inputs: Inputs, name: str) -> None:
        """Complete the inputs.

        Raises:
            CompileError: XC5001 or XC5003 when they do not fit the model.
        """
        self._floating, self._other, self._name = floating, other, name
        with floating.module.context, ir.Location.unknown():
            given = inputs(input_specs(floating.module)) if callable(inputs) else inputs
            self.inputs = complete_inputs(floating.module, given or {})

    def report(self, executed: Mapping[str, np.ndarray] | None = None) -> LossReport:
        """Evaluate both.

        Args:
            executed: the outputs of the compiled model, where there are some.

        Raises:
            CompileError: XC2011 an op fails on these inputs.
        """
        expected = self._floating.record(self.inputs)
        found = self._other.record(self.inputs) | dict(executed or {})
        rows: list[LossRow] = []
        for op, tensor, nodes, alone in self._alone(expected):
            accumulated = metrics(found[tensor], expected[tensor])
            shape = expected[tensor].shape
            rows.append(
                LossRow(tensor, nodes, op.NAME.removeprefix("nn."), _reads(op), shape, alone, accumulated)
            )  # fmt: skip
        outputs = tuple(self._other.module.output_names())
        return LossReport(
            self._floating.module.name, self._name, tuple(rows), outputs, executed is not None
        )

    def _alone(self, expected: Mapping[str, np.ndarray]) -> Iterator[tuple[Op, str, str, Metrics]]:
        """Each tensor that both have, computed from the float model's tensors, and the op that tells most of how."""
        module = self._other.module
        told: dict[Value, Op] = {}
        with module.context, ir.Location.unknown():
            recording = Recording(module, self.inputs)
            for operation in operations_of(module)[:-1]:
                recording.execute(operation, recording.values)
                op = view(operation)
                if op is None or isinstance(op, Const):
                    continue
                before = (told[v] for v in operation.operands if v in told)
                teller = op if isinstance(op, _PRODUCTS) else next(before, op)
                for value in operation.results:
                    made = recording.values.get(value)
                    names = self._other.names.get(value, ())
                    name = next((name for name in names if name in expected), None)
                    if made is None or name is None:
                        told.update({value: teller} if isinstance(teller, _PRODUCTS) else {})
                        continue
                    wanted = expected[name]
                    nodes = describe(operation.location) or ""
                    yield teller, name, nodes, metrics(made.array, wanted)
                    if wanted.shape == made.array.shape:
                        recording.values[value] = Recorded(wanted.astype(made.array.dtype))


def _reads(op: Op) -> str:
    """The types in which an op's operands are stored; of a product its two factors only."""
    operands = op.operands[:2] if isinstance(op, _PRODUCTS) else op.operands
    kinds = [_stored(value) for value in operands if rank_of(value)]
    return " × ".join(kinds if len(set(kinds)) > 1 or len(kinds) == 2 else kinds[:1])


def _stored(value: Value) -> str:
    owner = value.owner
    made = None if isinstance(owner, ir.Block) else Dequantize.of(owner.operation)
    return dtype_of(made.x if made is not None else value)
