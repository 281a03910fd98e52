"""nn-narrow-floats: products, and what lies between them, on floats of 16 bits, with as few casts as that takes."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, identity, view
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.rewrite import RewriteStats, maker, producer
from xcompile.compiler.quantize.names import op_names, tensor_names
from xcompile.compiler.quantize.plan import KEPT_IN_FLOAT
from xcompile.compiler.support.precision_map import PrecisionMap
from xcompile.dialects.nn.base import NnOp, dtype_of
from xcompile.dialects.nn.binary import Div
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.slicing import Split
from xcompile.dialects.nn.unary import Cast
from xcompile.passes.common.narrowing import (
    FOLLOWERS,
    PRODUCTS,
    STAYS,
    WIDE,
    WIDE_OPERANDS,
    Flow,
    narrowed,
)

NARROW = {"fp16": "f16", "bf16": "bf16"}
"""The element type of each precision of 16 bits."""


@dataclass(frozen=True)
class NarrowFloats(Pass):
    """Compute products and what lies between them on floats of 16 bits.

    Products are narrow; what follows (`passes/common/narrowing.py`) is where that takes the fewest casts, and
    otherwise where the tensors in memory are smaller; everything else stays in float32, and so do the model's inputs
    and outputs. A value is cast once for all its readers; constants are narrow from the start. Option: `to` is the
    precision of the whole model, "fp16" or "bf16", where the compile does not say it.

        %1 = "nn.conv"(%0, %w, %b) : (f32, f32, f32) -> f32
        %2 = "nn.relu"(%1) : f32
    ->
        %3 = "nn.cast"(%0) {to = "bf16"}
        %1 = "nn.conv"(%3, %w16, %b) : (bf16, bf16, f32) -> bf16
        %2 = "nn.relu"(%1) : bf16
        %4 = "nn.cast"(%2) {to = "f32"}
    """

    NAME: ClassVar[str] = "nn-narrow-floats"
    CHANGES_VALUES: ClassVar[bool] = True

    to: str = "bf16"

    def __post_init__(self) -> None:
        if self.to not in NARROW:
            raise ValueError(f"'{self.to}' is neither fp16 nor bf16")

    def run(self, module: Module, context: PassContext) -> None:
        precisions = context.precisions.asking(self.to, *NARROW)
        stats = RewriteStats()
        with module.context, ir.Location.unknown():
            # the names that the model's tensors had before quantization stood between them
            names = tensor_names(module, unnamed=("nn.quantize", "nn.dequantize"))
            for precision in NARROW:
                if precision in precisions.used():
                    _Narrowing(module, precision, precisions, names, stats).run()
        gone = module.graveyard.why
        stats.changed = [o for o in stats.changed if gone(o) is None]
        context.record(self.NAME, stats)


class _Narrowing:
    """One run of the pass for one precision."""

    def __init__(
        self,
        module: Module,
        precision: str,
        precisions: PrecisionMap,
        names: dict[Value, str],
        stats: RewriteStats,
    ) -> None:
        self._module, self._precision, self._precisions = module, precision, precisions
        self._dtype = NARROW[precision]
        self._names, self._stats = names, stats
        self._narrow = dict[Value, Value]()
        """Of values of float32, the same in 16 bits."""
        self._casts: list[Cast] = []

    def run(self) -> None:
        *body, terminator = list(self._module.main.regions[0].blocks[0].operations)
        ops = [
            op for o in body if (op := view(o.operation)) is not None and not isinstance(op, Const)
        ]
        fixed: dict[Hashable, set[Hashable]] = {"narrow": set(), "wide": set()}
        for op in ops:
            side = self._side(op)
            if side:
                fixed[side].add(identity(op.operation))
        chosen = narrowed(self._flows(ops, terminator.operation), fixed["narrow"], fixed["wide"])
        for op in ops:
            if identity(op.operation) in chosen:
                self._rebuild(op)
        for made in reversed(self._casts):
            if next(iter(made.y.uses), None) is None:
                self._module.graveyard.bury(made.operation, NarrowFloats.NAME)

    # -- what may be narrow -----------------------------------------------------------------------

    def _side(self, op: Op) -> str:
        """What an op must be, "narrow" or "wide"; "" where it has a choice."""
        product = op.NAME in PRODUCTS
        if not product and op.NAME not in FOLLOWERS:
            if op.NAME in STAYS and self._asked(op):
                self._keep(op, STAYS[op.NAME])
            return "wide"
        if not self._asked(op):
            if product:
                self._keep(op, self._precisions.reason(op_names(op, self._names)))
            return "wide"
        if product and dtype_of(op.results[0]) != "f32":
            if dtype_of(op.results[0]) not in NARROW.values():
                self._keep(op, f"its elements are {dtype_of(op.results[0])}")
            return "wide"
        if not _data(op):
            return "wide"
        if isinstance(op, Div) and self._dtype == "f16" and const_of(op.b) is None:
            return "wide"  # a divisor of float32 may be 0 or infinite in float16
        lost = next((why for v in _data(op) if (why := self._lost(v, vanishing=not product))), "")
        if lost:
            if product:
                self._keep(op, lost)
            return "wide"
        return "narrow" if product else ""

    def _asked(self, op: Op) -> bool:
        return self._precisions.of(op_names(op, self._names)) == self._precision

    def _keep(self, op: Op, why: str) -> None:
        if why:
            self._stats.missed.append((KEPT_IN_FLOAT, describe(op.location) or "?", why))

    def _lost(self, value: Value, *, vanishing: bool) -> str:
        """Why a constant can't be narrow; "" when it can, or is none.

        Numbers that are too large are lost, and with `vanishing` those that become 0.
        """
        const = const_of(value)
        if const is None or dtype_of(value) != "f32":
            return ""
        array = const.array(self._module.weights)
        with np.errstate(over="ignore", under="ignore"):
            narrow = array.astype(DTYPES[self._dtype])
        for lost, how in (
            (np.isfinite(array) & ~np.isfinite(narrow), "large"),
            ((array != 0) & (narrow == 0) & vanishing, "small"),
        ):
            if lost.any():
                return f"a constant of {array[lost].flat[0]:g} is too {how} for {self._precision}"
        return ""

    def _flows(self, ops: list[Op], terminator: ir.Operation) -> list[Flow]:
        """All values of float32 that are no constants, with who makes and reads them."""
        known = {identity(op.operation) for op in ops}
        arguments = [*self._module.main.regions[0].blocks[0].arguments]
        values = [*arguments, *(result for op in ops for result in op.results)]
        flows: list[Flow] = []
        for value in values:
            if dtype_of(value) != "f32":
                continue
            made = maker(value)
            source = WIDE if made is None else identity(made.operation)
            flows.append(Flow(source, tuple(dict.fromkeys(self._readers(value, known)))))
        return flows

    def _readers(self, value: Value, known: set[int]) -> Iterator[Hashable]:
        for use in value.uses:
            reader = use.owner.operation
            op = view(reader)
            if identity(reader) not in known or op is None:
                yield WIDE  # a return, or an op in a branch or loop
            elif value in _data(op):
                yield identity(reader)
            if op is not None and value in _wide(op):
                yield WIDE

    # -- rewriting --------------------------------------------------------------------------------

    def _rebuild(self, op: Op) -> None:
        """The op on floats of 16 bits, and casts of its results for those who read float32."""
        kept = set(WIDE_OPERANDS.get(op.NAME, ()))
        fields: dict[str, Any] = {**op.attributes()}
        for name, given in op.operand_fields().items():
            fields[name] = given if name in kept else self._taken(given)
        with ir.InsertionPoint(op.operation), op.location:
            if isinstance(op, Split):
                fields["results"] = len(op.results)
            made = cast("type[NnOp]", type(op)).create(**fields)
            self._stats.changed.append(made.operation)
            for old, new in zip(op.results, made.results, strict=True):
                wide = new
                if dtype_of(old) == "f32":
                    wide = self._cast(new, "f32")
                    self._narrow[wide] = new
                old.replace_all_uses_with(wide)
        self._stats.fired[self._precision] += 1
        self._stats.fired_at.append((self._precision, describe(op.location) or "?"))
        self._module.graveyard.bury(op.operation, NarrowFloats.NAME)

    def _taken(self, given: Any) -> Any:
        """An operand field with values of float32 narrow."""
        if isinstance(given, list):
            return [self._taken(value) for value in given]
        if given is None or dtype_of(given) != "f32":
            return given
        if given not in self._narrow:
            self._narrow[given] = self._narrowed(given)
        return self._narrow[given]

    def _narrowed(self, value: Value) -> Value:
        """A value in 16 bits, made where the value is made; what a cast has widened is not cast back."""
        source = producer(value, Cast)
        if source is not None and dtype_of(source.x) == self._dtype:
            return source.x
        owner = value.owner
        if isinstance(owner, ir.Block):
            point, location = ir.InsertionPoint.at_block_begin(owner), ir.Location.unknown()
        else:
            point, location = ir.InsertionPoint.after(owner.operation), owner.location
        with point, location:
            const = const_of(value)
            if const is None:
                return self._cast(value, self._dtype)
            array = const.array(self._module.weights)
            made = Const.from_array(array.astype(DTYPES[self._dtype]), self._module.weights)
            self._stats.changed.append(made.operation)
            return made.y

    def _cast(self, value: Value, to: str) -> Value:
        made = Cast.create(x=value, to=to)
        self._casts.append(made)
        self._stats.changed.append(made.operation)
        return made.y


def _data(op: Op) -> list[Value]:
    """The operands that are narrow in a narrow op: of float32, but those that it adds to sums."""
    wide = WIDE_OPERANDS.get(op.NAME, ())
    fields = [given for name, given in op.operand_fields().items() if name not in wide]
    listed = [v for given in fields for v in (given if isinstance(given, list) else [given])]
    return [v for v in listed if v is not None and dtype_of(v) == "f32"]


def _wide(op: Op) -> list[Value]:
    """The operands that an op takes in float32 whatever its data are."""
    return [v for n in WIDE_OPERANDS.get(op.NAME, ()) if (v := op.operand_fields()[n]) is not None]
