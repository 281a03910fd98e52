"""Each instruction against its meaning in numpy: expanded everywhere, natively where this host has it."""

import ml_dtypes
import numpy as np
import pytest

from bench.native import NativeKernel, aligned
from xcompile.compiler.codegen.cpu.builder import Builder, Signature
from xcompile.compiler.codegen.cpu.isa import INSTRUCTIONS, Instruction
from xcompile.compiler.target.host import host_target
from xcompile.compiler.target.registry import targets

DTYPES = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16
}  # fmt: skip

EVERY = [pytest.param(i, id=i.intrinsic.removeprefix("llvm.")) for i in INSTRUCTIONS]


FLOATS = {"f32": np.uint32, "bf16": np.uint16, "f16": np.uint16}


def floats(random: np.random.Generator, lanes: int, dtype: str, round_: int) -> np.ndarray:
    """Random bits, and in every other round numbers of like sizes, whose sums are rounded."""
    if round_ % 2:
        sizes = np.exp2(random.integers(-4, 12, lanes))
        return (random.standard_normal(lanes) * sizes).astype(DTYPES[dtype])
    raw = FLOATS[dtype]
    return random.integers(0, np.iinfo(raw).max, lanes, raw, endpoint=True).view(DTYPES[dtype])


def operands(instruction: Instruction, round_: int) -> list[np.ndarray]:
    """Extremes of each type in the first rounds, then random bits."""
    random = np.random.default_rng(round_)
    arrays: list[np.ndarray] = []
    for position, (lanes, dtype) in enumerate(instruction.operands):
        if dtype in FLOATS:
            arrays.append(floats(random, lanes, dtype, round_))
            continue
        info = np.iinfo(DTYPES[dtype])
        value = random.integers(info.min, info.max, lanes, endpoint=True)
        if round_ < 9:
            choice = round_ // 3 if position % 2 else round_ % 3
            value = np.full(lanes, (info.min, -1, info.max)[choice])
        arrays.append(value.astype(DTYPES[dtype]))
    return arrays


def run(instruction: Instruction, rounds: list[list[np.ndarray]], *, portable: bool) -> np.ndarray:
    b = Builder()
    types = (*instruction.operands, instruction.result)
    signature = Signature(tuple(dtype for _, dtype in types))
    values = [
        b.load(signature.buffer(i), 0, lanes) for i, (lanes, _) in enumerate(instruction.operands)
    ]
    result = instruction.write(b, *values, portable=portable)
    b.store(result, signature.buffer(len(values)), 0, instruction.result[0])
    kernel = NativeKernel(b, signature, targets()["x86-avx2"] if portable else host_target())
    lanes, dtype = instruction.result
    out = np.zeros((len(rounds), lanes), DTYPES[dtype])
    for row, arrays in zip(out, rounds, strict=True):
        padded = [aligned(a.shape, a.dtype) for a in arrays]
        for place, a in zip(padded, arrays, strict=True):
            place[:] = a
        kernel(*padded, row, 0, 1)
    return out


def meaning(instruction: Instruction, rounds: list[list[np.ndarray]]) -> np.ndarray:
    return np.stack([instruction.meaning(*arrays) for arrays in rounds])


@pytest.mark.parametrize("instruction", EVERY)
def test_the_expansion_is_the_meaning(instruction: Instruction) -> None:
    rounds = [operands(instruction, i) for i in range(50)]
    got = run(instruction, rounds, portable=True)
    np.testing.assert_array_equal(got, meaning(instruction, rounds))


@pytest.mark.parametrize("instruction", EVERY)
def test_the_instruction_is_the_meaning(instruction: Instruction) -> None:
    host = host_target()
    if not any(needed <= host.features for needed in instruction.features):
        pytest.skip(f"this host has no {instruction.name}")
    rounds = [operands(instruction, i) for i in range(50)]
    got = run(instruction, rounds, portable=False)
    np.testing.assert_array_equal(got, meaning(instruction, rounds))


def test_vpdpbusd_multiplies_uint8_by_int8_and_does_not_saturate() -> None:
    instruction = next(i for i in INSTRUCTIONS if i.name == "vpdpbusd")
    sums = np.array([1, 2**31 - 1, 0, -(2**31)], np.int32)
    x = np.array([255] * 4 + [1, 0, 0, 0] + [0, 200, 0, 0] + [0, 0, 0, 1], np.uint8).view(np.int8)
    y = np.array([-128] * 4 + [1, 9, 9, 9] + [9, 100, 9, 9] + [9, 9, 9, -1], np.int8)
    want = [1 - 4 * 255 * 128, -(2**31), 20000, 2**31 - 1]
    assert run(instruction, [[sums, x, y]], portable=True)[0].tolist() == want


def test_smmla_multiplies_two_rows_by_two_columns() -> None:
    instruction = next(i for i in INSTRUCTIONS if i.name == "smmla")
    rows = np.array([1] * 8 + [0, 0, 0, 0, 0, 0, 0, 2], np.int8)
    columns = np.array([3, 0, 0, 0, 0, 0, 0, 5, -1, 0, 0, 0, 0, 0, 0, 0], np.int8)
    sums = np.array([100, 200, 300, 400], np.int32)
    got = run(instruction, [[sums, rows, columns]], portable=True)[0]
    assert got.tolist() == [108, 199, 310, 400]
