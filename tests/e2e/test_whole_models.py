"""Whole models: right, the same for any number of threads, in little memory."""

import numpy as np
import pytest

import xcompile
from tests.e2e.networks import Network, reference, residual_network
from xcompile.compiler.driver import worker_pool
from xcompile.compiler.support.dims import evaluate
from xcompile.compiler.support.options import Options


@pytest.fixture(scope="module")
def pool():
    with worker_pool(Options()) as started:
        yield started


@pytest.fixture(scope="module")
def residual(pool):
    model = residual_network()
    return model, xcompile.compile(model, pool=pool)


def image(batch, seed=0, size=16):
    return np.random.default_rng(seed).standard_normal((batch, 3, size, size)).astype(np.float32)


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_one_artifact_serves_all_batch_sizes(residual, batch):
    model, compiled = residual
    x = image(batch)
    np.testing.assert_allclose(compiled(x), reference(model, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_a_poisoned_arena_changes_nothing(residual):
    _, compiled = residual
    poisoned = compiled.artifact.load(poison=True)
    x = image(2)
    np.testing.assert_array_equal(poisoned.run([x])[compiled.outputs[0].name], compiled(x))


def test_results_are_the_same_bits_for_1_2_and_7_threads(residual):
    _, compiled = residual
    x = image(5)
    found = [
        compiled.artifact.load(threads=t).run([x])[compiled.outputs[0].name] for t in (1, 2, 7)
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_there_is_no_layout_conversion_between_convolutions(residual):
    _, compiled = residual
    families = [facts.family for facts in compiled.artifact.kernels.values()]
    assert families.count("map") == 1  # the concatenation of a batch that may be more than 1


def live_bytes(program, size_of):
    """The most bytes of the arena in use at once, from the launches alone: an offset lives from first to last use."""
    touched = [
        [size_of(p.offset) for p in step.places if p.space == "arena"] for step in program.launches
    ]
    found = 0
    for step in range(len(touched)):
        before = {o for s in touched[: step + 1] for o in s}
        after = {o for s in touched[step:] for o in s}
        found = max(found, len(before & after))
    return found


def test_the_arena_of_a_static_chain_holds_two_images(pool):
    n = Network()
    v = n("Conv", "x", n.weight(16, 3, 3, 3), pads=[1, 1, 1, 1])
    for _ in range(6):
        v = n("Conv", v, n.weight(16, 16, 3, 3), pads=[1, 1, 1, 1])
    compiled = xcompile.compile(
        n.model({"x": ("FLOAT", [1, 3, 32, 32])}, {v: ("FLOAT", [1, 16, 32, 32])}), pool=pool
    )
    program = compiled.artifact.program
    assert live_bytes(program, lambda d: evaluate(d, {})) == 2
    assert program.arena == 2 * 16 * 32 * 32 * 4


def test_concatenations_of_one_image_are_made_in_place(pool):
    n = Network()
    a = n("Conv", "x", n.weight(16, 16, 1, 1))
    b = n("Conv", "x", n.weight(32, 16, 1, 1))
    y = n("Conv", n("Concat", a, b, axis=1), n.weight(16, 48, 1, 1))
    model = n.model({"x": ("FLOAT", [1, 16, 8, 8])}, {y: ("FLOAT", [1, 16, 8, 8])})
    compiled = xcompile.compile(model, target="x86-avx2", pool=pool)
    assert not [s for s in compiled.artifact.program.launches if "Concat" in s.node]
    x = np.random.default_rng(1).standard_normal((1, 16, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(compiled(x), reference(model, {"x": x})[0], rtol=1e-5, atol=1e-5)


def test_outputs_that_are_concatenated_too_are_written(pool):
    n = Network()
    a, b = n("Relu", "x"), n("Neg", "x")
    y = n("MatMul", n("Concat", a, b, axis=0), n.constant(np.eye(4, dtype=np.float32)))
    model = n.model(
        {"x": ("FLOAT", [2, 4])},
        {a: ("FLOAT", [2, 4]), b: ("FLOAT", [2, 4]), y: ("FLOAT", [4, 4])},
    )
    compiled = xcompile.compile(model, pool=pool)
    x = np.array([[-1, 2, -3, 4], [5, -6, 7, -8]], np.float32)
    relu, negative, joined = compiled(x)
    np.testing.assert_array_equal(relu, np.maximum(x, 0))
    np.testing.assert_array_equal(negative, -x)
    np.testing.assert_array_equal(joined, np.concatenate([np.maximum(x, 0), -x]))


def test_outputs_that_are_inputs_constants_views_and_duplicates(pool):
    n = Network()
    y = n("Relu", "x")
    flat = n("Flatten", y)
    kept = n("Identity", n.constant(np.arange(3, dtype=np.float32)))
    same = n("Identity", "x")
    shape = n("Shape", "x")
    model = n.model(
        {"x": ("FLOAT", ["N", 4])},
        {
            y: ("FLOAT", ["N", 4]), flat: ("FLOAT", ["N", 4]), kept: ("FLOAT", [3]), same: ("FLOAT", ["N", 4]),
            shape: ("INT64", [2]),
        },
    )  # fmt: skip
    compiled = xcompile.compile(model, pool=pool)
    x = np.array([[-1, 2, -3, 4]], np.float32)
    found = list(compiled.run([x]).values())
    relu = np.maximum(x, 0)
    for got, expected in zip(
        found, [relu, relu, np.arange(3, dtype=np.float32), x, np.array([1, 4])], strict=True
    ):
        np.testing.assert_array_equal(got, expected)


def test_a_size_above_what_the_model_can_take_is_refused_by_name(pool):
    n = Network()
    table = n.constant(np.arange(8, dtype=np.float32).reshape(1, 8))
    length = n("Gather", n("Shape", "x"), n.constant(np.array([1])))
    part = n("Slice", table, n.constant(np.array([0])), length, n.constant(np.array([1])))
    y = n("Add", "x", part)
    compiled = xcompile.compile(
        n.model({"x": ("FLOAT", ["N", "S"])}, {y: ("FLOAT", ["N", "S"])}), pool=pool
    )
    np.testing.assert_array_equal(compiled(np.ones((1, 3), np.float32)), [[1, 2, 3]])
    with pytest.raises(xcompile.RuntimeModelError, match="Add"):
        compiled(np.ones((1, 9), np.float32))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("channels", [(12, 20), (8, 4, 5), (3, 16), (32, 1, 7)])
@pytest.mark.parametrize("target", ["x86-avx2", "cpu"])
def test_concatenations_of_any_channels_need_no_conversion(pool, channels, batch, target):
    n = Network()
    parts = [n("Relu", n("Conv", "x", n.weight(c, 16, 3, 3), pads=[1, 1, 1, 1])) for c in channels]
    joined = n("Concat", *parts, axis=1)
    y = n("Conv", joined, n.weight(8, sum(channels), 1, 1))
    model = n.model({"x": ("FLOAT", [batch, 16, 7, 9])}, {y: ("FLOAT", [batch, 8, 7, 9])})
    compiled = xcompile.compile(model, target=target, pool=pool)
    nodes = [s.node for s in compiled.artifact.program.launches]
    assert (
        len(nodes) <= len(channels) + 4
    )  # the convolutions, the concatenation, conversions at both ends
    x = np.random.default_rng(2).standard_normal((batch, 16, 7, 9)).astype(np.float32)
    np.testing.assert_allclose(compiled(x), reference(model, {"x": x})[0], rtol=1e-5, atol=1e-5)


def test_sizes_of_one_name_that_differ_are_refused(pool):
    n = Network()
    y = n("Add", n("ReduceSum", "x", keepdims=0), n("ReduceSum", "y", keepdims=0))
    model = n.model({"x": ("FLOAT", ["N", 3]), "y": ("FLOAT", [2, "N"])}, {y: ("FLOAT", [])})
    compiled = xcompile.compile(model, pool=pool)
    assert compiled(np.ones((4, 3), np.float32), np.ones((2, 4), np.float32)) == 20
    with pytest.raises(
        xcompile.RuntimeModelError, match="axis 1 of the input 'y' and axis 0 of 'x' are both 'N'"
    ):
        compiled(np.ones((4, 3), np.float32), np.ones((2, 5), np.float32))


def test_sizes_named_by_a_question_mark_are_independent(pool):
    n = Network()
    y = n("Relu", n("Conv", "x", n.weight(8, 3, 3, 3)))
    model = n.model({"x": ("FLOAT", ["?", 3, "?", "?"])}, {y: ("FLOAT", ["?", 8, "?", "?"])})
    compiled = xcompile.compile(model, pool=pool)
    for shape in ((1, 3, 9, 20), (2, 3, 17, 5)):
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(compiled(x), reference(model, {"x": x})[0], rtol=1e-5, atol=1e-5)


def test_constants_in_an_epilogue_leave_the_kernel_as_it_is(pool):
    def schedule(activation):
        n = Network()
        y = activation(n, n("Conv", "x", n.weight(32, 16, 1, 1)))
        model = n.model({"x": ("FLOAT", [1, 16, 7, 7])}, {y: ("FLOAT", [1, 32, 7, 7])})
        facts = xcompile.compile(model, pool=pool).artifact.kernels.values()
        return next(f.schedule for f in facts if f.family == "conv")

    low, high = np.array(0, np.float32), np.array(6, np.float32)
    clipped = schedule(lambda n, v: n("Clip", v, n.constant(low), n.constant(high)))
    assert clipped == schedule(lambda n, v: n("Relu", v))


def test_constants_leave_an_elementwise_kernel_one_loop(pool):
    n = Network()
    y = n(
        "Mul",
        n("Pow", "x", n.constant(np.array(2, np.float32))),
        n.constant(np.array(0.5, np.float32)),
    )
    model = n.model({"x": ("FLOAT", [8, 4, 3])}, {y: ("FLOAT", [8, 4, 3])})
    compiled = xcompile.compile(model, pool=pool)
    assert [step.extent for step in compiled.artifact.program.launches] == [1]
    x = np.arange(96, dtype=np.float32).reshape(8, 4, 3)
    np.testing.assert_array_equal(compiled(x), x * x * np.float32(0.5))


def test_a_run_leaves_the_interpreter_to_other_threads(pool):
    """While a long run is under way, another thread counts: the interpreter's lock is free."""
    import threading
    import time

    n = Network()
    v = "x"
    for _ in range(12):
        v = n("MatMul", v, n.weight(512, 512, scale=0.05))
    compiled = xcompile.compile(
        n.model({"x": ("FLOAT", [2048, 512])}, {v: ("FLOAT", [2048, 512])}), pool=pool
    )
    x, done, ticks = np.ones((2048, 512), np.float32), threading.Event(), []
    compiled(x)

    def work():
        compiled.run([x])
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    thread.join()
    assert len(ticks) >= 5


@pytest.mark.parametrize("mode", ["off", "f2"])
@pytest.mark.parametrize("target", ["x86-avx2", "cpu"])
def test_lanes_beyond_the_channels_never_reach_a_result(pool, target, mode):
    """Neither 1/0 nor what the arena held stands where a convolution multiplies by a zero weight."""
    n = Network()
    a = n("Reciprocal", n("Conv", "x", n.weight(5, 3, 1, 1)))
    pooled = n("MaxPool", n("Reciprocal", a), kernel_shape=[2, 2], strides=[2, 2])
    joined = n("Concat", n("Log", n("Exp", pooled)), n("Reciprocal", pooled), axis=1)
    y = n("Conv", joined, n.weight(7, 10, 3, 3), pads=[1, 1, 1, 1])
    model = n.model({"x": ("FLOAT", ["N", 3, 8, 8])}, {y: ("FLOAT", ["N", 7, 4, 4])})
    edit = f"nn-choose-winograd{{mode={mode}}}"
    compiled = xcompile.compile(model, target=target, passes=edit, pool=pool)
    poisoned = compiled.artifact.load(poison=True)
    x = image(2, size=8)
    np.testing.assert_allclose(
        poisoned.run([x])[y], reference(model, {"x": x})[0], rtol=1e-3, atol=1e-3
    )
