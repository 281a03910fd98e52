"""Emitters that misbehave, each in its own way; loaded into workers as a plug-in file."""

import ctypes
import os
import sys
import time

from xcompile.compiler.codegen.job import EmittedKernel, EmittedModule

SCALE = """
func.func @NAME(%x: memref<1xf32> {llvm.noalias}, %y: memref<1xf32> {llvm.noalias}, %n: index,
                %begin: index, %end: index) {
  %step = arith.constant 8 : index
  %factor = arith.constant dense<FACTOR> : vector<8xf32>
  %xv = memref.reinterpret_cast %x to offset: [0], sizes: [%n], strides: [1]
      : memref<1xf32> to memref<?xf32>
  %yv = memref.reinterpret_cast %y to offset: [0], sizes: [%n], strides: [1]
      : memref<1xf32> to memref<?xf32>
  scf.for %i = %begin to %end step %step {
    %a = vector.load %xv[%i] : memref<?xf32>, vector<8xf32>
    %b = arith.mulf %a, %factor : vector<8xf32>
    vector.store %b, %yv[%i] : memref<?xf32>, vector<8xf32>
  }
  return
}"""


def scale(payload: dict) -> EmittedKernel:
    text = SCALE.replace("NAME", payload["symbol"]).replace("FACTOR", str(payload["factor"]))
    return EmittedKernel(text, payload["symbol"], 2, 1, metadata={"extent": payload["factor"]})


def echo(payload: dict) -> dict:
    return {"pid": os.getpid(), **payload}


def sleep(payload: dict) -> dict:
    time.sleep(payload["s"])
    return {}


def raises(payload: dict) -> EmittedKernel:
    raise ZeroDivisionError("no such\nluck")


def calls_exit(payload: dict) -> EmittedKernel:
    sys.exit("goodbye")


def exits_at_once(payload: dict) -> EmittedKernel:
    os._exit(7)


def recurses(payload: dict) -> EmittedKernel:
    return recurses(payload)


def loops(payload: dict) -> EmittedKernel:
    while True:
        pass


def segfaults(payload: dict) -> EmittedKernel:
    return ctypes.string_at(0)


def aborts(payload: dict) -> EmittedKernel:
    os.abort()


def eats_memory(payload: dict) -> EmittedKernel:
    return [bytes(1 << 26) for _ in range(10**9)]


def eats_memory_in_native_code(payload: dict) -> EmittedModule:
    return EmittedModule(
        "llvm.mlir.global external @g(dense<1> : tensor<8000000000xi8>) : !llvm.array<8000000000 x i8>"
    )


def prints(payload: dict) -> EmittedKernel:
    print("{" * 100_000)
    os.write(1, b"\0" * 100_000)
    os.write(2, b"noise\n" * 100_000)
    return scale(payload)


def writes_into_the_pipe(payload: dict) -> EmittedKernel:
    for descriptor in range(3, 10):
        try:
            os.write(descriptor, b"garbage")
        except OSError:
            continue
    return scale(payload)


def closes_the_pipe(payload: dict) -> EmittedKernel:
    os.closerange(3, 10)
    time.sleep(60)


def returns_a_number(payload: dict) -> EmittedKernel:
    return 42


def returns_what_is_not_json(payload: dict) -> dict:
    return {"x": object()}


def returns_what_is_not_text(payload: dict) -> EmittedKernel:
    return EmittedKernel(None, 1, 2, 3)


def nests_deep(payload: dict) -> EmittedModule:
    return EmittedModule("func.func @f() { " + "scf.execute_region { " * 20_000)


def loops_in_native_code(payload: dict) -> EmittedModule:
    """MLIR's parser holds the interpreter lock for minutes: it simplifies a sum in quadratic time."""
    terms = " + ".join(f"d0 mod {i}" for i in range(2, 200_000))
    return EmittedModule(f"#map = affine_map<(d0) -> ({terms})>\nfunc.func @f() {{ return }}")


def does_not_parse(payload: dict) -> EmittedModule:
    return EmittedModule("func.func @f( {")


def does_not_lower(payload: dict) -> EmittedModule:
    return EmittedModule(
        "func.func @f(%x: f32) -> f32 { %y = math.erf %x : f32\n return %y : f32 }"
    )


def cannot_be_selected(payload: dict) -> EmittedModule:
    """An instruction of SSSE3 for a machine that has none."""
    return EmittedModule("""
        func.func @f(%p: memref<1xi8>) {
          %zero = arith.constant 0 : index
          %v = memref.reinterpret_cast %p to offset: [0], sizes: [16], strides: [1]
              : memref<1xi8> to memref<16xi8>
          %a = vector.load %v[%zero] : memref<16xi8>, vector<16xi8>
          %r = llvm.call_intrinsic "llvm.x86.ssse3.pshuf.b.128"(%a, %a)
              : (vector<16xi8>, vector<16xi8>) -> vector<16xi8>
          vector.store %r, %v[%zero] : memref<16xi8>, vector<16xi8>
          return
        }""")


def names_an_unknown_intrinsic(payload: dict) -> EmittedModule:
    return EmittedModule(
        'func.func @f(%x: f32) { %y = llvm.call_intrinsic "llvm.nonsense"(%x) : (f32) -> f32\n return }'
    )


def differs_from_its_announcement(payload: dict) -> EmittedKernel:
    return EmittedKernel(SCALE.replace("NAME", "k").replace("FACTOR", "2.0"), "k", 3, 0)
