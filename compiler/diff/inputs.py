"""The inputs that a model is compared on."""

from collections.abc import Mapping, Sequence

import numpy as np

from xcompile.compiler.ir.module import Module
from xcompile.compiler.numerics.samples import sample_inputs
from xcompile.compiler.support.dims import Dim
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import numpy_dtype

Given = Mapping[str, np.ndarray] | Sequence[np.ndarray]
"""Arrays by name, or in order."""


def complete_inputs(module: Module, given: Given) -> list[np.ndarray]:
    """One array an input: what is given, and samples for the rest, of sizes that fit.

    Raises:
        CompileError: XC5001 for inputs that the model does not have, XC5003 for shapes that it does not take.
    """
    names = module.input_names()
    if not isinstance(given, Mapping):
        if len(given) > len(names):
            raise CompileError("XC5001", f"{len(given)} inputs for a model of {len(names)}")
        given = dict(zip(names, given, strict=False))
    unknown = [name for name in given if name not in names]
    if unknown:
        raise CompileError(
            "XC5001", f"no input '{unknown[0]}'", help=f"the inputs are {', '.join(names)}"
        )
    sizes: dict[str, int] = {}
    arguments = module.main.regions[0].blocks[0].arguments
    arrays: dict[str, np.ndarray] = {}
    for name, value, shape in zip(names, arguments, module.input_shapes(), strict=True):
        if name in given:
            arrays[name] = np.asarray(given[name]).astype(numpy_dtype(value), copy=False)
            _bind(name, shape, arrays[name], sizes)
    samples = sample_inputs(module, sizes=sizes)
    return [arrays.get(name, sample) for name, sample in zip(names, samples, strict=True)]


def _bind(name: str, shape: Sequence[Dim], array: np.ndarray, sizes: dict[str, int]) -> None:
    """Learn what symbols are from the shape of an array."""
    fits = array.ndim == len(shape) and all(
        not isinstance(d, int) or d == n for d, n in zip(shape, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(map(str, shape))
        raise CompileError(
            "XC5003", f"the input '{name}' has the shape {list(array.shape)}, not [{wanted}]"
        )
    sizes.update(
        {str(d): n for d, n in zip(shape, array.shape, strict=True) if not isinstance(d, int)}
    )
