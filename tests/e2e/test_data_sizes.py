"""Models in which the size of a value depends on the values of a tensor."""

import ctypes
import gc
import resource
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import xcompile
from tests.unit.runtime.c_interface import CModel, Tensor
from xcompile.runtime import library
from xcompile.runtime.arena import Arena
from xcompile.runtime.errors import RuntimeModelError

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def i64(*values):
    return np.array(values, np.int64)


def model(nodes, inputs, outputs, **constants):
    """A model of nodes; inputs and outputs are (name, type, sizes)."""
    infos = [
        [helper.make_tensor_value_info(*port) for port in ports] for ports in (inputs, outputs)
    ]
    fixed = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "g", *infos, fixed)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def one_node(op, inputs, rank, *, outputs=1, dtype=FLOAT, attributes=None, **constants):
    names = [name for name, *_ in inputs] + list(constants)
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name="node", **(attributes or {}))
    return model([node], inputs, [(y, dtype, [None] * rank) for y in results], **constants)


NODE_X = ("x", FLOAT, ["a", "b", "c"])
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def nonzero_chain():
    """The elements of x that are not zero, twice: gathered, doubled, joined with themselves."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"], name="where"),
        helper.make_node("Transpose", ["at"], ["rows"]),
        helper.make_node("GatherND", ["x", "rows"], ["found"]),
        helper.make_node("Add", ["found", "found"], ["twice"]),
        helper.make_node("Concat", ["found", "twice"], ["y"], axis=0),
        helper.make_node("Shape", ["y"], ["n"]),
    ]
    return model(nodes, [("x", FLOAT, ["a", "b"])], [("y", FLOAT, ["k"]), ("n", INT64, [1])])


@pytest.fixture(scope="module")
def chain():
    return xcompile.compile(nonzero_chain(), threads=2)


@pytest.mark.parametrize(
    ("shape", "expected"), [((4, 6), (4, 6)), ((-1, 12), (2, 12)), ((0, -1), (2, 12)), ((24, 1), (24, 1))]
)  # fmt: skip
def test_reshape(shape, expected):
    run = _compiled("Reshape", lambda: one_node("Reshape", [NODE_X, ("s", INT64, [2])], 2))
    np.testing.assert_array_equal(run([X, i64(*shape)])["y0"], X.reshape(expected))


@pytest.mark.parametrize(
    "shape", [(-1, -1), (5, 5), (-2, 12), (2**62, 2**62), (-(2**63), 1), (0, 0)]
)
def test_a_shape_that_does_not_fit_is_an_error_of_the_run(shape):
    run = _compiled("Reshape", lambda: one_node("Reshape", [NODE_X, ("s", INT64, [2])], 2))
    with pytest.raises(RuntimeModelError, match=r"XC5006 .*(node 'node'|too large)"):
        run([X, i64(*shape)])


def test_a_size_of_zero_that_copies_no_axis_is_an_error_of_the_run():
    run = _compiled(
        "Reshape3", lambda: one_node("Reshape", [("x", FLOAT, ["n"]), ("s", INT64, [2])], 2)
    )
    x = np.zeros(0, np.float32)
    assert run([x, i64(0, 3)])["y0"].shape == (0, 3)
    with pytest.raises(
        RuntimeModelError, match="size 0 at axis 1 copies an axis that is not there"
    ):
        run([x, i64(3, 0)])


def test_squeeze_without_axes_wants_a_size_of_one_stated():
    """The rank of the result is part of the compiled model."""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    open_size = xcompile.compile(one_node("Squeeze", [("x", FLOAT, ["n", 3])], 1))
    np.testing.assert_array_equal(open_size.run({"x": x})["y0"], x)
    with pytest.raises(RuntimeModelError, match="compile the model with that size stated"):
        open_size.run({"x": x[:1]})
    stated = xcompile.compile(one_node("Squeeze", [("x", FLOAT, [1, 3])], 1))
    np.testing.assert_array_equal(stated.run({"x": x[:1]})["y0"], x[0])


@pytest.mark.parametrize("start", [0, 2, -1, -5, 9, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("end", [0, 3, -1, -5, 9, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("step", [1, -1, 2, -3])
def test_slice(start, end, step):
    run = _compiled(
        f"Slice{step}",
        lambda: one_node(
            "Slice", [NODE_X, ("s", INT64, [1]), ("e", INT64, [1])], 3, axes=i64(2), steps=i64(step)
        ),
    )
    y = run([X, i64(start), i64(end)])["y0"]
    np.testing.assert_array_equal(y, X[:, :, _slice(4, start, end, step)])


def _slice(n, start, end, step):
    """ONNX's slice of n elements as Python's."""
    start, end = (v + n if v < 0 else v for v in (start, end))
    low, high = (0, n) if step > 0 else (-1, n - 1)
    start, end = min(max(start, 0), high), min(max(end, low), high)
    return slice(start, None if end < 0 else end, step) if (end - start) * step > 0 else slice(0)


SIZES = {
    "Expand": (one_node, ("Expand", [("x", FLOAT, [3, 1]), ("s", INT64, [3])], 3)),
    "ConstantOfShape": (one_node, ("ConstantOfShape", [("s", INT64, [2])], 2)),
    "Tile": (one_node, ("Tile", [NODE_X, ("s", INT64, [3])], 3)),
    "Pad": (one_node, ("Pad", [NODE_X, ("s", INT64, [6])], 3)),
}


def _run_of(name):
    make, arguments = SIZES[name]
    return _compiled(name, lambda: make(*arguments))


def test_sizes_of_fills_tiles_and_pads():
    column = X[0, :, :1]
    np.testing.assert_array_equal(
        _run_of("Expand")([column, i64(2, 1, 5)])["y0"], np.broadcast_to(column, (2, 3, 5))
    )
    assert _run_of("ConstantOfShape")([i64(3, 0)])["y0"].shape == (3, 0)
    np.testing.assert_array_equal(_run_of("Tile")([X, i64(2, 1, 3)])["y0"], np.tile(X, (2, 1, 3)))
    padded = _run_of("Pad")([X, i64(0, 1, -2, 3, 0, 1)])["y0"]
    np.testing.assert_array_equal(padded, np.pad(X[:, :, 2:], ((0, 3), (1, 0), (0, 1))))


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("Expand", [X[0, :, :1], i64(2, 2, 5)]),
        ("Expand", [X[0, :, :1], i64(-2, 1, 5)]),
        ("ConstantOfShape", [i64(3, -1)]),
        ("ConstantOfShape", [i64(2**62, 2**62)]),
        ("ConstantOfShape", [i64(2**45, 2)]),
        ("Tile", [X, i64(1, -1, 1)]),
        ("Tile", [X, i64(2**40, 2**40, 1)]),
        ("Pad", [X, i64(0, 0, -9, 0, 0, 0)]),
        ("Pad", [X, i64(2**62, 0, 0, 2**62, 0, 0)]),
    ],
)
def test_hostile_sizes_are_errors_of_the_run(name, inputs):
    with pytest.raises(RuntimeModelError, match="XC5006"):
        _run_of(name)(inputs)


@pytest.mark.parametrize("bounds", [(0, 5, 1), (3, 20, 4), (9, -1, -2), (5, 5, 1), (5, 1, 1)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_range(bounds, dtype):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ports = [(name, kind, []) for name in ("start", "limit", "delta")]
    run = _compiled(f"Range{kind}", lambda: one_node("Range", ports, 1, dtype=kind))
    y = run([np.array(v, dtype) for v in bounds])["y0"]
    np.testing.assert_array_equal(y, np.arange(*bounds, dtype=dtype))


def test_a_range_without_a_step_or_with_too_many_numbers_is_an_error():
    ports = [(name, INT64, []) for name in ("start", "limit", "delta")]
    run = _compiled(f"Range{INT64}", lambda: one_node("Range", ports, 1, dtype=INT64))
    for bounds in ((0, 5, 0), (0, 2**62, 1)):
        with pytest.raises(RuntimeModelError, match="XC5006"):
            run([np.array(v, np.int64) for v in bounds])


def test_topk_takes_as_many_as_the_run_says():
    ports = [("x", FLOAT, ["a", "b"]), ("k", INT64, [1])]
    run = _compiled("TopK", lambda: one_node("TopK", ports, 2, outputs=2))
    for k in (0, 2, 4):
        np.testing.assert_array_equal(run([X[0], i64(k)])["y0"], X[0, :, ::-1][:, :k])
    for k in (-1, 5, 2**62):
        with pytest.raises(RuntimeModelError, match="XC5006"):
            run([X[0], i64(k)])


@pytest.mark.parametrize("axis", [None, 0, 1, 2])
def test_compress(axis):
    attributes = {} if axis is None else {"axis": axis}
    ports, rank = [NODE_X, ("c", BOOL, ["k"])], 1 if axis is None else 3
    run = _compiled(
        f"Compress{axis}", lambda: one_node("Compress", ports, rank, attributes=attributes)
    )
    for condition in ([1, 0], [0, 1], [0, 0], [1]):
        chosen = np.array(condition, np.bool_)
        np.testing.assert_array_equal(run([X, chosen])["y0"], np.compress(chosen, X, axis))


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_unique_sorted(axis):
    attributes = {} if axis is None else {"axis": axis}
    outputs = [("y", FLOAT, [None] * (1 if axis is None else 2))]
    outputs += [(name, INT64, [None]) for name in ("first", "inverse", "counts")]
    node = helper.make_node("Unique", ["x"], [name for name, *_ in outputs], sorted=1, **attributes)
    run = _compiled(f"Unique{axis}", lambda: model([node], [("x", FLOAT, ["a", "b"])], outputs))
    random = np.random.default_rng(0)
    for shape in ((4, 3), (1, 1), (37, 5)):
        x = random.integers(0, 4, shape).astype(np.float32)
        wanted = np.unique(x, True, True, True, axis)
        for got, array in zip(run([x]).values(), wanted, strict=True):
            np.testing.assert_array_equal(got, array.reshape(got.shape))


def test_unique_in_order_of_first_occurrence():
    names = ["y", "first", "inverse", "counts"]
    node = helper.make_node("Unique", ["x"], names, sorted=0)
    outputs = [("y", FLOAT, [None]), *((name, INT64, [None]) for name in names[1:])]
    run = _compiled("Unique-", lambda: model([node], [("x", FLOAT, ["a"])], outputs))
    y, first, inverse, counts = run([np.float32([2, 1, np.nan, 2, np.nan, 0])]).values()
    np.testing.assert_array_equal(y, np.float32([2, 1, np.nan, 0]))
    assert [a.tolist() for a in (first, inverse, counts)] == [
        [0, 1, 2, 5], [0, 1, 2, 0, 2, 3], [2, 1, 2, 1]
    ]  # fmt: skip


BAD_BUFFER = 7
_COMPILED = {}


def _compiled(key, make):
    if key not in _COMPILED:
        _COMPILED[key] = xcompile.compile(make(), threads=2).executable.run
    return _COMPILED[key]


# -- a chain of them, however it is run -----------------------------------------------------------


def expected(x):
    found = x[np.nonzero(x)]
    return np.concatenate([found, found + found])


def sparse(seed, shape=(9, 7)):
    random = np.random.default_rng(seed)
    return (random.random(shape) * (random.random(shape) < 0.4)).astype(np.float32)


@pytest.mark.parametrize("shape", [(9, 7), (1, 1), (0, 3), (200, 300)])
def test_a_chain_of_values_of_such_sizes(chain, shape):
    x = sparse(1, shape)
    results = chain.executable.run([x])
    np.testing.assert_array_equal(results["y"], expected(x))
    assert results["n"].tolist() == [2 * np.count_nonzero(x)]


def test_threads_and_poisoned_memory_give_the_same_bits():
    made = xcompile.compile(nonzero_chain())
    x = sparse(2, (300, 200))
    for threads in (1, 2, 7):
        executable = made.artifact.load(threads=threads, poison=True)
        np.testing.assert_array_equal(executable.run([x])["y"], expected(x))


def test_the_shapes_before_a_run_say_what_depends_on_data(chain):
    assert chain.executable.output_shapes([(9, 7)]) == {"y": (-1,), "n": (1,)}


def test_a_given_output_must_have_the_size_that_comes_out(chain):
    x = np.float32([[1, 0], [0, 3]])
    y = np.zeros(4, np.float32)
    assert chain.executable.run([x], {"y": y})["y"] is y
    assert y.tolist() == [1, 3, 2, 6]
    with pytest.raises(RuntimeModelError, match=r"XC5005 output 'y': expected float32\[4\]"):
        chain.executable.run([x], {"y": np.zeros(5, np.float32)})


def test_an_arena_of_the_caller_serves(chain):
    arena = Arena(chain.executable.required_bytes([(9, 7)]))
    for seed in range(3):
        x = sparse(seed)
        np.testing.assert_array_equal(chain.executable.run([x], arena=arena)["y"], expected(x))


def test_callers_at_once_have_memory_of_their_own(chain):
    wrong = []

    def work(seed):
        for step in range(50):
            x = sparse(seed * 100 + step, (seed + 3, 5))
            if not np.array_equal(chain.executable.run([x])["y"], expected(x)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_run_that_fails_leaves_nothing_behind():
    node = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Reshape", ["at", "s"], ["y"], name="fit"),
    ]
    made = model(node, [("x", FLOAT, ["n"]), ("s", INT64, [2])], [("y", INT64, [None, None])])
    run = xcompile.compile(made).executable.run
    x = np.float32([1, 0, 2, 3])
    for _ in range(100):
        with pytest.raises(RuntimeModelError, match="'fit'"):
            run([x, i64(2, 2)])
        assert run([x, i64(3, 1)])["y"].tolist() == [[0], [2], [3]]


def test_memory_stays_flat_over_runs_of_changing_sizes(chain):
    random = np.random.default_rng(3)
    arrays = [sparse(i, tuple(random.integers(1, 60, 2))) for i in range(200)]

    def runs(count):
        for step in range(count):
            chain.executable.run([arrays[step % len(arrays)]])
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = runs(1000)
    assert runs(9000) - before < 4096  # kB


def test_a_saved_library_gives_the_same(chain, tmp_path):
    chain.save(tmp_path / "m.so")
    loaded = library.load(tmp_path / "m.so")
    x = sparse(4)
    np.testing.assert_array_equal(loaded.run([x])["y"], expected(x))
    assert loaded.outputs[0].static_dims == (None,)


def test_a_c_program_gives_memory_or_takes_it(chain, tmp_path):
    chain.save(tmp_path / "m.so")
    c_model = CModel(ctypes.CDLL(str(tmp_path / "m.so")), "model")
    x = sparse(5)
    wanted, n = expected(x), np.zeros(1, np.int64)
    y = np.zeros(len(wanted), np.float32)
    given, counted = Tensor.of(y), Tensor.of(n)
    assert c_model.run([Tensor.of(x)], [given, counted]) == 0
    np.testing.assert_array_equal(y, wanted)
    short = Tensor.of(y[:-1])
    outputs = (Tensor * 2)(short, counted)
    assert c_model.run_arrays([Tensor.of(x)], outputs) == BAD_BUFFER
    assert outputs[0].sizes() == [len(wanted)]
    outputs[0].data = None
    assert c_model.run_arrays([Tensor.of(x)], outputs) == 0
    made = np.frombuffer(ctypes.string_at(outputs[0].data, outputs[0].bytes), np.float32)
    np.testing.assert_array_equal(made, wanted)
    c_model.functions["release"](ctypes.c_void_p(outputs[0].data))
    c_model.destroy()


def test_the_model_file_loads_and_checks():
    onnx.checker.check_model(nonzero_chain())


def kept_and_shaped(shape: str, *, branch: bool) -> onnx.ModelProto:
    """The kept elements of x in a shape, as an output; in a branch of an If, where that is asked."""
    nodes = [
        helper.make_node("Compress", ["x", "c"], ["kept"], axis=0),
        helper.make_node("Reshape", ["kept", shape], ["y"], name="shaped"),
    ]
    inputs = [("x", FLOAT, ["n"]), ("c", BOOL, ["n"]), ("sizes", INT64, [2])]
    if branch:
        then = helper.make_graph(nodes, "then", [], [helper.make_empty_tensor_value_info("y")])
        other = helper.make_node("Reshape", ["x", "flat"], ["z"])
        graph = helper.make_graph([other], "other", [], [helper.make_empty_tensor_value_info("z")])
        nodes = [helper.make_node("If", ["take"], ["y"], then_branch=then, else_branch=graph)]
        inputs.append(("take", BOOL, []))
    return model(nodes, inputs, [("y", FLOAT, None)], two=i64(2, 2), flat=i64(1, -1))


@pytest.mark.parametrize("branch", [False, True])
@pytest.mark.parametrize("shape", ["two", "sizes"])
def test_an_output_of_known_size_may_lie_in_memory_whose_size_data_say(shape, branch):
    compiled = xcompile.compile(
        kept_and_shaped(shape, branch=branch), options={"verify-each": True}
    )
    given = [np.arange(5, dtype=np.float32), np.array([1, 1, 0, 1, 1], bool), i64(2, 2)]
    (y,) = compiled.run([*given, *[np.array(True)] * branch]).values()
    np.testing.assert_array_equal(y, np.array([[0, 1], [3, 4]], np.float32), strict=True)
    with pytest.raises(RuntimeModelError, match="shaped"):
        compiled.run([given[0], np.ones(5, bool), given[2], *[np.array(True)] * branch])


def test_an_output_whose_size_data_say_may_lie_in_memory_of_known_size():
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("Reshape", ["twice", "sizes"], ["y"]),
    ]
    inputs = [("x", FLOAT, ["n"]), ("sizes", INT64, [2])]
    compiled = xcompile.compile(model(nodes, inputs, [("y", FLOAT, [None, None])]))
    x = np.arange(6, dtype=np.float32)
    for sizes in ((2, 3), (3, -1), (6, 1)):
        (y,) = compiled.run([x, i64(*sizes)]).values()
        np.testing.assert_array_equal(y, (2 * x).reshape(sizes), strict=True)
