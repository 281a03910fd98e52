"""The interpreter of PTX: what instructions compute, and what it finds wrong with kernels."""

from typing import Any

import numpy as np
import pytest

from xcompile.compiler.ptx.arithmetic import fused
from xcompile.compiler.ptx.interpreter import Report, launch
from xcompile.compiler.ptx.parser import parse
from xcompile.compiler.support.errors import CompileError
from xcompile.runtime.arena import AlignedMemory
from xcompile.runtime.errors import RuntimeModelError

THREADS = 64

HEAD = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(
    .param .u64 .ptr .align 1 k_param_0,
    .param .u64 .ptr .align 1 k_param_1
)
.maxntid 64
{
    .reg .pred %p<4>;
    .reg .b16 %rs<4>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<16>;
    .shared .align 16 .b8 tile[256];
    ld.param.b64 %rd1, [k_param_0];
    ld.param.b64 %rd2, [k_param_1];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.s32 %r3, %r2, 64, %r1;
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
"""


def run(body: str, x: Any, out: Any, blocks: int = 1) -> Report:
    """Run `body` with `%rd4` and `%rd5` the addresses of this thread's elements of `x` and `out`, of 4 bytes each."""
    memory = [AlignedMemory(x.nbytes), AlignedMemory(out.nbytes)]
    memory[0].array[:], memory[1].array[:] = x.view(np.uint8), out.view(np.uint8)
    module = parse(f"{HEAD}{body}\nret;\n}}\n")
    regions = [(m.address, m.array) for m in memory]
    values = [m.address for m in memory]
    report = launch(module, "k", (blocks, 1, 1), (THREADS, 1, 1), values, regions)
    out[:] = memory[1].array.view(out.dtype)
    return report


def computed(body: str, x: Any, dtype: Any = np.float32) -> Any:
    """What `body` makes of `%r4` in `%r5`."""
    out = np.zeros(THREADS, dtype)
    run(f"ld.global.b32 %r4, [%rd4];\n{body}\nst.global.b32 [%rd5], %r5;", x, out)
    return out


def failure(body: str, elements: int = THREADS, blocks: int = 1) -> str:
    """The error of `body`."""
    with pytest.raises(RuntimeModelError) as caught:
        run(body, np.zeros(elements, np.float32), np.zeros(elements, np.float32), blocks)
    return str(caught.value)


FLOATS = np.random.default_rng(0).standard_normal(THREADS).astype(np.float32)
INTEGERS = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, THREADS).astype(np.int32)
WORDS = INTEGERS.view(np.uint32)
SWAPPED = (WORDS >> np.uint32(16)) | (WORDS << np.uint32(16))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("add.rn.f32 %r5, %r4, 0f3F800000;", FLOATS + np.float32(1)),
        ("div.rn.f32 %r5, %r4, 0f40400000;", FLOATS / np.float32(3)),
        ("neg.f32 %r6, %r4;\nmax.NaN.f32 %r5, %r6, %r4;", np.abs(FLOATS)),
        ("cvt.rni.s32.f32 %r6, %r4;\ncvt.rn.f32.s32 %r5, %r6;", np.rint(FLOATS)),
        ("cvt.rn.f16.f32 %rs1, %r4;\ncvt.f32.f16 %r5, %rs1;", FLOATS.astype(np.float16).astype(np.float32)),
        ("setp.lt.f32 %p1, %r4, 0f00000000;\nselp.b32 %r5, 0, %r4, %p1;", np.maximum(FLOATS, 0)),
        ("setp.gtu.f32 %p1, %r4, 0f7FC00000;\nselp.f32 %r5, 0f3F800000, %r4, %p1;", np.ones(THREADS)),
        ("copysign.f32 %r5, %r4, 0f40000000;", np.copysign(np.float32(2), FLOATS)),
    ],
)  # fmt: skip
def test_floats_are_those_of_ieee(body: str, expected: Any) -> None:
    np.testing.assert_array_equal(computed(body, FLOATS), expected.astype(np.float32))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mul.lo.s32 %r5, %r4, -3;", INTEGERS * np.int32(-3)),
        ("mul.hi.s32 %r5, %r4, %r4;", INTEGERS.astype(np.int64) ** 2 >> 32),
        ("shr.s32 %r5, %r4, 40;", INTEGERS >> 31),
        ("shr.u32 %r5, %r4, 40;", INTEGERS * 0),
        ("shl.b32 %r5, %r4, 4;", (WORDS << np.uint32(4)).view(np.int32)),
        ("bfe.u32 %r5, %r4, 5, 7;", (WORDS >> np.uint32(5)) & 127),
        ("bfe.s32 %r5, %r4, 24, 8;", INTEGERS >> 24),
        ("rem.s32 %r5, %r4, 7;", np.fmod(INTEGERS, 7)),
        ("div.s32 %r5, %r4, -7;", np.trunc(INTEGERS / -7.0)),
        ("clz.b32 %r5, %r4;", np.array([32 - int(w).bit_length() for w in WORDS])),
        ("cvt.u64.u32 %rd6, %r4;\nmul.hi.u64 %rd7, %rd6, -1;\ncvt.u32.u64 %r5, %rd7;", INTEGERS - 1),
        ("cvt.u16.u32 %rs1, %r4;\ncvt.s32.s8 %r5, %rs1;", INTEGERS.astype(np.int8)),
        ("mov.b32 {%rs1, %rs2}, %r4;\nmov.b32 %r5, {%rs2, %rs1};", SWAPPED.view(np.int32)),
    ],
)  # fmt: skip
def test_integers_wrap_around(body: str, expected: Any) -> None:
    np.testing.assert_array_equal(computed(body, INTEGERS, np.int32), expected.astype(np.int32))


def test_a_fused_product_is_rounded_once() -> None:
    one = np.float32(1)
    up, down = one + np.float32(2.0**-12), one - np.float32(2.0**-12)
    product = np.array([up], np.float32), np.array([down], np.float32)
    assert fused(*product, np.array([-1], np.float32))[0] == -(2.0**-24)
    a, b = np.array([1 + 2.0**-23], np.float32), np.array([1 - 2.0**-23], np.float32)
    tie = np.float32(2.0**-24)  # 1 + 2^-23 + 2^-24 - 2^-70 is below the middle of two float32
    assert fused(a * tie, b, a)[0] == np.float32(1 + 2.0**-23)


def test_threads_that_part_meet_again() -> None:
    body = """
        ld.global.b32 %r4, [%rd4];
        and.b32 %r6, %r1, 1;
        setp.eq.b32 %p1, %r6, 0;
        @%p1 bra EVEN;
        mov.b32 %r5, 0f3F800000;
        bra JOIN;
    EVEN:
        mov.b32 %r5, 0f40000000;
    JOIN:
        add.rn.f32 %r5, %r5, %r4;
        st.global.b32 [%rd5], %r5;"""
    out = np.zeros(THREADS, np.float32)
    run(body, FLOATS, out)
    even = np.arange(THREADS) % 2 == 0
    np.testing.assert_array_equal(out, np.where(even, np.float32(2), np.float32(1)) + FLOATS)


SHARED = """
    mov.b32 %r7, tile;
    mad.lo.s32 %r8, %r1, 4, %r7;
    ld.global.b32 %r4, [%rd4];
    st.shared.b32 [%r8], %r4;
    {barrier}
    sub.s32 %r9, 63, %r1;
    mad.lo.s32 %r10, %r9, 4, %r7;
    ld.shared.b32 %r5, [%r10];
    st.global.b32 [%rd5], %r5;"""


def test_threads_of_a_block_exchange_by_shared_memory() -> None:
    out = np.zeros(THREADS, np.float32)
    report = run(SHARED.format(barrier="bar.sync 0;"), FLOATS, out)
    np.testing.assert_array_equal(out, FLOATS[::-1])
    assert report.bank_conflicts == 0
    assert report.used_sectors == 1.0


def test_threads_of_a_warp_exchange_by_shuffles() -> None:
    body = "ld.global.b32 %r4, [%rd4];\nshfl.sync.bfly.b32 %r5|%p1, %r4, 5, 31, -1;\nst.global.b32 [%rd5], %r5;"
    out = np.zeros(THREADS, np.float32)
    run(body, FLOATS, out)
    np.testing.assert_array_equal(out, FLOATS[np.arange(THREADS) ^ 5])


def test_a_fused_product_of_doubles_is_rounded_once() -> None:
    body = """
        cvt.f64.f32 %rd6, %r4;
        fma.rn.f64 %rd7, %rd6, %rd6, 0dBFF0000000000000;
        cvt.rn.f32.f64 %r5, %rd7;"""
    x = np.full(THREADS, 1 + 2.0**-23, np.float32)
    np.testing.assert_array_equal(computed(body, x), np.float32(2.0**-22 + 2.0**-46))


def test_bank_conflicts_are_counted() -> None:
    body = """
        mov.b32 %r7, tile;
        and.b32 %r9, %r1, 1;
        mad.lo.s32 %r8, %r9, 128, %r7;
        mov.b32 %r5, 0;
        st.shared.b32 [%r8], %r5;"""
    report = run(body, FLOATS, np.zeros(THREADS, np.float32))
    assert report.bank_conflicts == 2  # in each of the two warps, two words of one bank


def test_sectors_that_are_not_used_are_counted() -> None:
    body = "add.s64 %rd6, %rd4, %rd3;\nld.global.b32 %r4, [%rd6];"
    report = run(body, np.zeros(2 * THREADS, np.float32), np.zeros(THREADS, np.float32))
    assert report.used_sectors == 0.5


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ld.global.b32 %r4, [%rd4+256];", "thread 0: global access out of bounds"),
        ("ld.global.b32 %r4, [%rd4+4];", "thread 63: global access out of bounds"),
        ("ld.global.b32 %r4, [%rd4+2];", "misaligned 4-byte access"),
        ("ld.global.v2.b32 {%r4, %r5}, [%rd4];", "misaligned 8-byte access"),
        ("st.global.b32 [%rd5], %r9;", "register %r9 is read before it is written"),
        ("mov.b32 %r7, tile;\nld.shared.b32 %r4, [%r7];", "reads shared memory that nobody has written"),
        ("mov.b32 %r7, tile;\nld.shared.b32 %r4, [%r7+256];", "shared memory out of bounds"),
        (SHARED.format(barrier=""), "reads what another thread wrote"),
        ("setp.eq.b32 %p1, %r1, 3;\n@%p1 bar.sync 0;", "divergent barrier"),
        ("AGAIN:\nbra AGAIN;", "no end after"),
        ("setp.eq.b32 %p1, %r1, 3;\n@%p1 shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;", "a part of a warp"),
    ],
)  # fmt: skip
def test_what_a_gpu_does_not_forgive_is_found(
    body: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xcompile.compiler.ptx.interpreter._MOST_INSTRUCTIONS", 1000)
    text = failure(body)
    assert text.startswith("XC5009 kernel 'k', PTX line ")
    assert message in text


def test_blocks_that_write_one_element_are_found() -> None:
    body = "add.s32 %r5, %r2, 7;\nst.global.b32 [%rd2], %r5;"
    assert "race" in failure(body, blocks=2, elements=2 * THREADS)
    assert "race" in failure("st.global.b32 [%rd2], %r2;", blocks=2, elements=2 * THREADS)


def test_blocks_that_read_what_others_write_are_found() -> None:
    body = """
        mov.b32 %r5, 1;
        st.global.b32 [%rd5], %r5;
        sub.s32 %r6, 127, %r3;
        mul.wide.u32 %rd6, %r6, 4;
        add.s64 %rd7, %rd2, %rd6;
        ld.global.b32 %r7, [%rd7];"""
    message = "race between blocks: reads what another block has written"
    assert message in failure(body, blocks=2, elements=2 * THREADS)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("ex2.approx.f32 %r5, %r4;", "the instruction 'ex2.approx.f32 %r5, %r4;' is not known"),
        ("cvt.rn.satfinite.f16.f32 %rs1, %r4;", "the conversion"),
        ("add.rn.f32 %r99, %r1, %r1;", "a result is no register"),
        ("bra NOWHERE;", "a branch leads nowhere"),
    ],
)
def test_what_is_not_known_is_refused(body: str, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        run(body, FLOATS, np.zeros(THREADS, np.float32))
    assert str(caught.value).startswith("XC4013 PTX line ")
    assert message in str(caught.value)


OWN = ".local .align 8 .b8 own[16];\nmov.b64 %rd8, own;\n"


@pytest.mark.parametrize("space", [".local", ""])
def test_local_memory_is_each_threads_own(space: str) -> None:
    """A thread finds what it wrote, whatever the others wrote; generic addresses mean the same bytes."""
    body = f"""{OWN}cvta.local.u64 %rd9, %rd8;
    ld.global.b32 %r4, [%rd4];
    st{space}.b32 [%rd9+8], %r4;
    st{space}.b32 [%rd9+4], 7;
    ld.local.b32 %r5, [%rd8+8];
    st.global.b32 [%rd5], %r5;"""
    out = np.zeros(2 * THREADS, np.int32)
    x = np.concatenate([INTEGERS, ~INTEGERS])
    run(body, x, out, blocks=2)
    np.testing.assert_array_equal(out, x)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("ld.local.b32 %r5, [%rd8+16];", "local access out of bounds"),
        ("ld.local.b32 %r5, [%rd8-4];", "local access out of bounds"),
        ("ld.local.b32 %r5, [%rd4];", "local access out of bounds"),
        ("setp.eq.s32 %p1, %r1, 3;\nselp.b64 %rd9, %rd4, %rd8, %p1;\nld.b32 %r5, [%rd9];",
         "some threads access local memory where others access global memory"),
    ],
)  # fmt: skip
def test_accesses_of_local_memory_are_checked(body: str, problem: str) -> None:
    assert problem in failure(OWN + body)


def test_sums_of_bfloat16_are_rounded_once() -> None:
    """1 + 2^-8 lies between two and goes to the even one, a little more goes up."""
    one, half = (np.float32(v).view(np.uint32) >> 16 for v in (1.0, 2.0**-8))
    body = f"""mov.b16 %rs1, {half}; mov.b16 %rs2, {one};
    fma.rn.bf16 %rs3, %rs1, %rs2, %rs2;
    cvt.u32.u16 %r5, %rs3;"""
    assert set(computed(body, FLOATS, np.uint32)) == {0x3F80}
    near = 0x3F80 | 1  # 1 + 2^-7; (1 + 2^-7) · 2^-8 is half a step and 2^-15 more
    body = f"""mov.b16 %rs1, {near}; mov.b16 %rs2, {half};
    mov.b16 %rs3, {one};
    fma.rn.bf16 %rs3, %rs1, %rs2, %rs3;
    cvt.u32.u16 %r5, %rs3;"""
    assert set(computed(body, FLOATS, np.uint32)) == {0x3F81}
