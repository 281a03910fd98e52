"""A module of the IR with what belongs to it: its context and its weights."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch_mlir import ir
from torch_mlir.dialects import func

from xcompile.compiler.ir.graveyard import Graveyard
from xcompile.compiler.ir.weights import WeightStore
from xcompile.compiler.support.dims import Dim, parse, symbol


@dataclass
class Module:
    """One model at the nn or kernel level.

    Attributes:
        module: the MLIR module; `@main` is the model's function.
        weights: the store that its constants refer to.
        name: the model's name, for reports.
        external: the files that weights were read from, by their place in the model's folder.
        defaults: what inputs are that a run may leave out, by name.
        tensors: the tensors that each node of the model gives, by the node's name, in the model's order.
        inner_tensors: the same of the nodes in branches and loops.
        kinds: what the model calls the op of each node, by the node's name: "Conv".
    """

    module: ir.Module
    weights: WeightStore = field(default_factory=WeightStore)
    name: str = "model"
    external: Mapping[str, memoryview | bytes] = field(
        default_factory=dict[str, memoryview | bytes]
    )
    defaults: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    tensors: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    inner_tensors: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    kinds: Mapping[str, str] = field(default_factory=dict[str, str])
    _graveyard: Graveyard | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def graveyard(self) -> Graveyard:
        """Where patterns put erased ops; it lives as long as the module, so old handles stay valid."""
        if self._graveyard is None:
            with self.context:
                self._graveyard = Graveyard()
        return self._graveyard

    @property
    def context(self) -> ir.Context:
        return self.module.context

    @property
    def main(self) -> func.FuncOp:
        """The function `@main`; LookupError when there is none."""
        for operation in self.module.body.operations:
            if isinstance(operation, func.FuncOp) and operation.sym_name.value == "main":
                return operation
        raise LookupError("the module has no function @main")

    def input_shapes(self) -> list[tuple[Dim, ...]]:
        """The shape of each input as Dims: what the model names, or a symbol of its own for each unnamed size."""
        attributes = self.module.operation.attributes
        if "xc.input_dims" in attributes:
            return [
                _shape(ir.StringAttr(a).value) for a in ir.ArrayAttr(attributes["xc.input_dims"])
            ]
        dynamic = ir.ShapedType.get_dynamic_size()
        return [
            tuple(
                symbol(f"arg{i}_{axis}") if size == dynamic else size
                for axis, size in enumerate(ir.RankedTensorType(argument.type).shape)
            )
            for i, argument in enumerate(self.main.regions[0].blocks[0].arguments)
        ]

    def input_names(self) -> list[str]:
        """The model's names of the inputs; `arg0`, `arg1`, … when it has none."""
        return self._names("xc.inputs", "arg", len(self.main.regions[0].blocks[0].arguments))

    def output_names(self) -> list[str]:
        """The model's names of the outputs; `result0`, … when it has none."""
        return self._names("xc.outputs", "result", len(self.main.type.results))

    def _names(self, attribute: str, default: str, count: int) -> list[str]:
        attributes = self.module.operation.attributes
        if attribute in attributes:
            return [ir.StringAttr(a).value for a in ir.ArrayAttr(attributes[attribute])]
        return [f"{default}{i}" for i in range(count)]

    def text(self, *, locations: bool = False) -> str:
        """The module as MLIR text, with node names when `locations`."""
        return self.module.operation.get_asm(enable_debug_info=locations)


def _shape(text: str) -> tuple[Dim, ...]:
    return tuple(parse(part) for part in text.split(",")) if text else ()
