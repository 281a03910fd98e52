"""How long a model takes in another precision, predicted when it is compiled: `xcompile.predict`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from xcompile.compiler.api import make_request
from xcompile.compiler.artifact import Artifact
from xcompile.compiler.costs import cycles, features_of
from xcompile.compiler.driver import plan_module
from xcompile.compiler.request import Request
from xcompile.compiler.support.dims import symbols_of
from xcompile.compiler.support.precision_map import ALL_FLOAT
from xcompile.compiler.target.target import Target
from xcompile.frontends.onnx.importer import import_onnx

if TYPE_CHECKING:
    import onnx

_BATCH, _OTHER = 1, 64
"""What sizes are that the model leaves open and nobody gives: those of first axes, and others."""


@dataclass(frozen=True)
class Predicted:
    """A launch.

    Attributes:
        node: the model nodes that it computes.
        family: the kernel's family.
        arithmetic: what its products are of; "" when it has none.
        cycles: that it takes on one core.
    """

    node: str
    family: str
    arithmetic: str
    cycles: float


@dataclass(frozen=True)
class Prediction:
    """What a model is predicted to take.

    Attributes:
        target: what it is compiled for.
        rows: its launches, in the order of running.
        floating: those of the model in float32.
        sizes: what the sizes were taken for that the model leaves open.
    """

    target: str
    rows: tuple[Predicted, ...]
    floating: tuple[Predicted, ...]
    sizes: Mapping[str, int]

    @property
    def cycles(self) -> float:
        """The cycles of a run on one core."""
        return sum(row.cycles for row in self.rows)

    @property
    def speedup(self) -> float:
        """How many times as fast as the model in float32."""
        return sum(row.cycles for row in self.floating) / self.cycles

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        where = f", where {sizes}" if sizes else ""
        slow = sum(row.cycles for row in self.floating)
        return (
            f"predicted: {self.speedup:.2f} times as fast as in float32, {self.cycles / 1e6:.3g} instead of "
            f"{slow / 1e6:.3g} million cycles of a core{where}"
        )


def predict(
    model: "str | PathLike[str] | bytes | onnx.ModelProto",
    target: str | Target = "cpu-int8",
    *,
    sizes: Mapping[str, int] | None = None,
    floating: "str | PathLike[str] | bytes | onnx.ModelProto | None" = None,
    **arguments: Any,
) -> Prediction:
    """Predict how long a model takes on one core of a target, and how long in float32; nothing is compiled or run.

    Args:
        model: an ONNX model: a path, the bytes of a file, or a parsed `ModelProto`.
        target: with its precision.
        sizes: what sizes are that the model leaves open; 1 for first axes and 64 for others by default.
        floating: the model in float32, for one that says itself what is quantized.
        arguments: further ones of `xcompile.compile`: `calibration_table`, `keep_float`, `precisions`.

    Raises:
        CompileError: the model cannot be compiled.
    """
    request, _ = make_request(target, **arguments)
    one = replace(request, target=replace(request.target, cores=1))
    plain = replace(one, precisions=ALL_FLOAT, calibration="")
    return compare_plans(
        _plan(model, one), _plan(model if floating is None else floating, plain), one, sizes
    )


def compare_plans(
    artifact: Artifact, floating: Artifact, request: Request, sizes: Mapping[str, int] | None = None
) -> Prediction:
    """The prediction of a model and of itself in float32, planned for one core of the request's target."""
    known = _open_sizes(artifact) | dict(sizes or {})
    rows, others = (_rows(each, request.target, known) for each in (artifact, floating))
    used = {name: known[name] for name in _open_sizes(artifact)}
    return Prediction(request.target.name, tuple(rows), tuple(others), used)


def _plan(model: Any, request: Request) -> Artifact:
    artifact, _ = plan_module(import_onnx(model, overridable=request.overridable), request)
    return artifact


def _open_sizes(artifact: Artifact) -> dict[str, int]:
    """The sizes that a model leaves open, and what they are by default."""
    found: dict[str, int] = {}
    for shape in artifact.program.inputs:
        for axis, dim in enumerate(shape):
            for name in symbols_of(dim):
                found.setdefault(name, _BATCH if axis == 0 else _OTHER)
    return found


def _rows(artifact: Artifact, target: Target, sizes: Mapping[str, int]) -> list[Predicted]:
    shapes = [
        [dim if isinstance(dim, int) else sizes[symbols_of(dim)[0]] for dim in shape]
        for shape in artifact.program.inputs
    ]
    launches = artifact.program.launches
    features = features_of(artifact, target, shapes)
    facts = [artifact.kernels[launch.symbol] for launch in launches]
    return [
        Predicted(launch.node, fact.family, fact.arithmetic, cycles(each))
        for launch, fact, each in zip(launches, facts, features, strict=True)
    ]
