"""Smoothing: part of the spread of an activation's channels is moved into the weights that multiply them.

Channels of transformers differ by orders of magnitude, and one scale for all of them leaves small ones few steps. An
activation is divided by a factor for each channel and the rows of the weights are multiplied by it: max|x|^α over
max|w|^(1-α), after Xiao et al., SmoothQuant, 2022. Factors are powers of two, so the float model computes the same
bits. What divides is put into the constants of what makes the activation where that is linear, else it is an op.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.op import Op, Value, view
from xcompile.compiler.ir.rewrite import has_one_use, maker, users
from xcompile.compiler.quantize.names import tensor_names
from xcompile.compiler.quantize.observers import LEVELS
from xcompile.compiler.quantize.weights import MOST
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import dtype_of, rank_of
from xcompile.dialects.nn.binary import Add, Mul
from xcompile.dialects.nn.const import Const, const_of
from xcompile.dialects.nn.matmul import MatMul
from xcompile.dialects.nn.norm import LayerNorm, RmsNorm
from xcompile.dialects.nn.unary import Relu

_MOST = 20
"""Factors are between 2⁻²⁰ and 2²⁰."""

Exponents = Mapping[str, Sequence[int]]
"""For tensors by name: the base-2 logarithm of what each channel, along the last axis, is divided by."""


def smoothing_exponents(
    peaks: np.ndarray, squares: np.ndarray, weights: np.ndarray, alpha: float
) -> tuple[int, ...]:
    """The exponents of an activation's channels.

    Where weights are quantized worse than activations get better, which happens when the channels that are large have
    large weights too, nothing is divided.

    Args:
        peaks: the greatest magnitude of each channel, float [k].
        squares: the mean square of each channel, float [k].
        weights: what each channel is multiplied by, float [k, m].
        alpha: how much of the spread goes to the weights: 0 none, 1 all of it.

    Returns:
        Integers of which the greatest is 0 where channels differ; 0 for channels of zeros.
    """
    most = np.abs(weights).max(axis=1, initial=0)
    nothing = np.zeros(len(peaks), np.int64)
    usable = (peaks > 0) & (most > 0) & np.isfinite(peaks) & np.isfinite(most)
    if not usable.any():
        return tuple(nothing.tolist())
    wanted = np.zeros(len(peaks))
    wanted[usable] = alpha * np.log2(peaks[usable]) - (1 - alpha) * np.log2(most[usable])
    wanted[usable] -= wanted[usable].max()
    chosen = np.clip(np.rint(wanted), -_MOST, _MOST).astype(np.int64)
    before, behind = (_noise(peaks, squares, weights, powers) for powers in (nothing, chosen))
    return tuple((chosen if behind < before else nothing).tolist())


def _noise(
    peaks: np.ndarray, squares: np.ndarray, weights: np.ndarray, powers: np.ndarray
) -> float:
    """How much noise 8 bits make of smoothed activations and weights, in the sums of the products.

    Steps are those of the greatest magnitudes, and errors are spread evenly over them.
    """
    factors = np.exp2(powers.astype(np.float64))
    scaled = weights * factors[:, np.newaxis]
    step = 2 * float((peaks / factors).max()) / LEVELS
    steps = np.abs(scaled).max(axis=0) / MOST
    of_inputs = step**2 * float((scaled**2).sum())
    of_weights = float((steps**2).sum()) * float((squares / factors**2).sum())
    return of_inputs + of_weights


def smoothed_products(value: Value) -> list[MatMul]:
    """The matrix products that multiply a float32 value, row by row, by constant float32 weights."""
    found: list[MatMul] = []
    for operation in dict.fromkeys(users(value)):
        op = view(operation)
        if not isinstance(op, MatMul) or op.a != value or op.transpose_a or rank_of(op.b) != 2:
            continue
        if const_of(op.b) is not None and dtype_of(op.b) == "f32" == dtype_of(value):
            found.append(op)
    return found


def weights_of_channels(module: Module, products: Sequence[MatMul]) -> np.ndarray:
    """The weights that multiply each channel of the products' input: float32 [channels, all columns]."""
    return np.concatenate([_rows(module, p).astype(np.float32) for p in products], axis=1)


def smooth_activations(module: Module, exponents: Exponents) -> dict[str, str]:
    """Divide activations and multiply weights; in the module's context.

    Returns:
        For each tensor that was smoothed, where the division is: "folded" or "multiplied".

    Raises:
        CompileError: XC6009, a tensor has another number of channels.
    """
    if not exponents:
        return {}
    values = {name: value for value, name in tensor_names(module).items()}
    done: dict[str, str] = {}
    for name, powers in exponents.items():
        products = smoothed_products(values[name]) if name in values else []
        if not products or not any(powers):
            continue
        if len(powers) != _rows(module, products[0]).shape[0]:
            raise CompileError("XC6009", f"the table has {len(powers)} channels of '{name}'")
        done[name] = _smooth(module, values[name], products, np.exp2(np.array(powers)))
    return done


def _smooth(module: Module, value: Value, products: list[MatMul], factors: np.ndarray) -> str:
    only = len(users(value)) == len(products)
    where = "folded"
    if not (only and _divide(module, value, 1 / factors)):
        where = "multiplied"
        owner = value.owner
        at = isinstance(owner, ir.Block)
        point = ir.InsertionPoint.at_block_begin(owner) if at else ir.InsertionPoint.after(owner)
        with point, ir.Location.unknown() if at else owner.location:
            divided = Mul.create(a=value, b=_constant(module, 1 / factors))
        for product in products:
            product.operation.operands[0] = divided.y
    for product in products:
        rows = _rows(module, product) * factors[:, np.newaxis]
        with ir.InsertionPoint(product.operation), product.location:
            weights = rows.T if product.transpose_b else rows
            product.operation.operands[1] = _constant(module, weights)
    return where


def _divide(module: Module, value: Value, parts: np.ndarray) -> bool:
    """Multiply channels of a value by changing constants of what makes it, if that can be done.

    Args:
        module: of the value.
        value: all of whose users want it multiplied.
        parts: of the channels, along the last axis.
    """
    op = maker(value)
    if ir.RankedTensorType(value.type).shape[-1:] != [len(parts)]:
        return False  # one column, which is broadcast
    if not isinstance(op, Add | LayerNorm | MatMul | Mul | Relu | RmsNorm):
        return False
    places = _constants_of(op)
    scaled = [_scaled(module, op, place, parts) for place in places]
    arrays = [array for array in scaled if array is not None]
    if len(arrays) < len(places) or not (places or isinstance(op, Relu)):
        return False
    if isinstance(op, Add | Relu):
        (x,) = [v for place, v in enumerate(op.operands) if place not in places]
        if not has_one_use(x) or not _divide(module, x, parts):
            return False
    with ir.InsertionPoint(op.operation), op.location:
        for place, array in zip(places, arrays, strict=True):
            op.operation.operands[place] = _constant(module, array)
    return True


def _constants_of(op: Op) -> list[int]:
    """Which operands the result is proportional to, for an `Add` together with the other one."""
    if isinstance(op, LayerNorm | RmsNorm):
        return [place for place in (1, 2) if place < len(op.operands)]
    if isinstance(op, MatMul):
        return [1] if rank_of(op.b) == 2 else []
    return [place for place, v in enumerate(op.operands) if const_of(v) is not None][:1]


def _scaled(module: Module, op: Op, place: int, parts: np.ndarray) -> np.ndarray | None:
    """A constant operand multiplied along the channels of the result, float32.

    None where it is no constant of float32, or float32 does not hold the products.
    """
    made = const_of(op.operands[place])
    if made is None or dtype_of(made.y) != "f32":
        return None
    array = made.array(module.weights).astype(np.float64)
    along = parts[:, np.newaxis] if isinstance(op, MatMul) and op.transpose_b else parts
    with np.errstate(over="ignore"):
        scaled = (array * along).astype(np.float32)
    return scaled if np.isfinite(scaled).all() else None


def _rows(module: Module, product: MatMul) -> np.ndarray:
    """The weights of a product, a row for each channel of the input, in float64."""
    made = const_of(product.b)
    assert made is not None
    weights = made.array(module.weights).astype(np.float64)
    return weights.T if product.transpose_b else weights


def _constant(module: Module, array: np.ndarray) -> Value:
    return Const.from_array(array.astype(np.float32), module.weights).y
