"""What computing each product alone in fewer bits does to the outputs: one compiled model with a switch tells of all.

Beside each product stand its forms of 8-bit integers and of 16-bit floats, and an input of the model says which single
product is in one of them. So a product costs some runs, and not a compile.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from xcompile.compiler.calibration.float_model import plan_float_model
from xcompile.compiler.driver import compile_module
from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value
from xcompile.compiler.quantize.equalize import equalize_channels
from xcompile.compiler.quantize.plan import Product, plan_quantization
from xcompile.compiler.quantize.sharing import shared_ranges
from xcompile.compiler.quantize.smooth import smooth_activations
from xcompile.compiler.quantize.table import CalibrationTable, Observed
from xcompile.compiler.quantize.weights import mean_error
from xcompile.compiler.request import Request
from xcompile.compiler.support.options import Options
from xcompile.compiler.support.precision_map import PrecisionMap
from xcompile.compiler.target.target import Target
from xcompile.dialects.nn.binary import Add, Equal
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.ternary import Where
from xcompile.dialects.nn.unary import Cast
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.passes.nn.narrow_floats import NARROW
from xcompile.passes.nn.quantized_weights import QuantizedWeights, correctable_addend
from xcompile.runtime.executable import Executable

if TYPE_CHECKING:
    import onnx

    from xcompile.compiler.worker.pool import WorkerPool

Inputs = Mapping[str, np.ndarray]

_SWITCH = "xc:quantized product"
_NONE = -1


@dataclass(frozen=True)
class ProductCost:
    """A product, and what computing it alone in fewer bits costs.

    Attributes:
        name: of the tensor that it gives.
        noise: the power of the outputs' error over that of the outputs, the mean of all outputs in floating point;
            infinite where an output becomes infinite or NaN.
        operations: multiplications and additions; sizes that are not known count as 1.
    """

    name: str
    noise: float
    operations: int


class SwitchedModel:
    """A float model in which any single product can be made one of integers, or of floats of 16 bits.

    Args:
        model: as `xcompile.compile` takes it.
        table: of the model.
        precisions: which products may be of integers.
        target: this machine.
        options: of the compile.
        threads: to run on.
        pool: worker processes to compile with.
        overridable: as `xcompile.compile` takes them.
        narrow: the precision of 16 bits, "bf16" or "fp16".

    Attributes:
        products: the names of the tensors that products give which may be quantized, in order.
    """

    def __init__(
        self,
        model: "str | PathLike[str] | bytes | onnx.ModelProto",
        table: CalibrationTable,
        precisions: PrecisionMap,
        target: Target,
        *,
        options: Options | None = None,
        threads: int | None = None,
        pool: "WorkerPool | None" = None,
        overridable: Sequence[str] = (),
        narrow: str = "fp16",
    ) -> None:
        module = import_onnx(model, overridable=overridable)
        with module.context, ir.Location.unknown():
            plan_float_model(module)
            smooth_activations(module, table.smooth)
            if table.equalized:
                equalize_channels(module)
            switch = _add_switch(module)
            found = plan_quantization(module, precisions)
            names = {value: name for name, value in found.tensors.items()}
            tensors = shared_ranges(found.ties, table.tensors)
            known = [p for p in found.products if names[p.x] in tensors]
            self.products = [product.name for product in known]
            self._operations = [_operations(product) for product in known]
            writer = QuantizedWeights(module, rounded=table.rounded)
            ranges = [tensors[names[p.x]] for p in known]
            _insert_switches(writer, switch, known, ranges, NARROW[narrow])
        self._compile = lambda: compile_module(
            module,
            Request(target, pipeline="@finish,@kernels", options=options or Options()),
            None,
            pool,
        ).load(threads=threads)
        self._executable: Executable | None = None
        self._signal: tuple[Sequence[Inputs], list[dict[str, np.ndarray]]] | None = None

    def costs(
        self,
        samples: Sequence[Inputs],
        told: Callable[[int, int], None] = lambda done, total: None,
        products: Sequence[str] | None = None,
        *,
        narrow: bool = False,
    ) -> list[ProductCost]:
        """What computing each product alone in fewer bits costs.

        Args:
            samples: inputs of the model by name.
            told: called with how many products are done, and of how many.
            products: which; all by default, in their order.
            narrow: in floats of 16 bits, not in 8-bit integers.
        """
        places = {name: place for place, name in enumerate(self.products)}
        wanted = self.products if products is None else products
        if self._signal is None or self._signal[0] is not samples:
            self._signal = samples, self._outputs(samples, _NONE)
        costs: list[ProductCost] = []
        for done, name in enumerate(wanted, start=1):
            place = places[name]
            found = self._outputs(samples, place + len(places) * narrow)
            noise = output_noise(self._signal[1], found)
            costs.append(ProductCost(name, noise, self._operations[place]))
            told(done, len(wanted))
        return costs

    def _outputs(self, samples: Sequence[Inputs], chosen: int) -> list[dict[str, np.ndarray]]:
        if self._executable is None:
            self._executable = self._compile()
        switch = {_SWITCH: np.array(chosen)}
        return [self._executable.run({**sample, **switch}) for sample in samples]


def output_noise(
    wanted: Sequence[Mapping[str, np.ndarray]], found: Sequence[Mapping[str, np.ndarray]]
) -> float:
    """The power of the error over that of the outputs: the mean of all outputs in floating point.

    Values that are infinite or NaN are no error where both are the same, else an infinite one. An output of another
    shape than is wanted is all error, and so is one of zeros that has become anything else: its ratio is 1.

    Args:
        wanted: for each sample, the outputs by name.
        found: the same, with the error.
    """
    ratios: list[float] = []
    for name, array in wanted[0].items() if wanted else ():
        if array.dtype.kind != "f":
            continue
        pairs = [(a[name].astype(np.float64), b[name]) for a, b in zip(wanted, found, strict=True)]
        signal, noise = sum(_power(a) for a, _ in pairs), sum(_error(a, b) for a, b in pairs)
        ratios.append(noise / signal if signal > 0 else noise if noise in (0, inf) else 1.0)
    return float(np.mean(ratios)) if ratios else 0.0


def _power(array: np.ndarray) -> float:
    """The sum of the squares of the finite values."""
    return float((array[np.isfinite(array)] ** 2).sum())


def _error(wanted: np.ndarray, found: np.ndarray) -> float:
    """The power of the difference of two arrays, see `output_noise`."""
    if wanted.shape != found.shape:
        return _power(wanted)
    differ = ~((wanted == found) | (np.isnan(wanted) & np.isnan(found)))
    a, b = wanted[differ], found[differ]
    if not (np.isfinite(a) & np.isfinite(b)).all():
        return inf
    return float(((a - b) ** 2).sum())


def _operations(product: Product) -> int:
    dynamic = ir.ShapedType.get_dynamic_size()
    sizes = ir.RankedTensorType(product.op.y.type).shape
    return (
        2
        * prod(1 if size == dynamic else size for size in sizes)
        * (product.weights.size // product.weights.shape[0])
    )


def _insert_switches(
    writer: QuantizedWeights,
    switch: Value,
    products: Sequence[Product],
    ranges: Sequence[Observed],
    narrow: str,
) -> None:
    """Put the other forms beside each product, and a choice behind them; in the module's context."""
    for place, (product, seen) in enumerate(zip(products, ranges, strict=True)):
        op = product.op
        with ir.InsertionPoint.after(op.operation), op.location:
            integers, scales = writer.weights(product)
            chosen = Equal.create(a=switch, b=writer.constant(np.array(place)))
            _, x = writer.tensor(op.a if isinstance(op, MatMul) else op.x, seen)
            twin = writer.product(product, seen, integers, scales, x.y).y
            if isinstance(op, MatMul) and correctable_addend(op, product, seen):
                error = mean_error(product.weights, integers, scales, np.array(seen.means), 1)
                twin = Add.create(a=twin, b=writer.constant(-error.astype(np.float32))).y
            both = Where.create(condition=chosen.y, a=twin, b=op.y)
            op.y.replace_all_uses_except(both.y, both.operation)
            other = Equal.create(a=switch, b=writer.constant(np.array(place + len(products))))
            twin = _in_16_bits(writer, product, narrow)
            every = Where.create(condition=other.y, a=twin, b=both.y)
        both.y.replace_all_uses_except(every.y, every.operation)


def _in_16_bits(writer: QuantizedWeights, product: Product, dtype: str) -> Value:
    """The result of a product that `nn-narrow-floats` has made narrow, in float32."""
    fields = {**product.op.operand_fields(), **product.op.attributes()}
    for name in ("a", "b") if isinstance(product.op, MatMul) else ("x", "w"):
        given = const_of(fields[name])
        if given is None:
            fields[name] = Cast.create(x=fields[name], to=dtype).y
        else:
            with np.errstate(over="ignore"):
                narrow = given.array(writer.module.weights).astype(DTYPES[dtype])
            fields[name] = writer.constant(narrow)
    made = type(product.op).create(**fields)
    return Cast.create(x=made.y, to="f32").y


def _add_switch(module: Module) -> Value:
    """A further input of the module: which product is of integers, an int64 number, -1 for none.

    It stands in front of the inputs that a run may leave out, which are replaced: nobody may hold their values.
    """
    names, attributes = module.input_names(), module.module.operation.attributes
    dims = [",".join(str(dim) for dim in shape) for shape in module.input_shapes()]
    block = module.main.regions[0].blocks[0]
    place = len(names) - len(module.defaults)
    made = block.add_argument(
        ir.RankedTensorType.get([], ir.IntegerType.get_signless(64)), ir.Location.unknown()
    )
    for _ in module.defaults:
        old = block.arguments[place]
        old.replace_all_uses_with(block.add_argument(old.type, old.location))
        block.erase_argument(place)
    kinds = [argument.type for argument in block.arguments]
    whole = ir.FunctionType.get(kinds, module.main.type.results)
    module.main.attributes["function_type"] = ir.TypeAttr.get(whole)
    attributes["xc.inputs"] = _texts([*names[:place], _SWITCH, *names[place:]])
    attributes["xc.input_dims"] = _texts([*dims[:place], "", *dims[place:]])
    return made


def _texts(texts: Sequence[str]) -> ir.ArrayAttr:
    return ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts])
