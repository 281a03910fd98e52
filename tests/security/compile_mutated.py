"""Compile and run mutated models that import: what they compute must be what the interpreter computes.

python -m tests.security.compile_mutated bytes|cases FIRST COUNT [STEP]

Every model ends in a refusal with a code or in right results. This is a process of its own: what crashes it, or takes
longer than a minute, is a failure. Models with tensors that are too large to compute in numpy are compiled, not run.
"""

import collections
import faulthandler
import itertools
import sys
from collections.abc import Iterator, Sequence

import ml_dtypes
import numpy as np

from tests.security.mutate_onnx import KINDS
from xcompile.compiler.driver import compile_module, worker_pool
from xcompile.compiler.ir.context import new_context
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.model import CompiledModel
from xcompile.compiler.numerics.compare import Allowed, largest, mismatch
from xcompile.compiler.numerics.samples import sample_inputs
from xcompile.compiler.numerics.tolerance import JUMPS
from xcompile.compiler.request import Request
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.options import Options
from xcompile.compiler.target.registry import parse_target
from xcompile.compiler.worker.pool import WorkerPool
from xcompile.dialects.nn.interpreter import evaluate, interpret
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.runtime.errors import RuntimeModelError

MOST_ELEMENTS = 1 << 20
"""Models with a larger tensor are not run."""

REFUSALS = ("XC4003", "XC4011")
"""Codes of the levels below the graph that a model may end with: too large for the memory, sizes that are data."""

SECONDS = 60

LENGTH = 256
"""The sums of these small models have fewer terms."""


def main(kind: str, first: int, count: int, step: int) -> None:
    """Compile every `step`-th model and print how many ended in which way."""
    models = KINDS[kind](first, count)
    outcomes: collections.Counter[str] = collections.Counter()
    request = Request(target=parse_target("cpu")[0], options=Options({"worker-timeout": 30}))
    with worker_pool(request.options) as pool:
        for name, data in itertools.islice(models, 0, None, step):
            print(name, file=sys.stderr, flush=True)
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            outcomes[outcome(name, data, request, pool)] += 1
    faulthandler.cancel_dump_traceback_later()
    print(*(f"{what} {outcomes[what]}" for what in ("refused", "compiled", "right")))


def outcome(name: str, data: bytes, request: Request, pool: WorkerPool) -> str:
    """ "refused", "compiled" (and not run, refused when run, or with numbers that overflow), or "right".

    Raises:
        AssertionError: the results are not those of the interpreter, or it has none.
    """
    try:
        module = import_onnx(data, context=new_context())
    except CompileError:
        return "refused"
    inputs, expected, why, allowed = None, None, None, Allowed(LENGTH, jumps(module))
    if is_small(module):
        inputs = sample_inputs(module)
        try:
            expected = interpret(module, inputs)
        except CompileError as error:
            why = error
    try:
        model = CompiledModel(compile_module(module, request, pool=pool), threads=1)
    except CompileError as error:
        if error.code.startswith("XC4") and error.code not in REFUSALS:
            raise AssertionError(f"{name}: {error}") from error
        return "refused"
    if inputs is None:
        return "compiled"
    try:
        got = list(model.executable.run(inputs).values())
    except RuntimeModelError:
        return "compiled"
    assert expected is not None, f"{name} runs; in numpy: {why}"
    for result, (a, b) in enumerate(zip(got, expected, strict=True)):
        difference = mismatch(np.asarray(a), b, allowed)
        if difference is not None and may_overflow(data, inputs):
            return "compiled"
        assert difference is None, f"{name}: result {result} {difference}"
    return "right"


def may_overflow(data: bytes, inputs: Sequence[np.ndarray]) -> bool:
    """Whether sums of values of the model may leave their type: the interpreter sums in float64."""
    module = import_onnx(data, context=new_context())
    values = [
        v
        for operation in operations(module)
        for v in operation.results
        if isinstance(v.type, ir.RankedTensorType)
    ]
    floats = [a for a in evaluate(module, inputs, values) if a.dtype.kind in "fV"]
    return any(largest(a) > float(ml_dtypes.finfo(a.dtype).max) / LENGTH for a in floats)


def operations(module: Module) -> Iterator[ir.Operation]:
    """The ops of `@main`."""
    for block in module.main.regions[0].blocks:
        yield from (operation.operation for operation in block.operations)


def jumps(module: Module) -> bool:
    """Whether an op's result may change a lot with a rounding of its operands."""
    return any(operation.name in JUMPS for operation in operations(module))


def is_small(module: Module) -> bool:
    """Whether every tensor of known size has few elements."""
    values = [v for operation in operations(module) for v in operation.results]
    values += list(module.main.regions[0].blocks[0].arguments)
    known = [ir.RankedTensorType(v.type) for v in values if isinstance(v.type, ir.RankedTensorType)]
    counts = [
        np.prod([1 if kind.is_dynamic_dim(i) else kind.get_dim_size(i) for i in range(kind.rank)], dtype=object)
        for kind in known
    ]  # fmt: skip
    return max(counts, default=0) <= MOST_ELEMENTS


if __name__ == "__main__":
    main(sys.argv[1], *map(int, [*sys.argv[2:], "1"][:3]))
