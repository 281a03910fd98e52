"""What float16 does not hold of a model: the tensors whose numbers are too large or too small, on samples."""

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from xcompile.compiler.calibration.data import open_samples
from xcompile.compiler.driver import input_specs
from xcompile.compiler.ir.location import describe
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Value, view
from xcompile.compiler.ir.passes import PassContext
from xcompile.compiler.ir.pipeline import parse_pipeline
from xcompile.compiler.ir.rewrite import maker, users
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.quantize.names import tensor_names
from xcompile.compiler.request import Progress
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.target.host import host_target
from xcompile.dialects.nn.base import dtype_of
from xcompile.dialects.nn.const import const_of
from xcompile.dialects.nn.interpreter import evaluate
from xcompile.dialects.nn.shapes import refine_types
from xcompile.frontends.onnx.importer import import_onnx

if TYPE_CHECKING:
    import onnx

LARGEST = float(np.finfo(np.float16).max)
"""What float16 holds at most: 65504."""

_NORMAL = float(np.finfo(np.float16).smallest_normal)


@dataclass(frozen=True)
class Extremes:
    """What samples have shown of a tensor.

    Attributes:
        tensor: its name.
        node: the model nodes that make it; "" for an input.
        largest: the greatest magnitude.
        small: which part of the numbers that are not 0 is below the normal numbers of float16 and loses bits, 0 to 1.
        around: names of what makes and reads it, which must be in float32 to spare it a cast.
    """

    tensor: str
    node: str
    largest: float
    small: float
    around: tuple[str, ...]

    @property
    def overflows(self) -> bool:
        """Whether float16 makes infinity of a number."""
        return not self.largest <= LARGEST

    def text(self) -> str:
        """One line."""
        made = f" of {self.node}" if self.node else ""
        what = f"reaches {self.largest:.6g}, and float16 holds {LARGEST:g}"
        if not self.overflows:
            what = (
                f"has {self.small:.0%} of its numbers below {_NORMAL:.3g}, where float16 loses bits"
            )
        return f"'{self.tensor}'{made} {what}"


def extremes_of(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    source: Any,
    *,
    overridable: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[Extremes]:
    """The extremes of every float32 tensor of a model, by the numpy reference, sample after sample.

    Args:
        model: in floating point.
        source: of samples, see `open_samples`.
        overridable: as `xcompile.compile` takes them.
        progress: told of each sample.

    Raises:
        CompileError: the model cannot be read, or the samples cannot be used (XC6009).
    """
    module = import_onnx(model, overridable=overridable)
    with module.context, ir.Location.unknown():
        refine_types(module, module.input_shapes())
        run_pipeline(module, parse_pipeline("@clean", PIPELINES), PassContext(host_target()))
        names = tensor_names(module)
        values = [v for v in names if dtype_of(v) == "f32" and const_of(v) is None]
        largest, small, counts = np.zeros((3, len(values)))
        samples, done = open_samples(source, input_specs(module)), 0
        for done, sample in enumerate(samples.samples, start=1):
            found = evaluate(module, _arrays(module, sample), values)
            for place, array in enumerate(found):
                magnitudes = np.abs(array)
                largest[place] = np.fmax(largest[place], magnitudes.max(initial=0))
                small[place] += ((magnitudes > 0) & (magnitudes < _NORMAL)).sum()
                counts[place] += (magnitudes > 0).sum()
            if progress is not None:
                progress("overflow", done, max(samples.total, done))
        if not done:
            raise CompileError("XC6009", "there are no samples to look for overflow with")
        return [
            Extremes(
                names[value], _node(value), float(largest[place]),
                float(small[place] / max(counts[place], 1)), _around(value, names),
            )
            for place, value in enumerate(values)
        ]  # fmt: skip


def rules_against_overflow(found: Sequence[Extremes]) -> tuple[tuple[str, str], ...]:
    """Rules of a `PrecisionMap` that keep in float32 what makes and reads each tensor that overflows."""
    around = dict.fromkeys(name for each in found if each.overflows for name in each.around)
    return tuple((glob.escape(name), "fp32") for name in around)


def _arrays(module: Module, sample: Any) -> list[np.ndarray]:
    names = module.input_names()
    if isinstance(sample, Mapping):
        return [np.asarray(sample[name]) for name in names]
    return [np.asarray(a) for a in ([sample] if isinstance(sample, np.ndarray) else sample)]


def _node(value: Value) -> str:
    op = maker(value)
    return "" if op is None else describe(op.location) or "?"


def _around(value: Value, names: Mapping[Value, str]) -> tuple[str, ...]:
    """The tensors that the makers and readers of a value give."""
    ops = [op for op in (maker(value), *map(view, users(value))) if op is not None]
    return tuple(dict.fromkeys(names[r] for op in ops for r in op.results if r in names))
