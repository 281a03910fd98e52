"""Models with parts that onnxruntime runs, because they have ops that are not supported.

The graph is cut where supported and unsupported nodes meet (`frontends/onnx/partition.py`); parts of supported nodes
are compiled like any model, the others are sessions of onnxruntime, and they run one after the other in this process,
handing numpy arrays on. Nothing of this can be saved as a library.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from xcompile.compiler.artifact import Artifact
from xcompile.compiler.engine import open_session
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.support.errors import UNSUPPORTED, CompileError
from xcompile.frontends.onnx.partition import Part, Partition
from xcompile.runtime.abi import TensorSpec
from xcompile.runtime.arena import Arena
from xcompile.runtime.arrays import Port, address_of, check_overlap
from xcompile.runtime.errors import RuntimeModelError, shorten
from xcompile.runtime.executable import Executable
from xcompile.runtime.native_library import default_threads

ENGINE = "onnxruntime"

_TRIED_SIZES = (3, 1, 32, 224)
"""Open sizes that a trial gives the value of, one after the other."""

_NUMPY_NAMES: Mapping[str, str] = {"float": "float32", "double": "float64"}

Compile = Callable[[bytes], CompiledModel]


@dataclass(frozen=True)
class Session:
    """A part that onnxruntime runs.

    Attributes:
        part: its nodes and tensors.
        session: onnxruntime's.
    """

    part: Part
    session: Any

    def run(self, known: dict[str, Any], outputs: Mapping[str, Any]) -> None:
        """Add the part's outputs to the tensors that are known; `outputs` are arrays of the caller to fill."""
        given = {name: known[name] for name in self.part.inputs}
        try:
            results = self.session.run(list(self.part.outputs), given)
        except Exception as error:
            raise RuntimeModelError(
                "XC5006", f"onnxruntime failed at {_named(self.part)}: {error}"
            ) from error
        known.update(zip(self.part.outputs, results, strict=True))


@dataclass(frozen=True)
class Native:
    """A part that is compiled.

    Attributes:
        part: its nodes and tensors.
        model: it, compiled.
    """

    part: Part
    model: CompiledModel

    def run(self, known: dict[str, Any], outputs: Mapping[str, Any]) -> None:
        """As `Session.run`; the caller's arrays are written in place."""
        given = {name: known[name] for name in self.part.inputs}
        own = {name: outputs[name] for name in self.part.outputs if name in outputs}
        known.update(self.model.executable.run(given, own or None))


class MixedModel(CompiledModel):
    """A model of which onnxruntime runs a part; as `CompiledModel`, but in this process only.

    Attributes:
        steps: what runs, in order.
    """

    def __init__(self, builder: "_Builder") -> None:
        partition, specs = builder.partition, builder.specs
        self.steps = tuple(builder.steps)
        self._inputs = tuple(specs[name] for name in partition.inputs)
        self._outputs = tuple(specs[name] for name in partition.outputs)
        self._ports = {spec.name: Port("input", spec) for spec in self._inputs}
        self._constants = builder.constants
        self._threads = builder.threads

    @property
    def artifact(self) -> Artifact:  # pyright: ignore[reportIncompatibleVariableOverride]
        """There is none.

        Raises:
            CompileError: XC7007.
        """
        raise _no_library(self.left)

    @property
    def executable(self) -> Executable:
        """There is none: a compiled model is more than this one.

        Raises:
            CompileError: XC7007.
        """
        raise _no_library(self.left)

    @property
    def left(self) -> tuple[str, ...]:
        """The names of the nodes that onnxruntime runs."""
        return tuple(n for s in self.steps if isinstance(s, Session) for n in s.part.nodes)

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        return self._inputs

    @property
    def required(self) -> tuple[TensorSpec, ...]:
        return self._inputs

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        return self._outputs

    def __repr__(self) -> str:
        return f"<MixedModel of {len(self.steps)} parts; onnxruntime runs {', '.join(self.left)}>"

    def __call__(self, *arrays: Any, **named: Any) -> np.ndarray | tuple[np.ndarray, ...]:
        if arrays and named:
            raise RuntimeModelError("XC5001", "inputs are given in order or by name, not both")
        results = tuple(self.run(named or arrays).values())
        return results[0] if len(results) == 1 else results

    def run(
        self,
        inputs: Mapping[str, Any] | Sequence[Any],
        outputs: Mapping[str, Any] | Sequence[Any] | None = None,
        arena: Arena | None = None,
    ) -> dict[str, np.ndarray]:
        """Run on inputs by name (or in order); the outputs by name.

        Arrays that are given for outputs are written by a compiled part in place, and copied to from another.

        Raises:
            RuntimeModelError: XC5001 to XC5006; what onnxruntime says names its nodes.
        """
        if arena is not None:
            raise RuntimeModelError(
                "XC5007", "a model that onnxruntime runs in part takes no arena"
            )
        names = [spec.name for spec in self._outputs]
        wanted = _by_name(outputs or {}, names, "output", "XC5005")
        known = self.tensors(inputs, wanted)
        for name, array in wanted.items():
            if known[name] is not array:
                Port("output", _spec_of(name, known[name])).writable(array, known[name].shape)
                np.copyto(array, known[name])
        kept = {*self._constants, *self._ports}  # arrays of the model or of the caller
        return {
            name: wanted[name]
            if name in wanted
            else known[name].copy()
            if name in kept
            else known[name]
            for name in names
        }

    def tensors(
        self, inputs: Mapping[str, Any] | Sequence[Any], outputs: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """All tensors that parts are given or give, by name; `outputs` are arrays of the caller to fill.

        Raises:
            RuntimeModelError: XC5001 to XC5006; what onnxruntime says names its nodes.
        """
        given = self._given(inputs)
        self._check_overlap(given, outputs or {})
        known = {**self._constants, **given}
        for step in self.steps:
            step.run(known, outputs or {})
        return known

    def save(self, path: str | PathLike[str]) -> None:
        """Refuse: a library has no onnxruntime.

        Raises:
            CompileError: XC7007.
        """
        raise _no_library(self.left)

    def report(self) -> str:
        """A line for each part: who runs it, and its nodes."""
        return "\n".join(
            f"{'compiled' if isinstance(step, Native) else ENGINE}: {', '.join(step.part.nodes)}"
            for step in self.steps
        )

    def _given(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        given = _by_name(inputs, list(self._ports), "input", "XC5001")
        missing = [name for name in self._ports if name not in given]
        if missing:
            raise RuntimeModelError("XC5001", f"the input '{shorten(missing[0])}' is missing")
        arrays = {name: self._ports[name].readable(value) for name, value in given.items()}
        for name, array in arrays.items():
            self._ports[name].check_dims(array.shape)
        return arrays

    def _check_overlap(self, given: Mapping[str, np.ndarray], outputs: Mapping[str, Any]) -> None:
        """Of whole runs: an input may be read by parts behind the one that writes an output.

        What is no contiguous array is refused where it would be written.
        """
        wanted = {
            spec: array
            for spec in self._outputs
            if isinstance(array := outputs.get(spec.name), np.ndarray) and array.flags.c_contiguous
        }
        ports = [*map(self._ports.__getitem__, given), *(Port("output", spec) for spec in wanted)]
        arrays = [*given.values(), *wanted.values()]
        check_overlap(ports, [*map(address_of, arrays)], [a.nbytes for a in arrays], len(given))


def compile_mixed(model: object, compile_part: Compile, *, threads: int | None) -> MixedModel:
    """Compile what is supported of a model, and leave the rest to onnxruntime.

    Args:
        model: a path, the bytes of a file, or a parsed model.
        compile_part: compiles the bytes of a model.
        threads: for onnxruntime.

    Raises:
        CompileError: XC1006 with the nodes that onnxruntime does not take either; XC6006 it is not installed.
    """
    partition = Partition(model)
    while True:
        builder = _Builder(partition, compile_part, threads or default_threads())
        try:
            builder.run()
        except CompileError as error:
            owner = partition.owner(error.node)
            if error.code not in UNSUPPORTED or owner is None or owner in partition.left:
                raise
            partition.left.add(owner)
        else:
            return MixedModel(builder)


class _Builder:
    """Makes the parts one after the other: what a part is given is known when those before it are made.

    Attributes:
        partition: the model.
        steps: the parts that are made.
        specs: of the tensors that are known.
        constants: outputs of the model that nothing computes.
        threads: what all of them run on.
    """

    def __init__(self, partition: Partition, compile_part: Compile, threads: int) -> None:
        self.partition = partition
        self.steps: list[Native | Session] = []
        self.specs: dict[str, TensorSpec] = {}
        self.constants = {
            name: value for name in partition.outputs if (value := partition.constant(name)) is not None
        }  # fmt: skip
        self._compile = compile_part
        self.threads = threads

    def run(self) -> None:
        """Make all parts.

        Raises:
            CompileError: see `compile_mixed`.
        """
        for name in self.partition.inputs:
            self._learn(name, self.partition.declared(name))
        for name, value in self.constants.items():
            self.specs[name] = _spec_of(name, value)
        for part in self.partition.parts():
            data = self.partition.model_of(part, self.specs)
            if part.native:
                made = self._compile(data)
                self.steps.append(Native(part, made))
                self.specs |= {spec.name: spec for spec in made.outputs}
            else:
                session = _session(part, data, self.threads)
                self.steps.append(Session(part, session))
                self._learn_outputs(part, session)

    def _learn_outputs(self, part: Part, session: Any) -> None:
        """What a session's outputs are: as the model declares, else as onnxruntime infers, else by a trial."""
        for output in session.get_outputs():
            spec = self.partition.declared(output.name) or _inferred(output)
            if spec is None:
                tried = self._tried(output.name)
                dims = tuple(f"{output.name}_dim{axis}" for axis in range(tried.ndim))
                spec = TensorSpec(output.name, tried.dtype.name, dims)
            self._learn(output.name, spec)

    def _learn(self, name: str, spec: TensorSpec | None) -> None:
        if spec is None:
            raise _not_known(name)
        self.specs[name] = spec

    def _tried(self, name: str) -> np.ndarray:
        """A tensor of a run of the parts so far on ones, each open size being the same number."""
        for size in _TRIED_SIZES:
            known: dict[str, Any] = {}
            for spec in map(self.specs.__getitem__, self.partition.inputs):
                shape = [size if d is None else d for d in spec.static_dims]
                known[spec.name] = np.ones(shape, Port("input", spec).dtype)
            try:
                for step in self.steps:
                    step.run(known, {})
            except RuntimeModelError:
                continue
            if isinstance(known[name], np.ndarray):
                return known[name]
        raise _not_known(name)


def _session(part: Part, data: bytes, threads: int | None) -> Any:
    try:
        return open_session(data, threads=threads or default_threads())
    except CompileError as error:
        if error.help is None:  # it is installed, and does not take the nodes
            raise CompileError("XC1006", f"{_named(part)}: {error.message}") from error
        raise


def _inferred(output: Any) -> TensorSpec | None:
    """What onnxruntime infers of an output; None where that is nothing, or no tensor."""
    if not output.type.startswith("tensor(") or not output.shape:  # [] is a scalar, or nothing
        return None
    name: str = output.name
    kind: str = output.type.removeprefix("tensor(").removesuffix(")")
    sizes = enumerate(output.shape)
    dims = tuple(str(size) if size is not None else f"{name}_dim{axis}" for axis, size in sizes)
    return TensorSpec(name, _NUMPY_NAMES.get(kind, kind), dims)


def _not_known(name: str) -> CompileError:
    return CompileError(
        "XC2010", f"the type and the rank of the tensor '{name}' are not known",
        help="declare them in the model's value_info",
    )  # fmt: skip


def _spec_of(name: str, array: np.ndarray) -> TensorSpec:
    return TensorSpec(name, array.dtype.name, tuple(map(str, array.shape)))


def _by_name(
    given: Mapping[str, Any] | Sequence[Any], names: Sequence[str], what: str, code: str
) -> dict[str, Any]:
    """Arrays by the names of inputs or outputs; those that are None are left out."""
    if isinstance(given, Mapping):
        unknown = next((name for name in given if name not in names), None)
        if unknown is not None:
            raise RuntimeModelError(code, f"the model has no {what} '{shorten(str(unknown))}'")
        return {name: value for name, value in given.items() if value is not None}
    if not isinstance(given, list | tuple):
        given = [given]
    if len(given) != len(names):
        raise RuntimeModelError(code, f"{len(given)} {what}s for a model of {len(names)}")
    return {n: value for n, value in zip(names, given, strict=True) if value is not None}


def _named(part: Part) -> str:
    """The nodes, for a message."""
    return f"node{'s' * (len(part.nodes) > 1)} {', '.join(repr(name) for name in part.nodes)}"


def _no_library(left: Sequence[str]) -> CompileError:
    return CompileError(
        "XC7007", f"onnxruntime runs a part of the model ({', '.join(left)}), which no library can hold",
        help="without --fallback, the error lists the ops that are not supported",
    )  # fmt: skip
