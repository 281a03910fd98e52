"""Kernel text to running machine code: lowering, LLVM and the loader."""

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest

from xcompile.compiler.codegen.job import MachineSpec
from xcompile.compiler.codegen.llvm import compile_object
from xcompile.compiler.codegen.loader import LoadedObjects
from xcompile.compiler.codegen.lowering import lower_kernel, lower_module, nesting_depth
from xcompile.compiler.support.errors import CompileError

HOST = MachineSpec(llvm.get_process_triple(), llvm.get_host_cpu_name())
SCALE = """
func.func @scale(%x: memref<1xf32> {llvm.noalias}, %y: memref<1xf32> {llvm.noalias},
                 %tmp: memref<1xi8> {llvm.noalias}, %n: index, %begin: index, %end: index) {
  %step = arith.constant 8 : index
  %zero = arith.constant 0 : index
  %mark = arith.constant 7 : i8
  memref.store %mark, %tmp[%zero] : memref<1xi8>
  %half = arith.constant dense<0.1> : vector<8xf32>
  %xv = memref.reinterpret_cast %x to offset: [0], sizes: [%n], strides: [1]
      : memref<1xf32> to memref<?xf32>
  %yv = memref.reinterpret_cast %y to offset: [0], sizes: [%n], strides: [1]
      : memref<1xf32> to memref<?xf32>
  scf.for %i = %begin to %end step %step {
    %a = vector.load %xv[%i] : memref<?xf32>, vector<8xf32>
    %b = arith.mulf %a, %half : vector<8xf32>
    vector.store %b, %yv[%i] : memref<?xf32>, vector<8xf32>
  }
  return
}"""
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def test_a_task_unpacks_its_record_and_does_its_part() -> None:
    ir = lower_kernel(SCALE, "scale", buffers=3, sizes=1, scratch=True)
    code, _ = compile_object(ir, HOST)
    loaded = LoadedObjects([code], {}, ["scale_task"])
    x = np.arange(32, dtype=np.float32)
    y, scratch = np.zeros(32, np.float32), np.zeros(64, np.uint8)
    record = np.array([x.ctypes.data, y.ctypes.data, 32], np.int64)
    TASK(loaded.address("scale_task"))(record.ctypes.data, 8, 24, scratch.ctypes.data)
    np.testing.assert_array_equal(y[8:24], x[8:24] * np.float32(0.1))
    assert not y[:8].any()
    assert not y[24:].any()
    assert scratch[0] == 7


def test_a_host_module_calls_tasks_of_other_objects() -> None:
    host = lower_module("""
        llvm.func @scale_task(!llvm.ptr, i64, i64, !llvm.ptr)
        llvm.func @parallel(!llvm.ptr, !llvm.ptr, i64)
        func.func @entry(%record: !llvm.ptr, %n: i64) -> i32 {
          %task = llvm.mlir.addressof @scale_task : !llvm.ptr
          llvm.call @parallel(%task, %record, %n) : (!llvm.ptr, !llvm.ptr, i64) -> ()
          %status = arith.constant -3 : i32
          return %status : i32
        }""")
    kernel = lower_kernel(SCALE, "scale", buffers=3, sizes=1, scratch=True)
    calls: list[tuple[int, int, int]] = []
    parallel = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(
        lambda task, record, n: calls.append((task, record, n))
    )
    address = ctypes.cast(parallel, ctypes.c_void_p).value
    assert address is not None
    loaded = LoadedObjects(
        [compile_object(host, HOST)[0], compile_object(kernel, HOST)[0]],
        {"parallel": address},
        ["entry", "scale_task"],
    )
    entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64, ctypes.c_int64)
    assert entry(loaded.address("entry"))(4096, 9) == -3
    assert calls == [(loaded.address("scale_task"), 4096, 9)]


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"buffers": 2, "sizes": 1, "scratch": False}, "2 buffers"),
        ({"buffers": 3, "sizes": 0, "scratch": False}, "0 sizes"),
        ({"buffers": 4, "sizes": 0, "scratch": True}, "4 buffers"),
    ],
)
def test_a_kernel_that_differs_from_its_announcement_is_refused(counts: dict, reason: str) -> None:
    with pytest.raises(CompileError, match=reason) as caught:
        lower_kernel(SCALE, "scale", **counts)
    assert caught.value.code == "XC4004"


@pytest.mark.parametrize(
    ("text", "code", "reason"),
    [
        ("garbage", "XC4004", "'garbage' is unknown"),
        (
            "func.func @f(%x: index) { %c = arith.addi %x, %y : index\n return }",
            "XC4004",
            "undeclared",
        ),
        (
            "func.func @f(%x: f32) -> f32 { %y = math.erf %x : f32\n return %y : f32 }",
            "XC4005",
            "math.erf",
        ),
        ("func.func @f(%x: memref<?xf32>) { return }", "XC4005", "func.func"),
        (
            "func.func @f() { " + "scf.execute_region { " * 257,
            "XC4004",
            "deeper than 256",
        ),
    ],
)
def test_bad_modules_are_refused_before_translation(text: str, code: str, reason: str) -> None:
    with pytest.raises(CompileError, match=reason) as caught:
        lower_module(text)
    assert caught.value.code == code


def test_nesting_counts_brackets_but_not_arrows_strings_and_comments() -> None:
    assert nesting_depth('(a -> [b]) "((((" // {{{{\n {x >= (y)}') == 2
    assert nesting_depth("-> -> -> (((") == 3


def test_the_same_module_gives_the_same_bytes() -> None:
    ir = lower_kernel(SCALE, "scale", buffers=3, sizes=1, scratch=True)
    assert compile_object(ir, HOST) == compile_object(ir, HOST)
    assert ir == lower_kernel(SCALE, "scale", buffers=3, sizes=1, scratch=True)


def test_512_bit_vectors_stay_whole_on_processors_that_prefer_256() -> None:
    wide = SCALE.replace("8xf32>", "16xf32>").replace("constant 8", "constant 16")
    ir = lower_kernel(wide, "scale", buffers=3, sizes=1, scratch=True)
    spec = MachineSpec("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx512f,+avx512vl")
    _, listing = compile_object(ir, spec, listing=True)
    assert listing is not None
    assert "vmulps" in listing
    assert "zmm" in listing
    assert "ymm" not in listing


def test_code_has_no_unwind_tables_and_is_position_independent() -> None:
    ir = lower_module(
        "llvm.mlir.global external @g() : i64\nfunc.func @f() -> !llvm.ptr {"
        "%p = llvm.mlir.addressof @g : !llvm.ptr\n return %p : !llvm.ptr }"
    )
    spec = MachineSpec("x86_64-unknown-linux-gnu")
    code, listing = compile_object(ir, spec, listing=True)
    assert listing is not None
    assert "g@GOTPCREL(%rip)" in listing
    assert b".eh_frame" not in code


def test_an_object_for_aarch64_is_made_on_any_host() -> None:
    ir = lower_kernel(SCALE, "scale", buffers=3, sizes=1, scratch=True)
    code, _ = compile_object(ir, MachineSpec("aarch64-unknown-linux-gnu", "", "+neon"))
    assert code[:4] == b"\x7fELF"
    assert code[18] == 183  # EM_AARCH64


@pytest.mark.parametrize(
    ("ir", "triple"),
    [
        ("define garbage", HOST.triple),
        ("define void @f() {\n  ret void\n}", "nomachine-none-none"),
    ],
)
def test_what_llvm_refuses_is_one_error(ir: str, triple: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_object(ir, MachineSpec(triple))
    assert caught.value.code == "XC4006"
    assert "\n" not in str(caught.value)


def test_loading_reports_damage_missing_and_double_symbols() -> None:
    code, _ = compile_object(lower_module("func.func @f() { return }"), HOST)
    for objects, exports, reason in [
        ([b"garbage"], ["f"], "not recognized"),
        ([code], ["g"], "g"),
        ([code, code], ["f"], "duplicate"),
    ]:
        with pytest.raises(CompileError, match=reason) as caught:
            LoadedObjects(objects, {}, exports)
        assert caught.value.code == "XC4008"


def test_libm_is_found_in_the_process_and_addresses_end_with_close() -> None:
    code, _ = compile_object(
        lower_module(
            "func.func @f(%x: f64, %y: f64) -> f64 { %z = arith.remf %x, %y : f64\n return %z : f64 }"
        ),
        HOST,
    )
    loaded = LoadedObjects([code], {}, ["f"])
    function = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_double)
    assert function(loaded.address("f"))(7.5, 2.0) == 1.5
    loaded.close()
    loaded.close()
    with pytest.raises(ValueError, match="unloaded"):
        loaded.address("f")
