"""Recurrent layers: nn.rnn, nn.gru and nn.lstm.

Shapes, with T steps, B sequences, I inputs, H hidden elements, D directions (2 when bidirectional) and
G gates (rnn 1, gru 3, lstm 4): x [T, B, I], w [D, G·H, I], r [D, G·H, H], bias [D, 2·G·H] (those of w,
then those of r), lengths [B], states [D, B, H].

Without w a layer is the recurrent part alone: x [T, B, D·G·H] holds the products of the inputs with w and all biases
that are added to them, and bias [D, G·H] is that of r, where it has to be apart.

With r_scale [D, G·H] r is of int8, and a row of it times a state is multiplied by the row's scale. With
`quantize_state` too, what r multiplies is uint8 over its own range and 0, each sequence by itself in each step, as ONNX
DynamicQuantizeLinear says, and the sums are exact integers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from xcompile.compiler.ir.op import Operand, Result
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.base import NnOp, Shape, Sizes, dtype_of, nn, rank_of
from xcompile.dialects.nn.numeric import rounded
from xcompile.dialects.nn.precision import widened

DIRECTIONS = ("forward", "reverse", "bidirectional")
State = tuple[np.ndarray, ...]


def _sigmoid(x: np.ndarray, a: float, b: float) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS: dict[str, Callable[[np.ndarray, float, float], np.ndarray]] = {
    "relu": lambda x, a, b: np.maximum(x, 0),
    "tanh": lambda x, a, b: np.tanh(x),
    "sigmoid": _sigmoid,
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "thresholdedrelu": lambda x, a, b: np.where(x > a, x, 0),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
    "elu": lambda x, a, b: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.logaddexp(x, 0),
}
"""Functions of x and two parameters, by ONNX's name in lower case."""


@dataclass(frozen=True)
class _Recurrence:
    """The weights of a state of one direction: r [G·H, H], or its codes and the scales of their rows."""

    r: np.ndarray
    scales: np.ndarray | None
    quantize_state: bool

    def times(self, h: np.ndarray) -> np.ndarray:
        """What r gives of the states [B, H] of some sequences."""
        if self.scales is None:
            return h @ self.r.T
        if not self.quantize_state:
            return h @ self.r.T * self.scales
        codes, steps = _quantized(h)
        return codes @ self.r.T * (steps * self.scales)


def _quantized(h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows as whole numbers, from which their zero point is subtracted, and a step for each."""
    near = h.astype(np.float32)
    low, high = (f(near, axis=1, keepdims=True, initial=0) for f in (np.min, np.max))
    step = (high - low) / np.float32(255)
    step = np.where(step == 0, np.float32(1), step)
    zero = np.clip(np.rint(-low / step), 0, 255)
    return widened(np.clip(np.rint(near / step) + zero, 0, 255) - zero), widened(step)


class Recurrent(NnOp):
    """What recurrent layers share.

    `activations` holds a name for each function of each direction, `alphas` and `betas` their parameters (0
    where a function has none). Sums are clipped to ±`clip` before they are activated. A sequence ends after
    its length: later results are 0, and its last state is the one at its end. A reverse direction
    starts there; its results lie at the places of their inputs.
    """

    x: Operand
    w: Operand | None
    r: Operand
    r_scale: Operand | None
    bias: Operand | None
    lengths: Operand | None
    initial_h: Operand | None
    hidden: int
    activations: tuple[str, ...]
    alphas: tuple[float, ...]
    betas: tuple[float, ...]
    direction: str = "forward"
    clip: float | None = None
    quantize_state: bool = False

    GATES: ClassVar[int] = 1
    FUNCTIONS: ClassVar[int] = 1
    """Activation functions a direction."""

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def verify(self) -> None:
        ranks = {"x": 3, "w": 3, "r": 3, "r_scale": 2, "bias": 2, "lengths": 1, "initial_h": 3}
        for name, value in self.operand_fields().items():
            rank = ranks.get(name, 2 if name == "peephole" else 3)
            if value is not None and rank_of(value) != rank:
                raise self.error(
                    "XC2003", f"the {name} of {self.NAME} has rank {rank_of(value)}, not {rank}"
                )
        if self.direction not in DIRECTIONS:
            raise self.error("XC2007", f"'{self.direction}' is none of {', '.join(DIRECTIONS)}")
        if not 1 <= self.hidden < 2**31:
            raise self.error("XC2007", f"{self.NAME} with {self.hidden} hidden elements")
        count = self.directions * self.FUNCTIONS
        if {len(self.activations), len(self.alphas), len(self.betas)} != {count}:
            raise self.error(
                "XC2007", f"{self.NAME} needs {count} activations and parameters of each"
            )
        scaled = self.r_scale is not None
        if scaled != (dtype_of(self.r) == "i8") or (scaled and dtype_of(self.x) != "f32"):
            raise self.error("XC2001", f"{self.NAME} of {dtype_of(self.x)} and {dtype_of(self.r)}")
        if self.quantize_state and not scaled:
            raise self.error("XC2007", f"{self.NAME} quantizes its state for an r without a scale")
        unknown = [name for name in self.activations if name not in ACTIVATIONS]
        if unknown:
            raise self.error("XC2007", f"there is no activation '{unknown[0]}'")

    def dtypes(self) -> Sequence[str]:
        return [dtype_of(self.x)] * len(self.results)

    def infer(self, sizes: Sizes) -> Sequence[Shape]:
        steps, batch, inputs = sizes.shape(self.x)
        directions, hidden = self.directions, self.hidden
        rows = self.GATES * hidden
        if self.w is None:
            sizes.equal(inputs, directions * rows, f"the sizes of {self.NAME}'s products")
        expected: dict[str, Shape] = {
            "w": (directions, rows, inputs),
            "r": (directions, rows, hidden),
            "r_scale": (directions, rows),
            "bias": (directions, rows if self.w is None else 2 * rows),
            "lengths": (batch,),
            "initial_h": (directions, batch, hidden),
            "initial_c": (directions, batch, hidden),
            "peephole": (directions, 3 * hidden),
        }
        for name, value in self.operand_fields().items():
            if name != "x" and value is not None:
                for have, want in zip(sizes.shape(value), expected[name], strict=True):
                    sizes.equal(have, want, f"the sizes of {self.NAME}'s {name}")
        state = (directions, batch, hidden)
        return [(steps, directions, batch, hidden), *[state] * (len(self.results) - 1)]

    # -- reference ------------------------------------------------------------------------------

    def step(
        self, direction: int, gates: np.ndarray, state: State, r: "_Recurrence", bias: np.ndarray
    ) -> State:
        """The state after one step; `gates` is x·wᵀ and the bias of w, `bias` that of r."""
        raise NotImplementedError

    def activate(self, direction: int, function: int, x: np.ndarray) -> np.ndarray:
        """One of the layer's functions of a direction."""
        at = direction * self.FUNCTIONS + function
        if self.clip is not None:
            x = np.clip(x, -self.clip, self.clip)
        with np.errstate(over="ignore"):
            return ACTIVATIONS[self.activations[at]](x, self.alphas[at], self.betas[at])

    def evaluate(
        self,
        x: np.ndarray,
        w: np.ndarray | None,
        r: np.ndarray,
        r_scale: np.ndarray | None,
        bias: np.ndarray | None,
        lengths: np.ndarray | None,
        states: Sequence[np.ndarray | None],
    ) -> tuple[np.ndarray, ...]:
        """All results, each direction by itself."""
        steps, batch = x.shape[:2]
        counts = np.full(batch, steps) if lengths is None else lengths.astype(np.int64)
        if batch and not 0 <= counts.min() <= counts.max() <= steps:
            raise CompileError("XC2011", f"a sequence length is outside 0 to {steps}")
        y = np.zeros((steps, self.directions, batch, self.hidden))
        last = [np.zeros((self.directions, batch, self.hidden)) for _ in states]
        for d in range(self.directions):
            gates, ours = self._gates(d, x, w, bias)
            scales = None if r_scale is None else widened(r_scale[d])
            times_r = _Recurrence(widened(r[d]), scales, self.quantize_state)
            state: State = tuple(
                np.zeros((batch, self.hidden)) if s is None else widened(s[d]) for s in states
            )
            backward = self.direction == "reverse" or d == 1
            for t in range(steps):
                live = (t < counts)[:, None]
                place = np.maximum(counts - 1 - t, 0) if backward else np.full(batch, t)
                new = self.step(d, gates[place, np.arange(batch)], state, times_r, ours)
                state = tuple(np.where(live, n, s) for n, s in zip(new, state, strict=True))
                here = np.flatnonzero(live)
                y[place[here], d, here] = state[0][here]
            for whole, part in zip(last, state, strict=True):
                whole[d] = part
        return tuple(rounded(part, x.dtype) for part in (y, *last))

    def _gates(
        self, direction: int, x: np.ndarray, w: np.ndarray | None, bias: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The products with the inputs and their bias, and what is added to those with the state."""
        rows = self.GATES * self.hidden
        given = np.zeros(0) if bias is None else widened(bias[direction])
        if w is None:
            first = direction * rows
            return widened(x)[:, :, first : first + rows], given if given.size else np.zeros(rows)
        given = given if given.size else np.zeros(2 * rows)
        return widened(x) @ widened(w[direction]).T + given[:rows], given[rows:]


@nn.op("rnn")
class Rnn(Recurrent):
    """`h' = f(w·x + r·h + biases)`. ONNX RNN."""

    y: Result
    last_h: Result

    def step(
        self, direction: int, gates: np.ndarray, state: State, r: "_Recurrence", bias: np.ndarray
    ) -> State:
        return (self.activate(direction, 0, gates + r.times(state[0]) + bias),)

    def reference(
        self,
        x: np.ndarray,
        w: np.ndarray | None,
        r: np.ndarray,
        r_scale: np.ndarray | None,
        bias: np.ndarray | None,
        lengths: np.ndarray | None,
        initial_h: np.ndarray | None,
    ) -> tuple[np.ndarray, ...]:
        return self.evaluate(x, w, r, r_scale, bias, lengths, [initial_h])


@nn.op("gru")
class Gru(Recurrent):
    """Gates z (update), r (reset), h: `h' = (1 - z)·g(…) + z·h`. ONNX GRU.

    With `linear_before_reset` the reset gate multiplies `r·h + bias` instead of h.
    """

    linear_before_reset: bool = False
    y: Result
    last_h: Result

    GATES: ClassVar[int] = 3
    FUNCTIONS: ClassVar[int] = 2

    def step(
        self, direction: int, gates: np.ndarray, state: State, r: "_Recurrence", bias: np.ndarray
    ) -> State:
        (h,), n = state, self.hidden
        update, reset = np.split(
            gates[:, : 2 * n] + r.times(h)[:, : 2 * n] + bias[: 2 * n], 2, axis=1
        )
        z, s = self.activate(direction, 0, update), self.activate(direction, 0, reset)
        if self.linear_before_reset:
            inner = s * (r.times(h)[:, 2 * n :] + bias[2 * n :])
        else:
            inner = r.times(s * h)[:, 2 * n :] + bias[2 * n :]
        return ((1 - z) * self.activate(direction, 1, gates[:, 2 * n :] + inner) + z * h,)

    def reference(
        self,
        x: np.ndarray,
        w: np.ndarray | None,
        r: np.ndarray,
        r_scale: np.ndarray | None,
        bias: np.ndarray | None,
        lengths: np.ndarray | None,
        initial_h: np.ndarray | None,
    ) -> tuple[np.ndarray, ...]:
        return self.evaluate(x, w, r, r_scale, bias, lengths, [initial_h])


@nn.op("lstm")
class Lstm(Recurrent):
    """Gates i (input), o (output), f (forget), c: `c' = f·c + i·g(…)`, `h' = o·h(c')`. ONNX LSTM.

    `peephole` [D, 3·H] holds the weights of the cell in the gates i, o and f. With `input_forget` f is 1 - i.
    """

    initial_c: Operand | None
    peephole: Operand | None
    input_forget: bool = False
    y: Result
    last_h: Result
    last_c: Result

    GATES: ClassVar[int] = 4
    FUNCTIONS: ClassVar[int] = 3

    def step(
        self, direction: int, gates: np.ndarray, state: State, r: "_Recurrence", bias: np.ndarray
    ) -> State:
        (h, c), n = state, self.hidden
        i, o, f, cell = np.split(gates + r.times(h) + bias[: 4 * n], 4, axis=1)
        peep = bias[4 * n :]
        i = self.activate(direction, 0, i + peep[:n] * c)
        f = 1 - i if self.input_forget else self.activate(direction, 0, f + peep[2 * n :] * c)
        c = f * c + i * self.activate(direction, 1, cell)
        o = self.activate(direction, 0, o + peep[n : 2 * n] * c)
        return o * self.activate(direction, 2, c), c

    def reference(
        self,
        x: np.ndarray,
        w: np.ndarray | None,
        r: np.ndarray,
        r_scale: np.ndarray | None,
        bias: np.ndarray | None,
        lengths: np.ndarray | None,
        initial_h: np.ndarray | None,
        initial_c: np.ndarray | None,
        peephole: np.ndarray | None,
    ) -> tuple[np.ndarray, ...]:
        rows, directions = (8 if w is not None else 4) * self.hidden, self.directions
        both = np.zeros((directions, rows)) if bias is None else widened(bias)
        peep = np.zeros((directions, 3 * self.hidden)) if peephole is None else widened(peephole)
        return self.evaluate(
            x, w, r, r_scale, np.concatenate([both, peep], axis=1), lengths, [initial_h, initial_c]
        )
