"""Import mutated models: every one must end in a module or in a CompileError. Run as a process of its own.

python -m tests.security.mutate_onnx KIND FIRST COUNT
"""

import itertools
import random
import resource
import sys
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.e2e.onnx_node_cases import node_cases
from tests.unit.frontends.control_models import CASES
from tests.unit.frontends.onnx_models import model
from xcompile.compiler.ir.context import new_context
from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.importer import import_onnx
from xcompile.frontends.onnx.registry import load_converters

_MEMORY = 4 * 2**30
_INTERESTING = (0, 1, 0x7F, 0x80, 0xFF, 0xFE)


def seed_model() -> bytes:
    """A small model with many kinds of things in it: weights, attributes of every kind, a function, optional inputs."""
    node = helper.make_node
    inner = [node("MaxPool", ["a"], ["r"], kernel_shape=[2, 2])]
    function = helper.make_function(
        "local", "Pool", ["a"], ["r"], inner, [helper.make_opsetid("", 17)]
    )
    generator = np.random.default_rng(7)
    constants = {
        "w": generator.standard_normal((4, 2, 3, 3)).astype(np.float32),
        "b": np.zeros(4, np.float32),
        "s": np.ones(4, np.float32),
        "m": generator.standard_normal((4, 3)).astype(np.float32),
        "k": np.array([2], np.int64),
        "axes": np.array([2, 3], np.int64),
    }
    nodes = [
        node(
            "Conv",
            ["x", "w", "b"],
            ["c"],
            pads=[1, 1, 1, 1],
            strides=[2, 2],
            group=1,
            auto_pad="NOTSET",
            name="conv",
        ),
        node("BatchNormalization", ["c", "s", "b", "b", "s"], ["n"], epsilon=1e-3, name="norm"),
        node("Pool", ["n"], ["p"], domain="local", name="pool"),
        node("GlobalAveragePool", ["p"], ["g"], name="global"),
        node("ReduceSum", ["p", "axes"], ["r"], keepdims=0, name="reduce"),
        node("MatMul", ["r", "m"], ["t"], name="matmul"),
        node("Softmax", ["t"], ["y"], axis=-1, name="softmax"),
        node("TopK", ["y", "k"], ["v", "i"], axis=1, name="top"),
        node("Constant", [], ["q"], value=numpy_helper.from_array(np.arange(5, dtype=np.int8))),
    ]
    made = model(
        nodes,
        {"x": ["N", 2, "H", 8]},
        ["y", "g", "v", "i", "q"],
        constants,
        functions=[function],
        domains={"local": 1},
    )
    return made.SerializeToString()


def mutate(data: bytes, seed: int) -> bytes:
    """One to eight random edits: bits, bytes, cuts, repeats, swaps of slices; odd seeds: one or two bits or bytes."""
    chance = random.Random(seed)
    edited = bytearray(data)
    edits, kinds = ((1, 8), 6) if seed % 2 == 0 else ((1, 2), 3)
    for _ in range(chance.randint(*edits)):
        at = chance.randrange(len(edited))
        kind = chance.randrange(kinds)
        if kind == 0:
            edited[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            edited[at] = chance.choice(_INTERESTING)
        elif kind == 2:
            edited[at] = chance.randrange(256)
        elif kind == 3:
            del edited[at : at + chance.randint(1, 16)]
        elif kind == 4:
            other = chance.randrange(len(edited))
            edited[at:at] = edited[other : other + chance.randint(1, 32)]
        elif chance.random() < 0.1:
            del edited[at:]
        if not edited:
            return b""
    return bytes(edited)


_NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    -2,
    7,
    64,
    2**31 - 1,
    -(2**31),
    2**31,
    2**40,
    2**62,
    -(2**63),
    2**63 - 1,
)
_FLOATS = (0.0, -1.0, 0.5, 2.0, 1e30, -1e30, float("inf"), float("-inf"), float("nan"))


def distort(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """One to three edits of the meaning: attributes, sizes, element types, operands, weights."""
    chance = random.Random(seed)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graphs = [made.graph]
    for graph in graphs:
        graphs += [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    for _ in range(chance.randint(1, 3)):
        edit = chance.choice((_attribute, _attribute, _wiring, _input, _weight))
        edit(chance.choice(graphs), chance)
    return made


def _attribute(graph: onnx.GraphProto, chance: random.Random) -> None:
    attributes = [a for node in graph.node for a in node.attribute]
    if not attributes:
        return
    attribute = chance.choice(attributes)
    kind = onnx.AttributeProto
    if attribute.type == kind.INT:
        attribute.i = chance.choice(_NUMBERS)
    elif attribute.type == kind.FLOAT:
        attribute.f = chance.choice(_FLOATS)
    elif attribute.type == kind.STRING:
        attribute.s = chance.choice([b"", b"linear", b"\xff", attribute.s * 2])
    elif attribute.type in (kind.INTS, kind.FLOATS):
        values = attribute.ints if attribute.type == kind.INTS else attribute.floats
        pool = _NUMBERS if attribute.type == kind.INTS else _FLOATS
        edit = chance.randrange(3)
        if edit == 0 and values:
            values[chance.randrange(len(values))] = chance.choice(pool)
        elif edit == 1 and values:
            values.pop()
        else:
            values.append(chance.choice(pool))
    elif attribute.type == kind.TENSOR:
        attribute.t.data_type = chance.randrange(24)


def _wiring(graph: onnx.GraphProto, chance: random.Random) -> None:
    if not graph.node:
        return
    node = chance.choice(graph.node)
    edit = chance.randrange(4)
    if edit == 0 and node.input:
        node.input[chance.randrange(len(node.input))] = ""
    elif edit == 1 and node.input:
        node.input.pop()
    elif edit == 2 and len(node.input) > 1:
        node.input[0], node.input[-1] = node.input[-1], node.input[0]
    elif node.output:
        node.output.append("more")


def _input(graph: onnx.GraphProto, chance: random.Random) -> None:
    if not graph.input:
        return
    kind = chance.choice(graph.input).type.tensor_type
    edit = chance.randrange(4)
    if edit == 0:
        kind.elem_type = chance.randrange(24)
    elif edit == 1 and kind.shape.dim:
        kind.shape.dim[chance.randrange(len(kind.shape.dim))].dim_value = chance.choice(_NUMBERS)
    elif edit == 2 and kind.shape.dim:
        kind.shape.dim.pop()
    else:
        kind.shape.dim.add().dim_value = chance.choice(_NUMBERS)


def _weight(graph: onnx.GraphProto, chance: random.Random) -> None:
    """An input becomes a constant of strange numbers, such as a model's own axes or sizes may be."""
    if not graph.input:
        return
    info = chance.choice(graph.input)
    integer = info.type.tensor_type.elem_type == onnx.TensorProto.INT64
    count = chance.randint(0, 4)
    values = [chance.choice(_NUMBERS if integer else _FLOATS) for _ in range(count)]
    dtype = np.int64 if integer else np.float32
    graph.initializer.append(numpy_helper.from_array(np.array(values, dtype), info.name))


def mutations(first: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Mutated bytes of the small model and the seeds they come from."""
    data = seed_model()
    for seed in range(first, first + count):
        yield f"bytes {seed}", mutate(data, seed)


def distortions(first: int, count: int) -> Iterator[tuple[str, bytes]]:
    """`count` distortions of each node case of the ONNX backend suite."""
    for seed, (index, case) in itertools.product(
        range(first, first + count), enumerate(node_cases())
    ):
        yield (
            f"case {seed} {case.name}",
            distort(case.model, seed * 10_000 + index).SerializeToString(),
        )


def controls(first: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Models with branches and loops, mutated where the seed is even and distorted where it is odd."""
    cases = [(name, make().model) for name, make in CASES.items()]
    for seed, (index, (name, proto)) in itertools.product(
        range(first, first + count), enumerate(cases)
    ):
        number = seed * 1000 + index
        data = (
            distort(proto, number).SerializeToString()
            if seed % 2
            else mutate(proto.SerializeToString(), number)
        )
        yield f"control {seed} {name}", data


KINDS = {"bytes": mutations, "cases": distortions, "control": controls}


def main(kind: str, first: int, count: int) -> None:
    """Import mutated or distorted models and print how they ended."""
    models = KINDS[kind](first, count)
    load_converters()
    context = new_context()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    done = refused = 0
    for name, data in models:
        done += 1
        try:
            import_onnx(data, context=context)
        except CompileError:
            refused += 1
        except BaseException:
            print(name, flush=True)
            raise
    print(f"refused {refused} of {done}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
