"""Running a model: arguments, memory, threads. The model is `fake_model.c`, loaded as plain code."""

from __future__ import annotations

import dataclasses
import gc
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.unit.runtime import fake_model
from tests.unit.runtime.fake_model import HALF_WEIGHTS, MANIFEST, expected, inputs
from xcompile.runtime.arena import Arena
from xcompile.runtime.arrays import address_of, numpy_dtype
from xcompile.runtime.errors import RuntimeModelError
from xcompile.runtime.executable import Executable, ModelEntry
from xcompile.runtime.native_library import Pool


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> ModelEntry:
    return fake_model.bare_entry(fake_model.bare_library(tmp_path_factory.mktemp("bare")))


@pytest.fixture
def model(entry: ModelEntry) -> Executable:
    return Executable(entry, MANIFEST, HALF_WEIGHTS.tobytes(), threads=2, poison=True)


def same(got: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> bool:
    """Whether two sets of outputs have the same bits."""
    return got.keys() == wanted.keys() and all(
        got[name].dtype == array.dtype and got[name].tobytes() == array.tobytes()
        for name, array in wanted.items()
    )


def refused(code: str, call: Callable[[], object]) -> str:
    """The message of the error with this code that the call must raise, which is one line."""
    with pytest.raises(RuntimeModelError) as caught:
        call()
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("n", [0, 1, 3, 8, 64, 1001])
def test_every_batch_size_gives_the_reference(model: Executable, n: int) -> None:
    data = inputs(n)
    result = model.run(data)
    assert result["y"].shape == (n, 4)
    assert result["total"].shape == (n,)
    assert same(result, expected(**data))


def test_inputs_come_by_name_in_order_or_as_arguments(model: Executable) -> None:
    data = inputs(5)
    wanted = expected(**data)
    assert same(model.run({"bias": data["bias"], "x": data["x"]}), wanted)
    assert same(model.run([data["x"], data["bias"]]), wanted)
    assert same(model(data["x"], data["bias"]), wanted)
    assert same(model(bias=data["bias"], x=data["x"]), wanted)


def test_the_signature_can_be_read(model: Executable) -> None:
    assert [str(spec) for spec in model.inputs] == ["float32[n, 4]", "float32[n, 4]"]
    assert [spec.name for spec in model.outputs] == ["y", "total"]
    assert model.output_shapes({"x": (7, 4), "bias": (7, 4)}) == {"y": (7, 4), "total": (7,)}
    assert model.required_bytes([(7, 4), (7, 4)]) == 128 + 2 * 64


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_have_the_same_bits_for_any_number_of_threads(
    entry: ModelEntry, threads: int
) -> None:
    data = inputs(1003)
    wanted = expected(**data)
    for pool in (None, Pool(threads)):
        model = Executable(entry, MANIFEST, HALF_WEIGHTS, threads=threads, pool=pool)
        for _ in range(50):
            assert same(model.run(data), wanted)


def test_eight_callers_of_one_model_do_not_disturb_each_other(entry: ModelEntry) -> None:
    model = Executable(entry, MANIFEST, HALF_WEIGHTS, threads=3, pool=Pool(3))
    failures: list[int] = []

    def call(seed: int) -> None:
        for n in range(1, 200):
            data = inputs(n % 40 + seed, seed)
            if not same(model.run(data), expected(**data)):
                failures.append(n)

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert failures == []
    assert len(model._frames) <= 8


def layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    """The same values in every layout that numpy knows."""
    n, k = array.shape
    unaligned = np.empty(array.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(n, k)
    unaligned[...] = array
    read_only = array.copy()
    read_only.flags.writeable = False
    doubled = np.zeros((2 * n, 2 * k), np.float32)
    doubled[::2, ::2] = array
    return {
        "fortran": np.asfortranarray(array),
        "transposed": array.T.copy().T,
        "strided": doubled[::2, ::2],
        "reversed": array[::-1, ::-1].copy()[::-1, ::-1],
        "big_endian": array.astype(">f4"),
        "unaligned": unaligned,
        "read_only": read_only,
        "subclass": array.view(np.matrix),
    }


LAYOUTS = tuple(layouts(inputs(2)["x"]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_an_input_means_its_values(model: Executable, layout: str) -> None:
    data = inputs(6)
    given = layouts(data["x"])[layout]
    assert same(model.run({"x": given, "bias": data["bias"]}), expected(**data))


def test_a_broadcast_input_means_its_values(model: Executable) -> None:
    row = np.arange(4, dtype=np.float32)
    data = {"x": np.broadcast_to(row, (9, 4)), "bias": inputs(9)["bias"]}
    assert same(model.run(data), expected(**data))


def test_contiguous_inputs_are_read_in_place(model: Executable) -> None:
    array = inputs(3)["x"]
    port = model._inputs[0]
    assert port.readable(array) is array
    read_only = layouts(array)["read_only"]
    assert port.readable(read_only) is read_only
    assert np.shares_memory(port.readable(memoryview(array)), array)


class Dlpack:
    """An array of another library, which can only speak DLPack."""

    def __init__(self, array: np.ndarray, device: int = 1) -> None:
        self._array = array
        self._device = device

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device, 0


def test_arrays_of_other_libraries_come_and_go_through_dlpack(model: Executable) -> None:
    data = inputs(3)
    result = model.run({"x": Dlpack(data["x"]), "bias": Dlpack(data["bias"])})
    assert same(result, expected(**data))
    assert np.shares_memory(np.from_dlpack(result["y"]), result["y"])


def test_an_array_on_a_device_is_refused(model: Executable) -> None:
    data = inputs(3)
    on_device = Dlpack(data["x"], device=2)
    assert "input 'x'" in refused("XC5001", lambda: model.run([on_device, data["bias"]]))


@pytest.mark.parametrize(
    ("x", "code", "message"),
    [
        (np.zeros((2, 4)), "XC5002", "input 'x': expected float32[n, 4], got float64[2, 4]"),
        (np.zeros((2, 4), "c8"), "XC5002", "got complex64[2, 4]"),
        ([[1.0, 2.0, 3.0, 4.0]], "XC5002", "got float64[1, 4]"),
        (np.zeros((2, 4), object), "XC5002", "got object[2, 4]"),
        (np.zeros((2, 4, 1), "f4"), "XC5003", "expected float32[n, 4], got float32[2, 4, 1]"),
        (np.zeros((2, 5), "f4"), "XC5003", "expected float32[n, 4], got float32[2, 5]"),
        (np.float32(1), "XC5003", "got float32[]"),
        (np.zeros((3, 4), "f4"), "XC5004", fake_model.CHECK_TEXT),
        (np.ma.masked_array(np.zeros((2, 4), "f4")), "XC5001", "masked"),
        ([[1.0], [2.0, 3.0]], "XC5001", "list cannot be read as an array"),
    ],
)
def test_a_wrong_input_is_named_in_one_line(
    model: Executable, x: object, code: str, message: str
) -> None:
    bias = np.zeros((2, 4), np.float32)
    assert message in refused(code, lambda: model.run({"x": x, "bias": bias}))


def test_missing_unknown_and_uncounted_inputs_are_refused(model: Executable) -> None:
    data = inputs(2)
    for given, message in [
        ({"x": data["x"]}, "input 'bias' is missing"),
        ({**data, "z\n": data["x"]}, "no input 'z\\n'"),
        ([data["x"]], "1 inputs for a model of 2"),
        (data["x"], "expected a mapping by name or a list, got ndarray"),
    ]:
        assert message in refused("XC5001", lambda given=given: model.run(given))


def test_a_check_that_fails_during_the_run_is_reported(model: Executable) -> None:
    data = inputs(2)
    data["x"][0, 0] = -12345
    assert "the first element of x is -12345" in refused("XC5006", lambda: model.run(data))


def test_a_run_lets_other_threads_of_the_interpreter_go_on(model: Executable) -> None:
    data = inputs(2)
    data["x"][0, :2] = -54321, 0  # the model waits until the second element is no longer 0
    finished: list[dict[str, np.ndarray]] = []
    running = threading.Event()

    def run() -> None:
        running.set()
        finished.append(model.run(data))

    caller = threading.Thread(target=run)
    caller.start()
    running.wait()
    time.sleep(0.1)
    assert finished == []
    data["x"][0, 1] = 1
    caller.join()
    assert len(finished) == 1


def test_outputs_are_written_into_the_arrays_of_the_caller(model: Executable) -> None:
    data = inputs(4)
    y, total = np.full((4, 4), np.nan, np.float32), np.full(4, np.nan, np.float32)
    result = model.run(data, outputs=[y, total])
    assert result["y"] is y
    assert result["total"] is total
    assert same(result, expected(**data))
    y[:] = np.nan
    result = model.run(data, outputs={"y": y})
    assert result["y"] is y
    assert same(result, expected(**data))


def test_outputs_that_cannot_be_written_are_refused(model: Executable) -> None:
    data = inputs(4)
    total = np.empty(4, np.float32)
    both = np.empty(20, np.float32)
    for y, message in [
        (layouts(data["x"])["read_only"], "writable"),
        (np.empty((4, 4), np.float32, order="F"), "C-contiguous"),
        (np.empty((4, 8), np.float32)[:, ::2], "C-contiguous"),
        (layouts(data["x"])["unaligned"], "aligned"),
        (np.empty((4, 4), ">f4"), "expected float32[4, 4], got >f4[4, 4]"),
        (np.empty((4, 4), np.float64), "got float64[4, 4]"),
        (np.empty((5, 4), np.float32), "got float32[5, 4]"),
        ([0.0], "got list"),
        (data["x"], "output 'y' overlaps input 'x'"),
        (data["bias"], "output 'y' overlaps input 'bias'"),
    ]:
        given = {"y": y, "total": total}
        assert message in refused("XC5005", lambda given=given: model.run(data, outputs=given))
    overlapping = [both[:16].reshape(4, 4), both[15:19]]
    assert "output 'total' overlaps output 'y'" in refused(
        "XC5005", lambda: model.run(data, outputs=overlapping)
    )
    neighbours = [both[:16].reshape(4, 4), both[16:]]
    assert same(model.run(data, outputs=neighbours), expected(**data))
    assert "no output 'z'" in refused("XC5005", lambda: model.run(data, outputs={"z": total}))
    assert "1 outputs for a model of 2" in refused(
        "XC5005", lambda: model.run(data, outputs=[total])
    )


def test_an_arena_of_the_caller_serves_several_models(entry: ModelEntry) -> None:
    models = [Executable(entry, MANIFEST, HALF_WEIGHTS, threads=t, poison=True) for t in (1, 3)]
    arena = Arena(max(model.required_bytes([(64, 4), (64, 4)]) for model in models))
    assert arena.address % 64 == 0
    data = inputs(64)
    for model in models * 3:
        assert same(model.run(data, arena=arena), expected(**data))
        assert same(model.run(data), expected(**data))


def test_an_arena_too_small_or_busy_is_refused(model: Executable) -> None:
    data = inputs(4)
    small = Arena(model.required_bytes([(4, 4), (4, 4)]) - 1)
    assert "needs 256" in refused("XC5007", lambda: model.run(data, arena=small))
    arena = Arena(256)
    arena.acquire(256)
    assert "busy" in refused("XC5007", lambda: model.run(data, arena=arena))
    arena.release()
    assert same(model.run(data, arena=arena), expected(**data))


def test_plans_and_memory_stay_bounded_when_shapes_vary(model: Executable) -> None:
    random = np.random.default_rng(1)
    for n in random.integers(0, 300, 500):
        data = inputs(int(n))
        assert same(model.run(data), expected(**data))
    assert len(model._plans) == 64
    assert len(model._frames) == 1


def test_memory_for_a_huge_run_is_refused_before_anything_is_allocated(model: Executable) -> None:
    shapes = [(1 << 61, 4), (1 << 61, 4)]
    assert "is too large" in refused("XC5003", lambda: model.required_bytes(shapes))
    negative = [(-1, 4), (-1, 4)]
    assert "got float32[-1, 4]" in refused("XC5003", lambda: model.required_bytes(negative))


def test_unaligned_weights_are_copied_and_wrong_ones_refused(entry: ModelEntry) -> None:
    block = np.zeros(17, np.uint8)
    block[1:] = np.frombuffer(HALF_WEIGHTS.tobytes(), np.uint8)
    data = inputs(3)
    assert same(Executable(entry, MANIFEST, block[1:]).run(data), expected(**data))
    assert "17 bytes" in refused("XC7002", lambda: Executable(entry, MANIFEST, block))


def test_thread_counts_out_of_range_are_refused(entry: ModelEntry) -> None:
    for threads in (0, -1, 257):
        refused(
            "XC5006",
            lambda threads=threads: Executable(entry, MANIFEST, HALF_WEIGHTS, threads=threads),
        )
        refused("XC5006", lambda threads=threads: Pool(threads))


def test_a_failed_initialization_is_reported(tmp_path: Path) -> None:
    source = tmp_path / "bad.c"
    source.write_text(
        "int prepare(void) {return 0;} int run(void) {return 0;} int init(void) {return -1;}"
    )
    library = tmp_path / "bad.so"
    fake_model.zig(
        "ld.lld",
        "-shared",
        str(fake_model.compile_c(source, tmp_path / "bad.o")),
        "-o",
        str(library),
    )
    code = fake_model.LoadedCode(library)
    entry = ModelEntry(code.address("prepare"), code.address("run"), code.address("init"), code)
    manifest = dataclasses.replace(MANIFEST, checks=("the weights are damaged",))
    assert "the weights are damaged" in refused(
        "XC5006", lambda: Executable(entry, manifest, HALF_WEIGHTS)
    )


@pytest.mark.parametrize(
    ("name", "size"),
    [("bool", 1), ("int64", 8), ("float16", 2), ("bfloat16", 2), ("int4", 1), ("float8_e5m2", 1)],
)
def test_element_types_have_numpy_types(name: str, size: int) -> None:
    dtype = numpy_dtype(name)
    assert dtype.itemsize == size
    assert str(dtype) == name


@pytest.mark.parametrize("dtype", ["uint8", "float32", "bool", "int64", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)])
@pytest.mark.parametrize("writable", [True, False])
def test_the_address_is_that_of_the_first_element(
    dtype: str, shape: tuple[int, ...], writable: bool
) -> None:
    array = np.zeros(shape, numpy_dtype(dtype))
    array.flags.writeable = writable
    assert address_of(array) == array.ctypes.data


def test_types_without_ml_dtypes_are_raw_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    assert numpy_dtype("bfloat16") == np.uint16
    assert numpy_dtype("float8_e4m3fn") == np.uint8
    assert numpy_dtype("int4") == np.uint8


def test_pools_end_with_their_last_user(entry: ModelEntry) -> None:
    before = threading_count()
    model = Executable(entry, MANIFEST, HALF_WEIGHTS, threads=4, pool=Pool(4))
    model.run(inputs(64))
    assert threading_count() == before + 3
    del model
    gc.collect()
    assert threading_count() == before


def threading_count() -> int:
    """The threads of this process, native ones too."""
    return len(list(Path("/proc/self/task").iterdir()))
