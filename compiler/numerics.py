"""Checks passes by numbers: the reference interpreter runs the model after each pass (`--verify-numerics`).

request = Request(target, instruments=(check_numerics(module),))
"""

from collections.abc import Mapping, Sequence

import numpy as np

from xcompile.compiler.ir.dtypes import DTYPES, is_float
from xcompile.compiler.ir.instruments import CheckNumerics
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.rewrite import walk
from xcompile.compiler.support.dims import evaluate, symbols_of
from xcompile.dialects.nn.base import NnOp, dtype_of
from xcompile.dialects.nn.interpreter import interpret

DEFAULT_SIZE = 3
"""What a size is that the model leaves open."""


def sample_inputs(
    module: Module, *, sizes: Mapping[str, int] | None = None, seed: int = 0
) -> list[np.ndarray]:
    """Arguments for `@main`: standard normal floats, integers of 0 and 1.

    Args:
        module: a module of the nn level.
        sizes: the sizes that the model leaves open, by their symbols; 3 where they are missing.
        seed: of the numbers.
    """
    random = np.random.default_rng(seed)
    arrays: list[np.ndarray] = []
    arguments = module.main.regions[0].blocks[0].arguments
    for argument, dims in zip(arguments, module.input_shapes(), strict=True):
        names = {name: DEFAULT_SIZE for d in dims for name in symbols_of(d)}
        shape = [evaluate(d, {**names, **(sizes or {})}) for d in dims]
        dtype = dtype_of(argument)
        numbers = random.standard_normal(shape) if is_float(dtype) else random.integers(0, 2, shape)
        arrays.append(np.asarray(numbers).astype(DTYPES[dtype]))
    return arrays


def check_numerics(
    module: Module, inputs: Sequence[np.ndarray] | None = None, *, tolerance: float = 1e-3
) -> CheckNumerics:
    """An instrument that compares what the model computes before the first and after each pass.

    Modules with ops of other levels than nn are not evaluated.

    Args:
        module: the model that the passes will change.
        inputs: its arguments; `sample_inputs` when None.
        tolerance: how far floats may be apart, relative to the largest expected magnitude of an output.
            Other types must be equal.
    """
    arguments = sample_inputs(module) if inputs is None else list(inputs)

    def results(changed: Module) -> list[np.ndarray] | None:
        return interpret(changed, arguments) if _is_graph(changed) else None

    def difference(got: list[np.ndarray], wanted: list[np.ndarray]) -> str | None:
        for position, (a, b) in enumerate(zip(got, wanted, strict=True)):
            wrong = _difference(a, b, tolerance)
            if wrong is not None:
                return f"output {position} {wrong}"
        return None

    return CheckNumerics(results, difference)


def _is_graph(module: Module) -> bool:
    return all(
        operation.name.startswith("func.") or isinstance(view(operation), NnOp)
        for operation in walk(module)
    )


def _difference(got: np.ndarray, wanted: np.ndarray, tolerance: float) -> str | None:
    """What is wrong with an output; None when it is right."""
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return f"is {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind in "biu":
        return None if np.array_equal(got, wanted) else "differs"
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if same.all():
        return None
    scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    with np.errstate(invalid="ignore"):
        worst = float(np.where(same, 0.0, np.abs(a - b)).max())
    if worst <= tolerance * max(scale, 1e-30):
        return None
    return f"differs by {worst:.3g} where the largest magnitude is {scale:.3g}"
