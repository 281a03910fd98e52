"""Sizes, branches, loops and checks that depend on data in models of GPUs: host code asks the device for them."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import xcompile
from tests.e2e.compiled_node import shared_pool
from tests.e2e.onnx_node_cases import NodeCase, node_cases
from tests.e2e.onnx_reference import difference
from xcompile.compiler.ptx.device import EmulatedDevice
from xcompile.runtime.device import DeviceKernel

FLOAT, INT64, BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
info = helper.make_tensor_value_info


def model(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[Any], outputs: Sequence[Any], **constants: Any
) -> onnx.ModelProto:
    weights = [numpy_helper.from_array(np.asarray(value), n) for n, value in constants.items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), list(outputs), weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(proto: onnx.ModelProto, device: Any = None) -> Any:
    return xcompile.compile(proto, "cuda", pool=shared_pool(), device=device or EmulatedDevice())


def places() -> onnx.ModelProto:
    node = helper.make_node("NonZero", ["x"], ["y"], name="places")
    return model([node], [info("x", FLOAT, ["n"])], [info("y", INT64, [1, None])])


def power() -> onnx.ModelProto:
    """x is doubled `trips` times, or until it is at least 100; all that it was on the way is a result."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["before", "before"], ["after"], name="double"),
            helper.make_node("ReduceSum", ["after"], ["total"], keepdims=0),
            helper.make_node("Less", ["total", "most"], ["going"]),
            helper.make_node("Identity", ["after"], ["seen"]),
        ],
        "body",
        [info("i", INT64, []), info("go", BOOL, []), info("before", FLOAT, ["n"])],
        [info("going", BOOL, []), info("after", FLOAT, ["n"]), info("seen", FLOAT, ["n"])],
    )
    loop = helper.make_node(
        "Loop", ["trips", "first", "x"], ["last", "all"], body=body, name="loop"
    )
    return model(
        [loop],
        [info("trips", INT64, []), info("x", FLOAT, ["n"])],
        [info("last", FLOAT, ["n"]), info("all", FLOAT, ["t", "n"])],
        most=np.float32(100),
        first=np.array(True),
    )


def test_a_result_has_as_many_elements_as_the_data_say() -> None:
    made = compiled(places())
    for x in ([0, 1, 2, 0, 3], [0, 0], [], [5]):
        (y,) = made.run([np.array(x, np.float32)]).values()
        np.testing.assert_array_equal(y, [np.flatnonzero(x)])


@pytest.mark.parametrize(("trips", "turns"), [(0, 0), (3, 3), (9, 6)])
def test_a_loop_ends_by_its_count_or_its_condition(trips: int, turns: int) -> None:
    """1 and 1 are 128 together after six doublings."""
    made = compiled(power())
    last, seen = made.run([np.array(trips), np.ones(2, np.float32)]).values()
    np.testing.assert_array_equal(last, [2.0**turns] * 2)
    np.testing.assert_array_equal(seen, 2.0 ** (np.indices((turns, 2))[0] + 1))


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_is_taken_with_a_result_of_its_own_size(flag: bool) -> None:
    def branch(op: str, attributes: dict[str, Any], *inputs: str) -> onnx.GraphProto:
        node = helper.make_node(op, inputs, ["r"], **attributes)
        return helper.make_graph([node], op, [], [info("r", FLOAT, [None])])

    node = helper.make_node(
        "If", ["flag"], ["y"], name="if",
        then_branch=branch("Concat", {"axis": 0}, "x", "x"), else_branch=branch("Neg", {}, "x"),
    )  # fmt: skip
    proto = model(
        [node], [info("flag", BOOL, []), info("x", FLOAT, ["n"])], [info("y", FLOAT, [None])]
    )
    x = np.arange(3, dtype=np.float32)
    (y,) = compiled(proto).run([np.array(flag), x]).values()
    np.testing.assert_array_equal(y, [*x, *x] if flag else -x)


def test_an_index_out_of_range_is_an_error_of_the_run() -> None:
    proto = model(
        [helper.make_node("Gather", ["x", "i"], ["y"], name="pick")],
        [info("x", FLOAT, ["n"]), info("i", INT64, ["k"])],
        [info("y", FLOAT, ["k"])],
    )
    made, x = compiled(proto), np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(made.run([x, np.array([3, -4])])["y"], [3, 0])
    with pytest.raises(xcompile.RuntimeModelError, match=r"XC5006.*pick"):
        made.run([x, np.array([4])])
    np.testing.assert_array_equal(made.run([x, np.array([1])])["y"], [1])


# -- a device that fails ---------------------------------------------------------------------------


class FailingDevice(EmulatedDevice):
    """Fails at one launch of a kernel whose name has a word, and lets memory run out when told to."""

    def __init__(self, word: str = "", launches: int = 1 << 30) -> None:
        super().__init__()
        self.word, self.left, self.most = word, launches, 1 << 40

    def launch(self, function: Any, kernel: DeviceKernel, blocks: int, values: Any) -> None:
        self.left -= self.word in kernel.symbol
        if self.left < 0:
            raise xcompile.RuntimeModelError("XC5009", f"the GPU failed in {kernel.symbol}")
        super().launch(function, kernel, blocks, values)

    def allocate(self, size: int) -> int:
        if size > self.most:
            raise xcompile.RuntimeModelError("XC5009", "the GPU has not enough memory")
        return super().allocate(size)

    @property
    def blocks(self) -> int:
        return len(self._blocks)


def test_a_failure_in_a_loop_ends_the_run_with_what_failed() -> None:
    """The loop has 2^40 turns, and its condition would always hold."""
    device = FailingDevice()
    made = compiled(power(), device)
    inputs = [np.array(1 << 40), np.zeros(2, np.float32)]
    device.left = 5
    with pytest.raises(xcompile.RuntimeModelError, match="XC5009 the GPU failed in"):
        made.run(inputs)
    device.left = 1 << 30
    assert made.run([np.array(1), np.ones(2, np.float32)])["last"][0] == 2


def test_memory_that_there_is_not_ends_the_run() -> None:
    device = FailingDevice()
    made = compiled(places(), device)
    x = np.ones(2_000, np.float32)
    made.run([x])
    device.most = 12_000  # the result takes 16,000
    with pytest.raises(xcompile.RuntimeModelError, match="XC5009 the GPU has not enough memory"):
        made.run([x])
    device.most = 1 << 40
    assert made.run([x])["y"].shape == (1, 2_000)


def test_memory_of_a_run_is_given_back_by_the_next() -> None:
    device = FailingDevice()
    made = compiled(power(), device)
    counts = list[int]()
    for _ in range(4):
        made.run([np.array(5), np.ones(2, np.float32)])
        counts.append(device.blocks)
    assert counts[1:] == counts[:1] * 3


# -- cases of ONNX ---------------------------------------------------------------------------------

WORDS = re.compile(r"loop|^test_if|scan|nonzero|nonmax|compress|unique|range_|gather|scatter|top_k")


def cases() -> list[NodeCase]:
    return [case for case in node_cases() if WORDS.search(case.name)]


def check(case: NodeCase) -> str:
    """Why a case is wrong on an emulated GPU; nothing when it is right or refused for what it asks."""
    try:
        made = compiled(case.model)
    except xcompile.CompileError as error:
        return "" if error.code in ("XC1006", "XC1012", "XC2010") else str(error)
    for given, wanted in case.data:
        got = made.run([np.asarray(each) for each in given]).values()
        for actual, expected in zip(got, wanted, strict=True):
            problem = difference(np.asarray(actual), np.asarray(expected), case)
            if problem:
                return problem
    return ""


def test_a_sample_of_cases_is_right() -> None:
    found = {case.name: check(case) for case in cases()[::12]}
    assert len(found) >= 7
    assert {name: why for name, why in found.items() if why} == {}


@pytest.mark.full
def test_all_cases_are_right() -> None:
    found = {case.name: check(case) for case in cases()}
    assert len(found) >= 85
    assert {name: why for name, why in found.items() if why} == {}
