"""Import mutated models: every one must end in a module or in a CompileError. Run as a process of its own.

python -m tests.security.mutate_onnx FIRST COUNT
"""

import random
import resource
import sys

import numpy as np
from onnx import helper, numpy_helper

from tests.unit.frontends.onnx_models import model
from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.importer import import_onnx

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
    """One to eight random edits: bits, bytes, cuts, repeats, swaps of slices."""
    chance = random.Random(seed)
    edited = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(edited))
        kind = chance.randrange(6)
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


def main(first: int, count: int) -> None:
    """Import the mutations `first` to `first + count` and print how they ended."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    data = seed_model()
    import_onnx(data)
    refused = 0
    for seed in range(first, first + count):
        try:
            import_onnx(mutate(data, seed))
        except CompileError:
            refused += 1
        except BaseException:
            print(f"seed {seed}", flush=True)
            raise
    print(f"refused {refused} of {count}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
