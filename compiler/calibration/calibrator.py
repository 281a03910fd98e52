"""Runs a float model on samples and remembers, in constant memory, what its tensors hold."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from xcompile.compiler.calibration.float_model import expose, plan_float_model
from xcompile.compiler.calibration.rounding import Rounding, check_rounding
from xcompile.compiler.driver import compile_module
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.quantize.equalize import equalize_channels
from xcompile.compiler.quantize.histogram import ChannelPeaks, ChannelSums, Histogram
from xcompile.compiler.quantize.names import digest_of
from xcompile.compiler.quantize.observers import observer_of
from xcompile.compiler.quantize.plan import plan_quantization
from xcompile.compiler.quantize.smooth import (
    Exponents,
    smooth_activations,
    smoothed_products,
    smoothing_exponents,
    weights_of_channels,
)
from xcompile.compiler.quantize.table import CalibrationTable, Observed, path_of, write_whole
from xcompile.compiler.request import Progress, Request
from xcompile.compiler.support.errors import CompileError
from xcompile.compiler.support.options import THREADS, Options
from xcompile.compiler.target.host import host_target
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.runtime.abi import TensorSpec

if TYPE_CHECKING:
    import onnx

    from xcompile.compiler.worker.pool import WorkerPool

Sample = Any
"""Inputs of a model: arrays by name, in order, or the one array of a model with one input."""

_PENDING = 1 << 17
"""Numbers of a tensor that are gathered before they are counted."""
_STATE_VERSION = 2


class _Tensor:
    """What is remembered of one tensor."""

    def __init__(self, channel_axis: int | None, smoothed: bool) -> None:
        self.histogram = Histogram()
        self.sums = ChannelSums()
        self.squares = ChannelSums()
        self.peaks = ChannelPeaks()
        self.channel_axis, self.smoothed = channel_axis, smoothed
        self._pending: list[np.ndarray] = []
        self._waiting = 0

    def add(self, array: np.ndarray) -> None:
        """Add the tensor of one sample, which is finite."""
        if self.channel_axis is not None and array.size:
            self.sums.add(array, self.channel_axis)
            if self.smoothed:
                self.squares.add(array * array, self.channel_axis)
                self.peaks.add(array, self.channel_axis)
        if array.size >= _PENDING:
            self.histogram.add(array)
            return
        self._pending.append(array.reshape(-1))
        self._waiting += array.size
        if self._waiting >= _PENDING:
            self.flush()

    def flush(self) -> None:
        """Count what has been gathered."""
        if self._pending:
            self.histogram.add(np.concatenate(self._pending))
            self._pending, self._waiting = [], 0


class Calibrator:
    """Observes the tensors of a model while it runs on samples.

        calibrator = Calibrator("model.onnx")
        for image in images:
            calibrator.observe(image)
        calibrator.table("mse").save("model.json")

    The model is compiled once, for this machine and in float32, behind the passes that clean it up, with every tensor
    that may be quantized as a result. Where the first size of all inputs is one symbol, the batch, samples of a batch
    run one by one. So tables are the same to the bit for any order of the samples and any batches, and memory does not
    grow with them.

    Args:
        model: an ONNX model in floating point: a path, the bytes of a file, or a parsed `ModelProto`.
        threads: to run on; all that the process may use by default.
        options: as `xcompile.compile` takes them.
        progress: called with what is being done, how much of it is done, and of how much.
        pool: worker processes to compile with.
        overridable: as `xcompile.compile` takes them; samples have them too.
        equalize: scale channels between convolutions first, so that their ranges are alike; it helps models with
            depthwise convolutions most.
        smooth: what `smoothing` of a calibrator of the same model gave: channels are divided by that first.
        rounding: "nearest", or "adaround": keep some inputs of products, so that tables round weights by them.

    Raises:
        CompileError: the model cannot be compiled, or has nothing that could be quantized (XC6009).

    Attributes:
        samples: how many have been observed.
        calls: how many calls of `observe` these were.
    """

    def __init__(
        self,
        model: "str | PathLike[str] | bytes | onnx.ModelProto",
        *,
        threads: int | None = None,
        options: Mapping[str, object] | None = None,
        progress: Progress | None = None,
        pool: "WorkerPool | None" = None,
        overridable: Sequence[str] = (),
        equalize: bool = False,
        smooth: Exponents | None = None,
        rounding: str = "nearest",
    ) -> None:
        check_rounding(rounding)
        given = Options(options)
        target = host_target()
        module = import_onnx(model, overridable=overridable)
        self.name, self.digest, self._equalized = module.name, digest_of(module), equalize
        self._smooth = {name: tuple(powers) for name, powers in (smooth or {}).items()}
        self._input_names = module.input_names()
        with module.context, ir.Location.unknown():
            shapes = module.input_shapes()
            plan = plan_float_model(module)
            smooth_activations(module, self._smooth)
            if equalize:
                equalize_channels(module)
            if self._smooth or equalize:
                plan = plan_quantization(module)
            firsts = {str(shape[0]) if shape else "" for shape in shapes}
            self._batched = len(firsts) == 1 and not any(t.isdigit() or not t for t in firsts)
            if not plan.tensors:
                raise CompileError("XC6009", "the model has no tensor that could be quantized")
            self._weights = {
                name: weights_of_channels(module, products)
                for name, value in plan.tensors.items()
                if (products := smoothed_products(value))
            }
            self._tensors = {
                name: _Tensor(plan.channel_axes.get(name), name in self._weights)
                for name in plan.tensors
            }
            self._rounding = Rounding(plan) if rounding == "adaround" else None
            expose(module, plan.tensors)
        request = Request(target, pipeline="@finish,@kernels", options=given)
        artifact = compile_module(module, request, progress, pool)
        self._executable = artifact.load(threads=threads or given[THREADS])
        self.samples = 0
        self.calls = 0

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, dtype and sizes of each input of the model."""
        return self._executable.inputs

    def observe(self, inputs: Sample) -> None:
        """Run the model on a sample, or on a batch of them, and observe its tensors.

        Raises:
            RuntimeModelError: the inputs do not fit the model.
            CompileError: XC6009, a tensor is NaN or infinite; nothing of that sample is kept.
        """
        for sample in self._split(self._by_name(inputs)):
            results = self._executable.run(sample)
            for name, array in results.items():
                if array.size and not np.isfinite(array.min() + array.max()):
                    raise CompileError(
                        "XC6009", f"sample {self.samples} makes the tensor '{name}' NaN or infinite",
                        help="leave the sample out, or look at what made it",
                    )  # fmt: skip
            for name, array in results.items():
                self._tensors[name].add(array)
            if self._rounding is not None:
                self._rounding.sketch.add(sample, results)
            self.samples += 1
        self.calls += 1

    def observe_all(
        self, samples: Iterable[Sample], *, total: int = 0, progress: Progress | None = None
    ) -> None:
        """Observe samples, telling `progress` of each: of `total`, 0 when that is not known."""
        for done, sample in enumerate(samples, start=1):
            self.observe(sample)
            if progress is not None:
                progress("calibration", done, max(total, done))

    def merge(self, other: "Calibrator") -> None:
        """Add what another calibrator of the same model has observed.

        Raises:
            CompileError: XC6009, it is of another model.
        """
        self._require(other.digest, "the other calibrator")
        for name, tensor in self._tensors.items():
            theirs = other._tensors[name]
            theirs.flush()
            tensor.histogram.merge(theirs.histogram)
            tensor.sums.merge(theirs.sums)
            tensor.squares.merge(theirs.squares)
            tensor.peaks.merge(theirs.peaks)
        if self._rounding is not None and other._rounding is not None:
            self._rounding.sketch.merge(other._rounding.sketch)
        self.samples += other.samples
        self.calls += other.calls

    def table(self, observer: str = "mse", *, keep_float: Sequence[str] = ()) -> CalibrationTable:
        """The calibration table of what has been observed.

        Args:
            observer: "min-max", "percentile" (or "percentile:99.9"), "entropy" or "mse".
            keep_float: globs of nodes that stay in floating point.

        Raises:
            CompileError: XC6005 there is no such observer, XC6009 there were no samples.
        """
        choose = observer_of(observer)
        if not self.samples:
            raise CompileError("XC6009", "there are no samples to calibrate with")
        tensors: dict[str, Observed] = {}
        for name, tensor in self._tensors.items():
            tensor.flush()
            tensors[name] = Observed(choose(tensor.histogram), tuple(tensor.sums.means().tolist()))
        return CalibrationTable(
            self.name,
            self.digest,
            observer,
            self.samples,
            tensors,
            tuple(keep_float),
            self._equalized,
            self._smooth,
            {} if self._rounding is None else self._rounding.rounded(tensors),
        )

    def smoothing(self, alpha: float = 0.5) -> dict[str, tuple[int, ...]]:
        """What channels should be divided by for matrix products, from what has been observed.

        Another calibrator that is made with it observes the smoothed model, and its table has it.

        Args:
            alpha: which part of the spread of channels goes to the weights, from 0 to 1.

        Returns:
            For tensors by name, the base-2 logarithms of the factors of their channels.

        Raises:
            CompileError: XC6005 alpha is no such number, XC6009 there were no samples.
        """
        if not 0 <= alpha <= 1:
            raise CompileError("XC6005", f"smoothing is a number from 0 to 1, not {alpha}")
        if not self.samples:
            raise CompileError("XC6009", "there are no samples to calibrate with")
        return {
            name: smoothing_exponents(seen.peaks.values, seen.squares.means(), weights, alpha)
            for name, weights in self._weights.items()
            if (seen := self._tensors[name]).peaks.values.size
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write what has been observed, so that `restore` can go on from there.

        Raises:
            CompileError: XC6009, the file cannot be written.
        """
        arrays: dict[str, np.ndarray] = {}
        sums: dict[str, Any] = {}
        for place, (name, tensor) in enumerate(self._tensors.items()):
            tensor.flush()
            sums[name] = [tensor.sums.state(), tensor.squares.state()]
            arrays[f"{place}.peaks"] = tensor.peaks.values
            for part, array in tensor.histogram.state().items():
                arrays[f"{place}.{part}"] = array
        if self._rounding is not None:
            kept = self._rounding.sketch.state()
            arrays |= {f"sketch.{part}": array for part, array in kept.items()}
        head = {
            "version": _STATE_VERSION,
            "digest": self.digest,
            "equalized": self._equalized,
            "smooth": self._smooth,
            "rounding": self._rounding is not None,
            "samples": self.samples,
            "calls": self.calls,
            "sums": sums,
        }
        written = io.BytesIO()
        arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        np.savez(written, allow_pickle=False, **arrays)
        write_whole(path_of(path), written.getvalue())

    def restore(self, path: str | PathLike[str]) -> None:
        """Go on from what `save` wrote; what has been observed before is forgotten.

        Raises:
            CompileError: XC6009, the file cannot be read or is of another model.
        """
        path = path_of(path)
        try:
            with np.load(path, allow_pickle=False) as stored:
                head = json.loads(stored["head"].tobytes())
                if head["version"] != _STATE_VERSION:
                    raise ValueError("it is of another version")
                if head["equalized"] != self._equalized:
                    raise ValueError("its channels were equalized, or these are")
                if head["smooth"] != {name: list(p) for name, p in self._smooth.items()}:
                    raise ValueError("its channels were smoothed in another way")
                if head["rounding"] != (self._rounding is not None):
                    raise ValueError("it keeps inputs of products, or these are to be kept")
                self._require(head["digest"], str(path))
                found = [
                    (
                        Histogram.restored(
                            {p: stored[f"{i}.{p}"] for p in ("bins", "counts", "limits")}
                        ),
                        [ChannelSums.restored(part) for part in head["sums"][name]],
                        ChannelPeaks(stored[f"{i}.peaks"]),
                    )
                    for i, name in enumerate(self._tensors)
                ]
                samples, calls = int(head["samples"]), int(head["calls"])
                if self._rounding is not None:
                    parts = [p for p in stored.files if p.startswith("sketch.")]
                    self._rounding.sketch.restore({p[7:]: stored[p] for p in parts})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CompileError(
                "XC6009", f"the calibration state {path} cannot be read: {error}"
            ) from error
        for tensor, (histogram, parts, peaks) in zip(self._tensors.values(), found, strict=True):
            tensor.flush()
            tensor.histogram, tensor.peaks = histogram, peaks
            tensor.sums, tensor.squares = parts
        self.samples, self.calls = samples, calls

    def _require(self, digest: str, what: str) -> None:
        if digest != self.digest:
            raise CompileError("XC6009", f"{what} is of another model than '{self.name}'")

    def _by_name(self, inputs: Sample) -> dict[str, np.ndarray]:
        if isinstance(inputs, Mapping):
            return {str(name): np.asarray(array) for name, array in inputs.items()}
        if isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if len(inputs) != len(self._input_names):
            raise CompileError(
                "XC6009", f"a sample has {len(inputs)} arrays; the model's inputs are"
                f" {', '.join(self._input_names)}",
            )  # fmt: skip
        return {n: np.asarray(a) for n, a in zip(self._input_names, inputs, strict=True)}

    def _split(self, inputs: Mapping[str, np.ndarray]) -> Iterator[Mapping[str, np.ndarray]]:
        """The samples of a batch."""
        sizes = {array.shape[0] if array.ndim else 1 for array in inputs.values()}
        if not self._batched or len(sizes) != 1:
            yield inputs
            return
        for i in range(sizes.pop()):
            yield {name: array[i : i + 1] for name, array in inputs.items()}
