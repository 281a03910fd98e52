"""The interpreter's matrix instructions and asynchronous copies, against fragments written from the PTX ISA."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

from xcompile.compiler.codegen.cuda.assembler import INSTALL, assemble, find_assembler
from xcompile.compiler.ptx.interpreter import Report, launch
from xcompile.compiler.ptx.parser import parse
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.arena import AlignedMemory
from xcompile.runtime.errors import RuntimeModelError

Place: TypeAlias = Callable[[int, int, int], tuple[int, int]]
"""Row and column of element `i` of a thread, of its group `g` (lane / 4) and its place `t` in it (lane % 4)."""

# "Matrix fragments" of each shape, as the PTX ISA states them.
PLACES: dict[str, tuple[tuple[int, int, int], Place, Place, Place]] = {
    "m16n8k16": (
        (16, 8, 16),
        lambda g, t, i: (g if i in (0, 1, 4, 5) else g + 8, t * 2 + (i & 1) + (8 if i >= 4 else 0)),
        lambda g, t, i: (t * 2 + (i & 1) + (8 if i >= 2 else 0), g),
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k8": (
        (16, 8, 8),
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
        lambda g, t, i: (t * 2 + i, g),
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
    "tf32": (
        (16, 8, 8),
        lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
        lambda g, t, i: (t if i == 0 else t + 4, g),
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
    "m16n8k32": (
        (16, 8, 32),
        lambda g, t, i: (
            g if i < 4 or 8 <= i < 12 else g + 8,
            t * 4 + (i & 3) + (16 if i >= 8 else 0),
        ),
        lambda g, t, i: (t * 4 + (i & 3) + (16 if i >= 4 else 0), g),
        lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)),
    ),
    "m8n8k16": (
        (8, 8, 16),
        lambda g, t, i: (g, t * 4 + i),
        lambda g, t, i: (t * 4 + i, g),
        lambda g, t, i: (g, t * 2 + i),
    ),
}
STORED: dict[str, Any] = {
    "f16": np.float16, "bf16": np.float32, "tf32": np.float32, "s8": np.int8, "u8": np.uint8,
    "f32": np.float32, "s32": np.int32,
}  # fmt: skip


def fragment(matrix: Any, place: Place, kind: str) -> Any:
    """The registers `(registers, lanes)` in which a warp holds a matrix."""
    bits = 16 if kind == "bf16" else 8 * matrix.dtype.itemsize
    lanes: list[Any] = []
    for lane in range(32):
        held = [matrix[place(lane // 4, lane % 4, i)] for i in range(matrix.size // 32)]
        values = np.array(held, matrix.dtype)
        if kind == "bf16":
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        lanes.append(values.view(np.uint32))
    assert len(lanes[0]) * 32 == matrix.size * bits // 32
    return np.array(lanes).T


def matrix_of(registers: Any, shape: tuple[int, int], place: Place) -> Any:
    """The matrix whose elements of 32 bits a warp holds in registers `(registers, lanes)`."""
    found = np.full(shape, -7, registers.dtype)
    for lane in range(32):
        for i, value in enumerate(registers[:, lane]):
            found[place(lane // 4, lane % 4, i)] = value
    return found


HEAD = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
.maxntid {threads}
{{
    .reg .pred %p<4>;
    .reg .b32 %r<64>;
    .reg .b64 %rd<16>;
    .shared .align 16 .b8 tile[4096];
    ld.param.b64 %rd1, [k_param_0];
    ld.param.b64 %rd2, [k_param_1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    mul.wide.u32 %rd6, %r1, 16;
    add.s64 %rd7, %rd1, %rd6;
    mov.b32 %r2, tile;
    mad.lo.s32 %r3, %r1, 16, %r2;
"""
"""`%rd4` and `%rd5` are this thread's words of input and output, `%rd7` its 16 bytes of input, `%r3` of the tile."""


def run(body: str, x: Any, words: int, threads: int = 32) -> tuple[Any, Report]:
    """What a kernel of one block writes to its output, which is filled with zeros, of an input."""
    memory = [AlignedMemory(x.nbytes), AlignedMemory(4 * words)]
    memory[0].array[:], memory[1].array[:] = np.ascontiguousarray(x).view(np.uint8).ravel(), 0
    module = parse(f"{HEAD.format(threads=threads)}{body}\nret;\n}}\n")
    values, regions = [m.address for m in memory], [(m.address, m.array) for m in memory]
    report = launch(module, "k", (1, 1, 1), (threads, 1, 1), values, regions)
    return memory[1].array.view(np.uint32).copy(), report


def listed(first: int, count: int) -> str:
    """Some registers as an operand."""
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def multiplied(shape: str, kinds: tuple[str, str], total: str, a: Any, b: Any, c: Any) -> Any:
    """What `mma.sync` makes of three matrices."""
    sizes, *places = PLACES["tf32" if kinds[0] == "tf32" else shape]
    held = [
        fragment(*each)
        for each in zip((a, b, c), places, (*kinds, total), strict=True)
    ]  # fmt: skip
    counts = [len(each) for each in held]
    first = [10, 10 + counts[0], 10 + counts[0] + counts[1]]
    loads = "".join(f"ld.global.b32 %r{10 + i}, [%rd4+{128 * i}];\n" for i in range(sum(counts)))
    stores = "".join(
        f"st.global.b32 [%rd5+{128 * i}], %r{40 + i};\n" for i in range(counts[2])
    )  # fmt: skip
    operands = ", ".join(
        listed(*each) for each in [(40, counts[2]), *zip(first, counts, strict=True)]
    )
    types = f"{total}.{kinds[0]}.{kinds[1]}.{total}"
    body = f"{loads}mma.sync.aligned.{shape}.row.col.{types} {operands};\n{stores}"
    out, _ = run(body, np.concatenate(held), 32 * counts[2])
    registers = out.reshape(-1, 32).view(STORED[total])
    return matrix_of(registers, (sizes[0], sizes[1]), places[2])


def drawn(shape: tuple[int, int], kind: str, seed: int) -> Any:
    """Random elements that a type has."""
    rng = np.random.default_rng(seed)
    if kind in ("s8", "u8"):
        limits = np.iinfo(STORED[kind])
        return rng.integers(limits.min, limits.max, shape, STORED[kind], endpoint=True)
    values = rng.standard_normal(shape).astype(STORED[kind])
    if kind in ("bf16", "tf32"):
        keep = 0xFFFF0000 if kind == "bf16" else 0xFFFFE000
        values = (values.view(np.uint32) & np.uint32(keep)).view(np.float32)
    return values


@pytest.mark.parametrize(
    ("shape", "kinds"),
    [
        ("m16n8k16", ("f16", "f16")),
        ("m16n8k16", ("bf16", "bf16")),
        ("m16n8k8", ("f16", "f16")),
        ("m16n8k8", ("tf32", "tf32")),
        ("m16n8k32", ("s8", "s8")),
        ("m16n8k32", ("u8", "s8")),
        ("m8n8k16", ("s8", "u8")),
    ],
)
def test_a_warp_multiplies_matrices_in_the_fragments_of_the_isa(
    shape: str, kinds: tuple[str, str]
) -> None:
    m, n, k = PLACES[shape][0]
    total = "s32" if kinds[0] in ("s8", "u8") else "f32"
    a, b = drawn((m, k), kinds[0], 1), drawn((k, n), kinds[1], 2)
    c = (1000 * drawn((m, n), "f32", 3)).astype(STORED[total])
    exact = a.astype(np.float64) @ b.astype(np.float64) + c
    np.testing.assert_array_equal(
        multiplied(shape, kinds, total, a, b, c), exact.astype(STORED[total])
    )


def test_sums_of_integers_wrap_around() -> None:
    a, b = np.full((16, 32), -128, np.int8), np.full((32, 8), -128, np.int8)
    c = np.full((16, 8), (1 << 31) - 1, np.int32)
    found = multiplied("m16n8k32", ("s8", "s8"), "s32", a, b, c)
    np.testing.assert_array_equal(found, np.full((16, 8), -(1 << 31) + 32 * 16384 - 1))


def test_tf32_is_rounded_to_nearest_ties_away_from_zero() -> None:
    ulp = 2.0**-10
    values = np.array([1 + ulp / 2, -1 - ulp / 2, 1 + ulp * 0.49, np.inf, np.nan], np.float32)
    x = np.resize(values, 32).astype(np.float32)
    body = "ld.global.b32 %r4, [%rd4];\ncvt.rna.tf32.f32 %r5, %r4;\nst.global.b32 [%rd5], %r5;"
    found = run(body, x, 32)[0].view(np.float32)
    expected = np.array([1 + ulp, -1 - ulp, 1, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(found, np.resize(expected, 32))


FILL = """
    ld.global.v4.b32 {%r20, %r21, %r22, %r23}, [%rd7];
    st.shared.v4.b32 [%r3], {%r20, %r21, %r22, %r23};
    bar.sync 0;
"""
"""512 bytes of input as they are to the tile: four matrices of 8 rows, each row of 16 bytes."""


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_warp_loads_matrices(count: int, trans: bool) -> None:
    x = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    stores = "".join(f"st.global.b32 [%rd5+{128 * i}], %r{40 + i};\n" for i in range(count))
    flip = ".trans" if trans else ""
    load = f"ldmatrix.sync.aligned.m8n8.x{count}{flip}.shared.b16 {listed(40, count)}, [%r3];\n"
    out, report = run(FILL + load + stores, x, 32 * count)
    found = out.view(np.uint16).reshape(count, 32, 2)
    for matrix in range(count):
        for lane in range(32):
            row, column = lane // 4, 2 * (lane % 4)
            held = x[matrix].T if trans else x[matrix]
            assert found[matrix, lane].tolist() == held[row, column : column + 2].tolist()
    assert report.bank_conflicts == 0


def test_rows_of_a_matrix_that_share_banks_are_counted() -> None:
    body = """
        mov.b32 %r4, 0;
        and.b32 %r5, %r1, 7;
        mad.lo.s32 %r6, %r5, 128, %r2;
        st.shared.v4.b32 [%r6], {%r4, %r4, %r4, %r4};
        bar.sync 0;
        """
    load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r40}, [%r6];"
    x = np.zeros(128, np.uint32)
    conflicts = run(body + load, x, 1)[1].bank_conflicts - run(body, x, 1)[1].bank_conflicts
    assert conflicts == 7  # eight rows, 128 bytes apart: all in the first four banks


COPY = "cp.async.cg.shared.global [%r3], [%rd7], 16;\ncp.async.commit_group;\n"
LOAD = "ld.shared.b32 %r9, [%r8];\nst.global.b32 [%rd5], %r9;\n"
OTHER = """
    xor.b32 %r7, %r1, {other};
    mad.lo.s32 %r8, %r7, 16, %r2;
"""


def test_copies_arrive_in_the_order_of_their_groups() -> None:
    x = np.arange(256, dtype=np.uint32)
    body = f"""{OTHER.format(other=33)}{COPY}
        cp.async.ca.shared.global [%r3+2048], [%rd7+4], 4;
        cp.async.commit_group;
        cp.async.wait_group 1;
        bar.sync 0;
        {LOAD}
        cp.async.wait_all;
        ld.shared.b32 %r9, [%r3+2048];
        add.s64 %rd8, %rd5, 256;
        st.global.b32 [%rd8], %r9;"""
    out, report = run(body, x, 128, threads=64)
    np.testing.assert_array_equal(out[:64], 4 * (np.arange(64) ^ 33))
    np.testing.assert_array_equal(out[64:], 4 * np.arange(64) + 1)
    assert report.used_sectors < 1.0  # the copies of 4 of 16 bytes


def test_a_copy_of_fewer_bytes_is_filled_with_zeros() -> None:
    body = """
        sub.s32 %r4, 28, %r1;
        max.s32 %r4, %r4, 0;
        min.s32 %r4, %r4, 14;
        cp.async.cg.shared.global [%r3], [%rd7], 16, %r4;
        cp.async.wait_all;
        ld.shared.b32 %r9, [%r3+12];
        st.global.b32 [%rd5], %r9;"""
    x = np.full(
        4 * 29, 0xFFFFFFFF, np.uint32
    )  # the last three threads copy nothing, and there is nothing
    out, _ = run(body, x, 32)
    filled = [0xFFFF if lane <= 14 else 0xFF if lane == 15 else 0 for lane in range(32)]
    assert out.tolist() == filled


def test_a_product_of_a_pipeline_of_two_stages_has_no_bank_conflicts() -> None:
    """16x32 by 32x8, k in two stages; rows of 32 bytes, whose halves change places in every other group of four."""
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((16, 32), (8, 32)))
    staged = [np.concatenate([a[:, k : k + 16], b[:, k : k + 16]]) for k in (0, 16)]
    place = (
        "shr.u32 %r{0}, %r{1}, 2;\nand.b32 %r{0}, %r{0}, 1;\nxor.b32 %r{0}, %r{0}, %r{2};\n"
        "shl.b32 %r{0}, %r{0}, 4;\nmad.lo.s32 %r{0}, %r{1}, 32, %r{0};\nadd.s32 %r{0}, %r{0}, %r2;\n"
    )
    copy = "@%p1 cp.async.cg.shared.global [%r32+{0}], [%rd7+{0}], 16;\n"
    copies = "shr.u32 %r30, %r1, 1;\nand.b32 %r31, %r1, 1;\n" + place.format(32, 30, 31)
    copies += "setp.lt.u32 %p1, %r1, 48;\n"
    copies += "".join(copy.format(768 * stage) + "cp.async.commit_group;\n" for stage in (0, 1))
    left = "and.b32 %r33, %r1, 15;\nshr.u32 %r34, %r1, 4;\nand.b32 %r34, %r34, 1;\n"
    left += place.format(35, 33, 34)
    right = "and.b32 %r36, %r1, 7;\nadd.s32 %r36, %r36, 16;\nshr.u32 %r37, %r1, 3;\n"
    right += "and.b32 %r37, %r37, 1;\n" + place.format(38, 36, 37)
    body = copies + left + right + "".join(f"mov.b32 %r{40 + i}, 0;\n" for i in range(4))
    for stage in (0, 1):
        body += f"""
            cp.async.wait_group {1 - stage};
            bar.sync 0;
            ldmatrix.sync.aligned.m8n8.x4.shared.b16 {listed(10, 4)}, [%r35+{768 * stage}];
            ldmatrix.sync.aligned.m8n8.x2.shared.b16 {listed(14, 2)}, [%r38+{768 * stage}];
            mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {listed(40, 4)}, {listed(10, 4)},
                {listed(14, 2)}, {listed(40, 4)};"""
    body += "setp.lt.u32 %p2, %r1, 32;\n"
    body += "".join(f"@%p2 st.global.b32 [%rd5+{128 * i}], %r{40 + i};\n" for i in range(4))
    out, report = run(body, np.concatenate(staged), 128, threads=64)
    found = matrix_of(out.reshape(4, 32).view(np.float32), (16, 8), PLACES["m16n8k16"][3])
    np.testing.assert_allclose(found, a.astype(np.float64) @ b.T.astype(np.float64), rtol=1e-6)
    assert report.bank_conflicts == 0
    assert report.used_sectors == 1.0


PRODUCT = "mma.sync.aligned.m8n8k16.row.col."
UNROUNDED = "".join(f"mov.b32 %r{i}, 0f3F800001;\n" for i in range(4, 8))
OPERANDS = ", ".join(listed(first, count) for first, count in [(40, 4), (4, 4), (4, 2), (4, 4)])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"{OTHER.format(other=0)}{COPY}{LOAD}", "reads bytes of a cp.async that is not waited for"),
        (f"{OTHER.format(other=0)}{COPY}cp.async.wait_group 1;\n{LOAD}", "that is not waited for"),
        (
            f"{OTHER.format(other=0)}cp.async.ca.shared.global [%r3], [%rd7], 8;\ncp.async.wait_group 0;\n{LOAD}",
            "that is not waited for",
        ),
        (f"{COPY}ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r40}}, [%r3];", "that is not waited for"),
        (f"{COPY}st.shared.b32 [%r3], %r1;", "writes bytes of a cp.async that is not waited for"),
        (f"{COPY}{COPY}", "writes bytes of a cp.async that is not waited for"),
        (
            f"{OTHER.format(other=1)}{COPY}cp.async.wait_all;\n{LOAD}",
            "race in shared memory: reads what another thread wrote",
        ),
        (
            f"{OTHER.format(other=32)}{FILL}{LOAD}{COPY}cp.async.wait_all;\n",
            "race in shared memory: writes what another thread reads",
        ),
        ("cp.async.cg.shared.global [%r3], [%rd7+8], 16;", "misaligned copy of 16 bytes"),
        ("cp.async.cg.shared.global [%r3+8], [%rd7], 16;", "misaligned 16-byte access of shared memory"),
        ("cp.async.cg.shared.global [%r3], [%rd7+16], 16;", "thread 63: global access out of bounds"),
        ("cp.async.cg.shared.global [%r3+4000], [%rd7], 16;", "shared memory out of bounds"),
        ("cp.async.cg.shared.global [%r3], [%rd7], 16, %r1;", "thread 17: a copy of 16 bytes reads more"),
        (f"{FILL}ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r40}}, [%r3+4];", "misaligned 16-byte"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r40}, [%r3];", "that nobody has written"),
        (f"{FILL}ldmatrix.sync.aligned.m8n8.x2.shared.b16 {listed(40, 2)}, [%r3+3968];", "out of bounds"),
        (
            f"{FILL}setp.lt.u32 %p1, %r1, 8;\n@%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r40}}, [%r3];",
            "ldmatrix is executed by a part of a warp",
        ),
        (
            f"{FILL}setp.lt.u32 %p1, %r1, 8;\n@%p1 {PRODUCT}s32.s8.s8.s32 {{%r40, %r41}}, %r20, %r21, {{%r22, %r23}};",
            "mma is executed by a part of a warp",
        ),
        (
            f"{UNROUNDED}mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {OPERANDS};",
            "an operand of mma is no tf32",
        ),
    ],
)  # fmt: skip
def test_what_a_gpu_does_not_forgive_is_found(body: str, message: str) -> None:
    with pytest.raises(RuntimeModelError) as caught:
        run(body, np.zeros(256, np.uint32), 64, threads=64)
    assert str(caught.value).startswith("XC5009 kernel 'k', PTX line ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        f"mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {OPERANDS};",
        f"mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {OPERANDS};",
        f"mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {OPERANDS};",
        f"mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {OPERANDS};",
        f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {OPERANDS};",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r4, %r5}, [%r3];",
        "ldmatrix.sync.aligned.m8n16.x1.shared.b8 {%r4}, [%r3];",
        "cp.async.cg.shared.global [%r3], [%rd7], 8;",
        "cp.async.ca.shared.global [%r3], [%rd7], 8, %p1;",
        "cp.async.mbarrier.arrive.shared.b64 [%r3];",
    ],
)
def test_what_is_not_known_is_refused(body: str) -> None:
    with pytest.raises(CompileError, match="XC4013 PTX line "):
        run(body, np.zeros(256, np.uint32), 64)


@pytest.mark.skipif(find_assembler() is None, reason=f"ptxas is not installed: {INSTALL}")
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80"])
def test_the_assembler_takes_what_is_interpreted(architecture: str) -> None:
    assembler = find_assembler()
    assert assembler is not None
    body = "".join(f"mov.b32 %r{i}, 0;\n" for i in range(4, 8)) + FILL
    small = ", ".join(listed(first, count) for first, count in [(40, 4), (4, 2), (4, 1), (4, 4)])
    body += f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {small};\n"
    body += f"{PRODUCT}s32.s8.u8.s32 {{%r44, %r45}}, {{%r4}}, {{%r4}}, {{%r4, %r5}};\n"
    body += "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r46}, [%r3];\n"
    if architecture != "sm_75":
        for product in (
            "m16n8k16.{}.f32.bf16.bf16.f32",
            "m16n8k16.{}.f32.f16.f16.f32",
            "m16n8k32.{}.s32.u8.s8.s32",
        ):
            body += f"mma.sync.aligned.{product.format('row.col')} {OPERANDS};\n"
        body += f"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {OPERANDS};\n"
        body += f"{COPY}cp.async.ca.shared.global [%r3], [%rd7], 8, %r1;\ncp.async.wait_group 0;\n"
        body += "cvt.rna.tf32.f32 %r47, %r1;\ncp.async.wait_all;\n"
    ptx = f"{HEAD.format(threads=32)}{body}ret;\n}}\n".replace("sm_80", architecture)
    assemble({
        "ptx": ptx, "architecture": architecture, "path": assembler.path, "version": assembler.version,
    })  # fmt: skip
