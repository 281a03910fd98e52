"""The cases of the ONNX backend suite: small models with inputs and expected outputs.

The onnx package ships the node cases as Python modules (`onnx/backend/test/case/node`) which make the models
when they are loaded, in a few seconds, and others, exported from PyTorch or written by hand, as files.
"""

import functools
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
from onnx.backend.test.loader import load_model_tests


@dataclass(frozen=True)
class NodeCase:
    """One model and what it computes.

    Attributes:
        name: the case's name, such as "test_conv_with_strides_padding".
        model: the model.
        data: pairs of input and expected output arrays (or lists and None for sequences and optional values).
        rtol: relative tolerance that the suite asks for.
        atol: absolute tolerance that the suite asks for.
    """

    name: str
    model: onnx.ModelProto
    data: list[tuple[list[object], list[object]]]
    rtol: float
    atol: float

    @property
    def ops(self) -> set[str]:
        """The op types, with their domain when it is not the default one."""
        return {f"{n.domain}.{n.op_type}" if n.domain else n.op_type for n in self.model.graph.node}


@functools.cache
def node_cases() -> tuple[NodeCase, ...]:
    """All node cases, by name."""
    np.random.seed(0)  # the cases draw inputs while they are made
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load_model_tests(kind="node")
    cases = [
        NodeCase(c.name, c.model, _stated(c.model, _arrays(c.data_sets)), c.rtol, c.atol)
        for c in loaded
    ]
    return tuple(sorted(cases, key=lambda case: case.name))


def _stated(model: onnx.ModelProto, data: list[tuple[list[object], list[object]]]) -> object:
    """The data, where casts of floats to integers of two and four bits keep the low bits of the whole number.

    ONNX leaves open what becomes of numbers that do not fit; the cases hold what numpy's extension types give, which
    is the low bits or 0, as their version has it.
    """
    if {node.op_type for node in model.graph.node} - {"Cast", "CastLike"}:
        return data
    return [(given, [_low_bits(given[0], y) for y in made]) for given, made in data]


def _low_bits(given: object, made: object) -> object:
    floats = isinstance(given, np.ndarray) and given.dtype in (np.float16, np.float32)
    if not floats or not isinstance(made, np.ndarray) or made.dtype.name not in SMALL_INTEGERS:
        return made
    return np.trunc(given.astype(np.float64)).astype(np.int64).astype(made.dtype)


SMALL_INTEGERS = ("int2", "uint2", "int4", "uint4")


def _arrays(data: object) -> object:
    """The data with tensor messages, which cases of rarer types have, as arrays."""
    if isinstance(data, onnx.TensorProto):
        return onnx.numpy_helper.to_array(data)
    return [_arrays(part) for part in data] if isinstance(data, list | tuple) else data


STORED = ("simple", "pytorch-converted", "pytorch-operator")
"""The kinds of cases that are files."""


@functools.cache
def stored_cases() -> tuple[NodeCase, ...]:
    """All cases that are files, by name."""
    loaded = [case for kind in STORED for case in load_model_tests(kind=kind)]
    cases = [
        NodeCase(c.name, onnx.load(Path(c.model_dir) / "model.onnx"), _stored(c), c.rtol, c.atol)
        for c in loaded
    ]
    return tuple(sorted(cases, key=lambda case: case.name))


def _stored(case: object) -> list[tuple[list[object], list[object]]]:
    """The arrays of a case's folder; those of other types than tensors are None."""
    found: list[tuple[list[object], list[object]]] = []
    for folder in sorted(Path(case.model_dir).glob("test_data_set_*")):  # type: ignore[attr-defined]
        found.append((_arrays_of(folder, "input"), _arrays_of(folder, "output")))
    return found


def _arrays_of(folder: Path, kind: str) -> list[object]:
    files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda f: int(f.stem.split("_")[1]))
    return [onnx.numpy_helper.to_array(onnx.load_tensor(str(f))) for f in files]
