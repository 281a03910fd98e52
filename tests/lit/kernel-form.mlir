// RUN: opt --passes=kernel-form %s | filecheck %s

// An elementwise chain is one kernel; a splat stands in it.
// CHECK: kernel.launch
// CHECK-NOT: kernel.launch
// CHECK: "kernel.func"
// CHECK: "nn.add"
// CHECK: "nn.const"
// CHECK: "nn.mul"
// CHECK: "nn.tanh"
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %c = "nn.const"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "nn.add"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %1 = "nn.mul"(%0, %c) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = "nn.tanh"(%1) : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
// -----
// What several kernels read is computed once.
// CHECK: %[[A:.*]] = "kernel.launch"(%arg0)
// CHECK: "kernel.launch"(%[[A]])
// CHECK: "kernel.launch"(%[[A]])
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = "nn.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "nn.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "nn.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}
// -----
// A contraction ends with the elementwise ops behind it, and stores its result transposed.
// CHECK: kernel.launch
// CHECK-NOT: kernel.launch
// CHECK: "nn.matmul"
// CHECK: "nn.relu"
// CHECK: "nn.transpose"
func.func @main(%x: tensor<2x3x4x8xf32>, %y: tensor<2x3x8x5xf32>) -> tensor<2x4x3x5xf32> {
  %0 = "nn.matmul"(%x, %y) : (tensor<2x3x4x8xf32>, tensor<2x3x8x5xf32>) -> tensor<2x3x4x5xf32>
  %1 = "nn.relu"(%0) : (tensor<2x3x4x5xf32>) -> tensor<2x3x4x5xf32>
  %2 = "nn.transpose"(%1) {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x3x4x5xf32>) -> tensor<2x4x3x5xf32>
  return %2 : tensor<2x4x3x5xf32>
}
// -----
// A transposition that moves the last axis is a kernel of its own.
// CHECK: kernel.launch
// CHECK: kernel.launch
func.func @main(%x: tensor<4x8xf32>, %y: tensor<8x5xf32>) -> tensor<5x4xf32> {
  %0 = "nn.matmul"(%x, %y) : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
  %1 = "nn.transpose"(%0) {perm = array<i64: 1, 0>} : (tensor<4x5xf32>) -> tensor<5x4xf32>
  return %1 : tensor<5x4xf32>
}
// -----
// A view is no kernel; sizes become Dims and leave no code.
// CHECK: %[[A:.*]] = "kernel.launch"(%arg0)
// CHECK: "kernel.view"(%[[A]]) {shape = "arg0_0;12"}
// CHECK-NOT: "nn.shape"
func.func @main(%x: tensor<?x3x4xf32>) -> tensor<?x12xf32> {
  %0 = "nn.relu"(%x) : (tensor<?x3x4xf32>) -> tensor<?x3x4xf32>
  %1 = "nn.flatten"(%0) : (tensor<?x3x4xf32>) -> tensor<?x12xf32>
  %2 = "nn.shape"(%x) : (tensor<?x3x4xf32>) -> tensor<3xi64>
  return %1 : tensor<?x12xf32>
}
// -----
// An exponential is not computed again for each element that a broadcast makes of it.
// CHECK: kernel.launch
// CHECK: kernel.launch
func.func @main(%x: tensor<1x4xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = "nn.exp"(%x) : (tensor<1x4xf32>) -> tensor<1x4xf32>
  %1 = "nn.add"(%0, %y) : (tensor<1x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}
// -----
// What is read at many places is computed once: here each element of the result depends on four of the exponential.
// CHECK: kernel.launch
// CHECK: kernel.launch
// CHECK-NOT: kernel.launch
// CHECK: "kernel.func"
func.func @main(%x: tensor<10xf32>) -> tensor<8xf32> {
  %zero = "nn.const"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
  %one = "nn.const"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
  %eight = "nn.const"() {value = dense<8> : tensor<1xi64>} : () -> tensor<1xi64>
  %nine = "nn.const"() {value = dense<9> : tensor<1xi64>} : () -> tensor<1xi64>
  %ten = "nn.const"() {value = dense<10> : tensor<1xi64>} : () -> tensor<1xi64>
  %0 = "nn.exp"(%x) : (tensor<10xf32>) -> tensor<10xf32>
  %1 = "nn.slice"(%0, %zero, %nine) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<10xf32>, tensor<1xi64>, tensor<1xi64>) -> tensor<9xf32>
  %2 = "nn.slice"(%0, %one, %ten) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<10xf32>, tensor<1xi64>, tensor<1xi64>) -> tensor<9xf32>
  %3 = "nn.add"(%1, %2) : (tensor<9xf32>, tensor<9xf32>) -> tensor<9xf32>
  %4 = "nn.slice"(%3, %zero, %eight) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<9xf32>, tensor<1xi64>, tensor<1xi64>) -> tensor<8xf32>
  %5 = "nn.slice"(%3, %one, %nine) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<9xf32>, tensor<1xi64>, tensor<1xi64>) -> tensor<8xf32>
  %6 = "nn.add"(%4, %5) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %6 : tensor<8xf32>
}
// -----
// A pool over a blocked image reads memory; what is in front of it is not its prologue.
// CHECK: kernel.launch
// CHECK: kernel.launch
// CHECK-NOT: kernel.launch
// CHECK: "kernel.func"
func.func @main(%x: tensor<1x16x4x4xf32, #nn.layout<"NCHW16c">>) -> tensor<1x16x1x1xf32> {
  %0 = "nn.relu"(%x) : (tensor<1x16x4x4xf32, #nn.layout<"NCHW16c">>) -> tensor<1x16x4x4xf32, #nn.layout<"NCHW16c">>
  %1 = "nn.reduce_mean"(%0) {axes = array<i64: 2, 3>, keepdims = true} : (tensor<1x16x4x4xf32, #nn.layout<"NCHW16c">>) -> tensor<1x16x1x1xf32>
  return %1 : tensor<1x16x1x1xf32>
}
// -----
// Branches hold launches. What one yields is stored by an op of its own, also a value from around the branch; chains do not
// grow into a branch or out of it.
// CHECK: %[[A:.*]] = "kernel.launch"(%arg1) {callee = "exp_0"
// CHECK: %[[Y:.*]] = "nn.if"(%arg0) ({
// CHECK-NEXT: %[[T:.*]] = "kernel.launch"(%[[A]]) {callee = "relu_tanh_1"
// CHECK-NEXT: "nn.yield"(%[[T]])
// CHECK: %[[E:.*]] = "kernel.launch"(%arg1) {callee = "copy_2"
// CHECK-NEXT: "nn.yield"(%[[E]])
// CHECK: }) {xc.shapes = ["4"]}
// CHECK-NEXT: "kernel.launch"(%[[Y]]) {callee = "neg_3"
func.func @main(%c: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %a = "nn.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %y = "nn.if"(%c) ({
    %0 = "nn.relu"(%a) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "nn.tanh"(%0) : (tensor<4xf32>) -> tensor<4xf32>
    "nn.yield"(%1) : (tensor<4xf32>) -> ()
  }, {
    "nn.yield"(%x) : (tensor<4xf32>) -> ()
  }) : (tensor<i1>) -> tensor<4xf32>
  %z = "nn.neg"(%y) : (tensor<4xf32>) -> tensor<4xf32>
  return %z : tensor<4xf32>
}
// -----
// A loop says its shapes and its number of iterations. A value that is carried and stacked is stored once for each.
// CHECK: %[[L:.*]]:2 = "nn.loop"(%{{.*}}, %arg0) ({
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<i64>, %[[A:.*]]: tensor<?x4xf32>):
// CHECK-NEXT: %[[B:.*]] = "kernel.launch"(%[[A]], %arg0) {callee = "exp_add_0", shapes = ["N;4"], sizes = ["N"]}
// CHECK: %[[C:.*]] = "kernel.launch"(%[[B]]) {callee = "copy_2"
// CHECK-NEXT: "nn.yield"(%{{.*}}, %[[B]], %[[C]])
// CHECK-NEXT: xc.carried = ["N;4"], xc.shapes = ["N;4", "5;N;4"], xc.trip = "5"
module attributes {xc.input_dims = ["N,4"]} {
func.func @main(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<5x?x4xf32>) {
  %n = "nn.const"() {value = dense<5> : tensor<i64>} : () -> tensor<i64>
  %go = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
  %y, %all = "nn.loop"(%n, %x) ({
  ^body(%i: tensor<i64>, %a: tensor<?x4xf32>):
    %0 = "nn.exp"(%a) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %1 = "nn.add"(%0, %x) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    "nn.yield"(%go, %1, %1) : (tensor<i1>, tensor<?x4xf32>, tensor<?x4xf32>) -> ()
  }) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<i64>, tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<5x?x4xf32>)
  return %y, %all : tensor<?x4xf32>, tensor<5x?x4xf32>
}
}
// -----
// A cast behind bounds by constants is marked; one of any number is not.
// CHECK: "nn.minimum"
// CHECK-NEXT: "nn.cast"({{.*}}xc.fits
// CHECK: kernel.func
// CHECK-NOT: xc.fits
// CHECK: kernel.return
func.func @main(%x: tensor<4x8xf32>, %z: tensor<5x8xf32>) -> (tensor<4x8xi32>, tensor<5x8xi32>) {
  %l = "nn.const"() {value = dense<-3.0> : tensor<f32>} : () -> tensor<f32>
  %h = "nn.const"() {value = dense<252.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "nn.maximum"(%x, %l) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %1 = "nn.minimum"(%0, %h) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %2 = "nn.cast"(%1) {to = "i32"} : (tensor<4x8xf32>) -> tensor<4x8xi32>
  %3 = "nn.maximum"(%z, %l) : (tensor<5x8xf32>, tensor<f32>) -> tensor<5x8xf32>
  %4 = "nn.cast"(%3) {to = "i32"} : (tensor<5x8xf32>) -> tensor<5x8xi32>
  return %2, %4 : tensor<4x8xi32>, tensor<5x8xi32>
}
// -----
// What is made of integers by finite constants is no NaN, and the sign of a zero is lost in the integers.
// CHECK: "nn.maximum"({{.*}}xc.plain
// CHECK: "nn.minimum"({{.*}}xc.plain
// CHECK: "nn.cast"({{.*}}xc.fits, xc.plain
func.func @main(%x: tensor<4x8xi32>) -> tensor<4x8xi32> {
  %s = "nn.const"() {value = dense<0.1> : tensor<f32>} : () -> tensor<f32>
  %l = "nn.const"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %h = "nn.const"() {value = dense<252.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "nn.cast"(%x) {to = "f32"} : (tensor<4x8xi32>) -> tensor<4x8xf32>
  %1 = "nn.mul"(%0, %s) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %2 = "nn.maximum"(%1, %l) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %3 = "nn.minimum"(%2, %h) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %4 = "nn.cast"(%3) {to = "i32"} : (tensor<4x8xf32>) -> tensor<4x8xi32>
  return %4 : tensor<4x8xi32>
}
// -----
// Infinities may become NaN, and a result shows the sign of its zeros.
// CHECK-NOT: xc.plain
// CHECK: "mul_maximum_2"
func.func @main(%x: tensor<4x8xi32>) -> (tensor<4x8xi32>, tensor<4x8xf32>) {
  %s = "nn.const"() {value = dense<1.0e38> : tensor<f32>} : () -> tensor<f32>
  %t = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %l = "nn.const"() {value = dense<-9.0> : tensor<f32>} : () -> tensor<f32>
  %h = "nn.const"() {value = dense<252.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "nn.cast"(%x) {to = "f32"} : (tensor<4x8xi32>) -> tensor<4x8xf32>
  %1 = "nn.mul"(%0, %s) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %2 = "nn.maximum"(%1, %l) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %3 = "nn.minimum"(%2, %h) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %4 = "nn.cast"(%3) {to = "i32"} : (tensor<4x8xf32>) -> tensor<4x8xi32>
  %5 = "nn.mul"(%0, %t) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %6 = "nn.maximum"(%5, %l) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  return %4, %6 : tensor<4x8xi32>, tensor<4x8xf32>
}
// -----
// Quantized and dequantized in one kernel: the floats need not be integers in between.
// CHECK: %[[WHOLE:.*]] = "nn.round"
// CHECK-NEXT: "nn.const"
// CHECK-NEXT: "nn.mul"(%[[WHOLE]]
// CHECK: "nn.cast"({{.*}}i32
// CHECK-NOT: "nn.cast"
// CHECK: kernel.return
func.func @main(%x: tensor<4x8xi32>) -> tensor<4x8xi32> {
  %l = "nn.const"() {value = dense<-128.0> : tensor<f32>} : () -> tensor<f32>
  %h = "nn.const"() {value = dense<127.0> : tensor<f32>} : () -> tensor<f32>
  %z = "nn.const"() {value = dense<128> : tensor<i32>} : () -> tensor<i32>
  %s = "nn.const"() {value = dense<0.3> : tensor<f32>} : () -> tensor<f32>
  %0 = "nn.cast"(%x) {to = "f32"} : (tensor<4x8xi32>) -> tensor<4x8xf32>
  %1 = "nn.maximum"(%0, %l) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %2 = "nn.minimum"(%1, %h) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %3 = "nn.round"(%2) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %4 = "nn.cast"(%3) {to = "i32"} : (tensor<4x8xf32>) -> tensor<4x8xi32>
  %5 = "nn.add"(%4, %z) : (tensor<4x8xi32>, tensor<i32>) -> tensor<4x8xi32>
  %6 = "nn.cast"(%5) {to = "ui8"} : (tensor<4x8xi32>) -> tensor<4x8xui8>
  %7 = "nn.cast"(%6) {to = "i32"} : (tensor<4x8xui8>) -> tensor<4x8xi32>
  %8 = "nn.sub"(%7, %z) : (tensor<4x8xi32>, tensor<i32>) -> tensor<4x8xi32>
  %9 = "nn.cast"(%8) {to = "f32"} : (tensor<4x8xi32>) -> tensor<4x8xf32>
  %10 = "nn.mul"(%9, %s) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %11 = "nn.maximum"(%10, %l) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %12 = "nn.cast"(%11) {to = "i32"} : (tensor<4x8xf32>) -> tensor<4x8xi32>
  return %12 : tensor<4x8xi32>
}
// -----
// The bytes do not hold all of the numbers: they wrap.
// CHECK: "nn.cast"({{.*}}to = "ui8"
// CHECK: "nn.cast"({{.*}}to = "f32"
func.func @main(%x: tensor<4x8xi32>) -> tensor<4x8xi32> {
  %l = "nn.const"() {value = dense<-128.0> : tensor<f32>} : () -> tensor<f32>
  %h = "nn.const"() {value = dense<128.0> : tensor<f32>} : () -> tensor<f32>
  %z = "nn.const"() {value = dense<128> : tensor<i32>} : () -> tensor<i32>
  %0 = "nn.cast"(%x) {to = "f32"} : (tensor<4x8xi32>) -> tensor<4x8xf32>
  %1 = "nn.maximum"(%0, %l) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %2 = "nn.minimum"(%1, %h) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %3 = "nn.round"(%2) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %4 = "nn.cast"(%3) {to = "i32"} : (tensor<4x8xf32>) -> tensor<4x8xi32>
  %5 = "nn.add"(%4, %z) : (tensor<4x8xi32>, tensor<i32>) -> tensor<4x8xi32>
  %6 = "nn.cast"(%5) {to = "ui8"} : (tensor<4x8xi32>) -> tensor<4x8xui8>
  %7 = "nn.cast"(%6) {to = "i32"} : (tensor<4x8xui8>) -> tensor<4x8xi32>
  %8 = "nn.sub"(%7, %z) : (tensor<4x8xi32>, tensor<i32>) -> tensor<4x8xi32>
  %9 = "nn.cast"(%8) {to = "f32"} : (tensor<4x8xi32>) -> tensor<4x8xf32>
  %10 = "nn.maximum"(%9, %l) : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xf32>
  %11 = "nn.cast"(%10) {to = "i32"} : (tensor<4x8xf32>) -> tensor<4x8xi32>
  return %11 : tensor<4x8xi32>
}
// -----
// A slice whose elements follow one another in what is in memory anyway is a view; one that is not is read by its kernel.
// CHECK-DAG: "kernel.view"(%arg0) {axis = 1 : i64, shape = "1;2;3", start = "1"}
// CHECK-NOT: kernel.view
// CHECK: "kernel.func"
// CHECK: "nn.slice"
func.func @main(%x: tensor<1x4x3xf32>, %w: tensor<3x3xf32>) -> (tensor<1x2x3xf32>, tensor<1x4x1xf32>) {
  %one = "nn.const"() {value = dense<1> : tensor<1xi64>} : () -> tensor<1xi64>
  %two = "nn.const"() {value = dense<2> : tensor<1xi64>} : () -> tensor<1xi64>
  %three = "nn.const"() {value = dense<3> : tensor<1xi64>} : () -> tensor<1xi64>
  %0 = "nn.slice"(%x, %one, %three, %one) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>} : (tensor<1x4x3xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1x2x3xf32>
  %1 = "nn.matmul"(%0, %w) : (tensor<1x2x3xf32>, tensor<3x3xf32>) -> tensor<1x2x3xf32>
  %2 = "nn.slice"(%x, %two, %three, %two) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>} : (tensor<1x4x3xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<1x4x1xf32>
  %3 = "nn.relu"(%2) : (tensor<1x4x1xf32>) -> tensor<1x4x1xf32>
  return %1, %3 : tensor<1x2x3xf32>, tensor<1x4x1xf32>
}
