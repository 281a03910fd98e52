"""Planted faults: in a converter of the front end, in a pass, in an emitter; each with the node that it spoils."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tests.e2e.networks import Network
from xcompile.compiler.codegen.cpu import (
    attention,
    contraction,
    conv_tile,
    pool,
    pull,
    rows,
    winograd,
)
from xcompile.compiler.ir.location import node_names
from xcompile.compiler.ir.mlir import ir
from xcompile.compiler.ir.op import view
from xcompile.compiler.ir.passes import PASS_REGISTRY, PatternPass
from xcompile.compiler.ir.rewrite import Pattern, Rewriter, no_match
from xcompile.dialects.nn.binary import Add, Sub
from xcompile.dialects.nn.conv import Conv
from xcompile.dialects.nn.norm import LayerNorm
from xcompile.dialects.nn.softmax import Softmax
from xcompile.dialects.nn.unary import Abs, Relu
from xcompile.frontends.onnx import registry


def image():
    """Convolutions with a bias and Winograd's algorithm, pools, a residual connection, a dense layer."""
    n = Network(seed=1)
    first = n("Conv", "x", n.weight(16, 8, 3, 3), n.weight(16), pads=[1, 1, 1, 1])
    relu = n("Relu", first)
    mean = n("AveragePool", relu, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    second = n("Conv", mean, n.weight(16, 16, 1, 1), n.weight(16))
    leaky = n("LeakyRelu", second, alpha=0.1)
    rest = n("Sub", leaky, relu)
    large = n("MaxPool", rest, kernel_shape=[2, 2], strides=[2, 2])
    third = n("Conv", large, n.weight(32, 16, 3, 3), n.weight(32), pads=[1, 1, 1, 1])
    flat = n("Flatten", n("GlobalAveragePool", n("Sigmoid", third)))
    y = n("Softmax", n("Gemm", flat, n.weight(10, 32), n.weight(10, scale=1), transB=1))
    return n.model({"x": ("FLOAT", ["N", 8, 18, 18])}, {y: ("FLOAT", ["N", 10])})


def tokens():
    """A layer norm, attention with a mask, a product of odd sizes, a softmax."""
    n = Network(seed=2)
    norm = n("LayerNormalization", "x", n.weight(32), n.weight(32), axis=-1)
    q, k, v = (n("MatMul", norm, n.weight(32, 32)) for _ in range(3))
    scores = n("Add", n("MatMul", q, n("Transpose", k, perm=[0, 2, 1])), "mask")
    mixed = n("MatMul", n("Softmax", scores, axis=-1), v)
    wide = n("Tanh", n("Add", n("MatMul", mixed, n.weight(32, 37)), n.weight(37)))
    y = n("Softmax", n("Sub", n("MatMul", wide, n.weight(37, 32)), "x"), axis=-1)
    return n.model(
        {"x": ("FLOAT", ["N", "S", 32]), "mask": ("FLOAT", ["N", 1, "S"])},
        {y: ("FLOAT", ["N", "S", 32])},
    )


def dense():
    """A product and a relu: one kernel."""
    n = Network()
    y = n("Relu", n("MatMul", "x", n.weight(9, 17)))
    return n.model({"x": ("FLOAT", [5, 9])}, {y: ("FLOAT", [5, 17])})


@dataclass(frozen=True)
class Mutation:
    """A fault.

    Attributes:
        model: where it shows.
        kind: what `diff` must call it.
        node: the node that it must name.
        plant: plants it until the end of the test; the arguments of `diff` that it takes.
    """

    model: Callable[[], Any]
    kind: str
    node: str
    plant: Callable[[pytest.MonkeyPatch, Path], dict[str, Any]]


# -- the front end ----------------------------------------------------------------------------------


def converted(op: str, change: Callable[[Any], Any]) -> Callable[..., dict[str, Any]]:
    """The converter of an op gives what `change` makes of the view of its last op."""

    def plant(patch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
        registry.load_converters()
        versions = registry._TABLE["", op]
        for since, right in list(versions.items()):

            def wrong(node: Any, right: Any = right) -> Any:
                made = view(right(node)[0].owner)
                return [change(made).results[0]]

            patch.setitem(versions, since, wrong)
        return {"against": "onnxruntime"}

    return plant


def with_fields(**fields: Any) -> Callable[[Any], Any]:
    """The same op with other attributes or operands."""

    def change(op: Any) -> Any:
        given = op.operand_fields() | op.attributes()
        return type(op).create(loc=op.location, **given | fields)

    return change


def swapped(op: Any) -> Any:
    return type(op).create(loc=op.location, a=op.b, b=op.a)


# -- passes -----------------------------------------------------------------------------------------


class SwapSub(Pattern[Sub]):
    def rewrite(self, op: Sub, rewriter: Rewriter) -> None:
        if op.operation.attributes.__contains__("xc.swapped"):
            no_match("done")
        made = rewriter.create(Sub, a=op.b, b=op.a)
        made.operation.attributes["xc.swapped"] = ir.UnitAttr.get()
        rewriter.replace(op, made)


class DropBias(Pattern[Conv]):
    def rewrite(self, op: Conv, rewriter: Rewriter) -> None:
        if op.bias is None or "Conv_3" not in node_names(op.location):
            no_match("not this one")
        rewriter.replace(op, rewriter.create(Conv, x=op.x, w=op.w, **op.attributes()))


class WrongEpsilon(Pattern[LayerNorm]):
    def rewrite(self, op: LayerNorm, rewriter: Rewriter) -> None:
        if op.epsilon > 1e-3:
            no_match("done")
        fields = op.operand_fields() | op.attributes() | {"epsilon": 2e-3}
        rewriter.replace(op, rewriter.create(LayerNorm, **fields))


class ReluToAbs(Pattern[Relu]):
    def rewrite(self, op: Relu, rewriter: Rewriter) -> None:
        rewriter.replace(op, rewriter.create(Abs, x=op.x))


class TwiceTheAxis(Pattern[Softmax]):
    def rewrite(self, op: Softmax, rewriter: Rewriter) -> None:
        if op.axis == 0:
            no_match("done")
        rewriter.replace(op, rewriter.create(Softmax, x=op.x, axis=0))


def rewritten(pattern: type[Pattern[Any]], where: str) -> Callable[..., dict[str, Any]]:
    """A pass of the pattern stands in the pipeline."""

    @dataclass(frozen=True)
    class Wrong(PatternPass):
        """Wrong."""

        NAME: ClassVar[str] = "wrong"
        PATTERNS: ClassVar = (pattern,)

    def plant(patch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
        patch.setitem(PASS_REGISTRY._entries, "wrong", Wrong)
        return {"passes": f"+after({where}):wrong"}

    return plant


# -- kernels ----------------------------------------------------------------------------------------

_PULL = """
from xcompile.compiler.codegen.cpu import families, pull

assert families.FAMILIES
{code}
"""

_METHOD = """
from xcompile.compiler.codegen.cpu import families
from xcompile.compiler.codegen.cpu import {module} as module

assert families.FAMILIES
_right = module.{target}


def _wrong(*arguments, **named):
{code}


module.{target} = _wrong
"""


def loaded(
    text: str, restore: Callable[[pytest.MonkeyPatch], None]
) -> Callable[..., dict[str, Any]]:
    def plant(patch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
        restore(patch)
        path = folder / "plant.py"
        path.write_text(text)
        return {"load": [path]}

    return plant


def pulled(op: str, code: str) -> Callable[..., dict[str, Any]]:
    """The element function of an op is another one."""

    def restore(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(pull.PULLS, op, pull.PULLS[op])

    return loaded(_PULL.format(code=code), restore)


def emitted(module: Any, target: str, code: str) -> Callable[..., dict[str, Any]]:
    """A function of an emitter does something else; `code` is the body, which may call `_right`."""
    *path, name = target.split(".")
    owner = module
    for part in path:
        owner = getattr(owner, part)

    def restore(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(owner, name, getattr(owner, name))

    short = module.__name__.rpartition(".")[2]
    return loaded(_METHOD.format(module=short, target=target, code=code), restore)


RELU_AS_NOTHING = pulled("nn.relu", 'pull.PULLS["nn.relu"] = lambda p, op, at: p.value(op.x, at)')

MUTATIONS = {
    "front end: swapped operands of Sub": Mutation(
        image, "front end", "Sub_5", converted("Sub", swapped)
    ),
    "front end: slope of LeakyRelu": Mutation(
        image, "front end", "LeakyRelu_4", converted("LeakyRelu", with_fields(alpha=0.2))
    ),
    "front end: padding counted in AveragePool": Mutation(
        image,
        "front end",
        "AveragePool_2",
        converted("AveragePool", with_fields(count_include_pad=True)),
    ),
    "front end: bias of Gemm added twice": Mutation(
        image,
        "front end",
        "Gemm_11",
        converted("Gemm", lambda op: Add.create(loc=op.location, a=op.results[0], b=op.b)),
    ),
    "front end: epsilon of LayerNormalization": Mutation(
        tokens,
        "front end",
        "LayerNormalization_0",
        converted("LayerNormalization", with_fields(epsilon=1e-3)),
    ),
    "front end: axis of Softmax": Mutation(
        tokens, "front end", "Softmax_7", converted("Softmax", with_fields(axis=1))
    ),
    "pass: swapped operands of Sub": Mutation(
        image, "pass", "Sub_5", rewritten(SwapSub, "nn-canonicalize")
    ),
    "pass: dropped bias of a convolution": Mutation(
        image, "pass", "Conv_3", rewritten(DropBias, "nn-conv-bias")
    ),
    "pass: relu became abs behind layouts": Mutation(
        image, "pass", "Relu_1", rewritten(ReluToAbs, "nn-fuse-pad")
    ),
    "pass: epsilon of a layer norm": Mutation(
        tokens, "pass", "LayerNormalization_0", rewritten(WrongEpsilon, "nn-fuse-layer-norm")
    ),
    "pass: axis of a softmax": Mutation(
        tokens, "pass", "Softmax_7", rewritten(TwiceTheAxis, "cse")
    ),
    "kernel: relu does nothing": Mutation(image, "kernel", "Relu_1", RELU_AS_NOTHING),
    "kernel: tanh is a thousandth too large": Mutation(
        tokens,
        "kernel",
        "Tanh_11",
        pulled(
            "nn.tanh",
            '_right = pull.PULLS["nn.tanh"]\n'
            'pull.PULLS["nn.tanh"] = lambda p, op, at: p.b.binary(\n'
            '    "arith.mulf", _right(p, op, at), p.b.float_constant(1.001, "f32", p.lanes), p.lanes)\n',
        ),
    ),
    "kernel: a convolution forgets its last pixel": Mutation(
        image,
        "kernel",
        "Conv_0",
        emitted(
            conv_tile,
            "RegisterTile.finish",
            "    self, sums, places = arguments\n"
            "    wrong = list(sums)\n"
            "    wrong[-1] = wrong[0]\n"
            "    return _right(self, wrong, places)",
        ),
    ),
    "kernel: a pool takes the last element": Mutation(
        image,
        "kernel",
        "MaxPool_6",
        emitted(pool, "Maximum.combine", "    return arguments[2]"),
    ),
    "kernel: an average of one row too many": Mutation(
        image,
        "kernel",
        "AveragePool_2",
        emitted(pool, "_Average.count", "    return arguments[0].b.add(_right(*arguments), 1)"),
    ),
    "kernel: Winograd's output transform has a wrong sign": Mutation(
        image,
        "kernel",
        "Conv_7",
        emitted(
            winograd,
            "output_1d",
            "    made = _right(*arguments)\n    return [made[1], made[0], *made[2:]]",
        ),
    ),
    "kernel: a norm divides by one element too many": Mutation(
        tokens,
        "kernel",
        "LayerNormalization_0",
        emitted(
            rows,
            "_Rows._count",
            "    self = arguments[0]\n    return self.r.add(_right(self), self.r.const(1.0))",
        ),
    ),
    "kernel: attention without its mask": Mutation(
        tokens,
        "kernel",
        "MatMul_8",
        emitted(attention, "_Group._add_mask", "    return arguments[1]"),
    ),
    "kernel: a contraction delivers twice its sums": Mutation(
        tokens,
        "kernel",
        "MatMul_1",
        emitted(
            contraction,
            "_Contraction._deliver",
            "    self, value, *rest = arguments\n"
            '    return _right(self, self.b.binary("arith.addf", value, value, self.lanes), *rest)',
        ),
    ),
}


def inputs_of(model: Any) -> dict[str, np.ndarray]:
    """Inputs with sizes that are no multiples of a vector."""
    random = np.random.default_rng(3)
    found: dict[str, np.ndarray] = {}
    for info in model.graph.input:
        dims = [
            d.dim_value or {"N": 2, "S": 19}[d.dim_param] for d in info.type.tensor_type.shape.dim
        ]
        found[info.name] = random.standard_normal(dims).astype(np.float32)
    if "mask" in found:
        found["mask"] = np.where(found["mask"] < -0.5, -1e4, 0).astype(np.float32)
        found["mask"][..., 0] = 0
    return found
