"""Arguments to run a model on when nobody gives any."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES, is_float
from xcompile.compiler.ir.module import Module
from xcompile.compiler.support.dims import evaluate, symbols_of
from xcompile.dialects.nn.base import dtype_of

DEFAULT_SIZE = 3
"""What a size is that the model leaves open."""

LARGER_SIZES = (16, 64, 320)
"""What sizes of other axes than the first are when the model does not run on small ones."""


def sample_inputs(
    module: Module, *, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> list[np.ndarray]:
    """Arguments for `@main`: standard normal floats, integers of 0 and 1; defaults where there are some.

    Args:
        module: a module of the nn level.
        sizes: the sizes that the model leaves open, by their symbols; 3 where they are missing.
        seed: of the numbers.
    """
    random = np.random.default_rng(seed)
    arrays: list[np.ndarray] = []
    arguments = module.main.regions[0].blocks[0].arguments
    inputs = dict(zip(module.input_names(), module.input_shapes(), strict=True))
    known = {
        str(d): size
        for name, array in module.defaults.items()
        for d, size in zip(inputs[name], array.shape, strict=True)
    } | dict(sizes or {})
    for argument, (name, dims) in zip(arguments, inputs.items(), strict=True):
        names = {symbol: DEFAULT_SIZE for d in dims for symbol in symbols_of(d)}
        shape = tuple(evaluate(d, {**names, **known}) for d in dims)
        if name in module.defaults and module.defaults[name].shape == shape:
            arrays.append(module.defaults[name])
            continue
        dtype = dtype_of(argument)
        arrays.append(sample(random, shape, DTYPES[dtype], floating=is_float(dtype)))
    return arrays


def sample(
    random: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any], *, floating: bool
) -> np.ndarray:
    """An argument: standard normal numbers where it is of floats, else 0 and 1, which most axes have as indices.

    Args:
        random: where the numbers come from.
        shape: of the argument.
        dtype: its elements.
        floating: whether these are floats; numpy does not know those of 16 and 8 bits as such.
    """
    numbers = random.standard_normal(shape) if floating else random.integers(0, 2, shape)
    return np.asarray(numbers).astype(dtype)


def larger_samples(module: Module) -> Iterator[list[np.ndarray]]:
    """Sample inputs with open sizes of 3 and then larger; those of first axes, which are batches, stay 3."""
    shapes = module.input_shapes()
    batches = {name for shape in shapes for d in shape[:1] for name in symbols_of(d)}
    others = {name for shape in shapes for d in shape[1:] for name in symbols_of(d)} - batches
    yield sample_inputs(module)
    for size in LARGER_SIZES if others else ():
        yield sample_inputs(module, sizes=dict.fromkeys(others, size))
