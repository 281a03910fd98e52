"""Checking every pass by numbers still sees small faults at the end of the pipeline, in images of a usual size."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest

from bench import corpus
from tests.e2e.networks import Network
from xcompile import passes
from xcompile.compiler.ir.context import context
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.module import Module
from xcompile.compiler.ir.passes import Pass, PassContext
from xcompile.compiler.ir.pipeline import Pipeline, parse_pipeline
from xcompile.compiler.ir.runner import run_pipeline
from xcompile.compiler.numerics.check import VerifyNumerics
from xcompile.compiler.numerics.recording import operations_of
from xcompile.compiler.pipelines import PIPELINES
from xcompile.compiler.target.registry import targets
from xcompile.dialects.kernel import Func, Launch
from xcompile.dialects.nn.const import Const
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.shapes import refine_types
from xcompile.dialects.nn.unary import LeakyRelu, Relu
from xcompile.frontends.onnx.importer import import_onnx

assert passes.PASSES

TARGET = targets()["x86-avx512"]
SIZE = 224
"""Rows and columns of an image."""


def bottlenecks(blocks: int = 4, channels: int = 64):
    """A stem of stride 2 and a pool, blocks of three convolutions with a residual sum, and a dense layer."""
    n = Network()

    def conv(x: str, given: int, made: int, kernel: int, stride: int = 1) -> str:
        w = n.weight(made, given, kernel, kernel, scale=(2 / (given * kernel**2)) ** 0.5)
        pads = [kernel // 2] * 4
        return n("Conv", x, w, n.weight(made), pads=pads, strides=[stride, stride])

    stem = n("Relu", conv("x", 3, channels, 7, 2))
    x = n("MaxPool", stem, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for _ in range(blocks):
        inner = n("Relu", conv(x, channels, channels // 4, 1))
        inner = n("Relu", conv(inner, channels // 4, channels // 4, 3))
        x = n("Relu", n("Add", conv(inner, channels // 4, channels, 1), x))
    mean = n("Flatten", n("GlobalAveragePool", x))
    y = n("Gemm", mean, n.weight(10, channels), n.weight(10), transB=1)
    return n.model({"x": ("FLOAT", [1, 3, SIZE, SIZE])}, {y: ("FLOAT", [1, 10])})


def leak(module: Module, launch: Launch, kernel: Func) -> bool:
    """A Relu lets one percent of what is negative through."""
    for operation in kernel.ops:
        relu = Relu.of(operation)
        if relu is not None:
            with ir.InsertionPoint(operation):
                leaky = LeakyRelu.build({"x": relu.x}, [relu.y.type], loc=relu.location)
            relu.y.replace_all_uses_with(leaky.y)
            operation.erase()
            return True
    return False


def shift(module: Module, launch: Launch, kernel: Func) -> bool:
    """A convolution reads its image one pixel further up."""
    for operation in kernel.ops:
        conv = Conv.of(operation)
        if conv is not None and conv.pads[0]:
            pads = [conv.pads[0] + 1, conv.pads[1], conv.pads[2] - 1, conv.pads[3]]
            operation.attributes["pads"] = ir.DenseI64ArrayAttr.get(pads)
            return True
    return False


def scale(module: Module, launch: Launch, kernel: Func) -> bool:
    """The filter of one output channel of a convolution is larger by one percent."""
    given = Const.of(launch.inputs[1].owner) if len(launch.inputs) > 1 else None
    if given is None or not any(Conv.of(operation) for operation in kernel.ops):
        return False
    array = given.array(module.weights).copy()
    array[np.argmax(np.abs(array).reshape(len(array), -1).sum(1))] *= np.float32(1.01)
    with ir.InsertionPoint(launch.operation):
        made = Const.from_array(array, module.weights, loc=given.location)
    launch.operation.operands[1] = made.y
    return True


@dataclass(frozen=True)
class Spoil(Pass):
    """Plants a fault in the first launch that it is possible in from the given share of all launches on."""

    fault: Callable[[Module, Launch, Func], bool]
    place: float
    nodes: set[str]
    NAME: ClassVar[str] = "spoil"

    def run(self, module: Module, context: PassContext) -> None:
        kernels = {f.sym_name: f for o in module.module.body.operations if (f := Func.of(o))}
        found = [Launch.of(o) for o in module.main.regions[0].blocks[0].operations]
        launches = [launch for launch in found if launch is not None]
        start = int(self.place * len(launches))
        for launch in [*launches[start:], *reversed(launches[:start])]:
            if self.fault(module, launch, kernels[launch.callee]):
                same = launches if self.fault is not scale else [launch]
                for each in same:
                    if each.callee == launch.callee:
                        self.nodes.update(" + ".join(each.nodes).split(" + "))
                return
        raise AssertionError(f"no launch for {self.fault.__name__}")


def check(model: onnx.ModelProto | Path) -> None:
    with context():
        module = import_onnx(model, context=ir.Context.current)
        refine_types(module, module.input_shapes())
        numerics = VerifyNumerics(stop=False)
        planned = PassContext(TARGET, instruments=[numerics])
        run_pipeline(module, parse_pipeline("@cpu", PIPELINES), planned)
        assert numerics.found == []
        recording = numerics.recording
        assert recording is not None
        assert [x.shape[1:] for x in recording.inputs] == [(3, SIZE, SIZE)]
        results = [r for o in operations_of(module)[:-1] for r in o.results]
        assert all(r in recording.values for r in results)
        for fault, place in product((leak, shift, scale), (0.0, 0.5, 0.95)):
            spoil = Spoil(fault, place, set())
            run_pipeline(module, Pipeline((spoil,)), planned)
            assert len(numerics.found) == 1, (fault.__name__, place)
            named = numerics.found.pop()
            assert (named.code, named.pass_name) == ("XC3008", "spoil")
            assert named.node is not None
            assert spoil.nodes & set(named.node.split(" + ")), (fault.__name__, place)


def test_small_faults_in_kernels_at_three_depths_are_named() -> None:
    check(bottlenecks())


@pytest.mark.full
def test_small_faults_in_kernels_of_resnet50_are_named() -> None:
    check(corpus.model("resnet50"))
