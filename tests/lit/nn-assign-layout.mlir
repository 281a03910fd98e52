// RUN: opt --passes=nn-assign-layout %s | filecheck %s

// Convolutions and what lies between them are blocked; a first one reads the plain image.
// CHECK-NOT: nn.relayout
// CHECK: "nn.conv"(%arg0, %{{.*}}) {{.*}} -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
// CHECK: "nn.relu"(%{{.*}}) : (tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>) -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
// CHECK: "nn.conv"(%{{.*}}) {{.*}} -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
// CHECK: %[[Y:.*]] = "nn.relayout"(%{{.*}}) : (tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>) -> tensor<1x8x6x6xf32>
// CHECK: return %[[Y]]
func.func @main(%x: tensor<1x3x6x6xf32>) -> tensor<1x8x6x6xf32> {
  %w = "nn.const"() {value = dense<1.0> : tensor<8x3x3x3xf32>} : () -> tensor<8x3x3x3xf32>
  %v = "nn.const"() {value = dense<1.0> : tensor<8x8x3x3xf32>} : () -> tensor<8x8x3x3xf32>
  %0 = "nn.conv"(%x, %w) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x3x6x6xf32>, tensor<8x3x3x3xf32>) -> tensor<1x8x6x6xf32>
  %1 = "nn.relu"(%0) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  %2 = "nn.conv"(%1, %v) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
  return %2 : tensor<1x8x6x6xf32>
}
// -----
// A value that is read in both layouts is converted once.
// CHECK: "nn.relayout"
// CHECK-NOT: "nn.relayout"
func.func @main(%x: tensor<1x3x6x6xf32>) -> (tensor<8x36xf32>, tensor<1x6x6x8xf32>) {
  %w = "nn.const"() {value = dense<1.0> : tensor<8x3x3x3xf32>} : () -> tensor<8x3x3x3xf32>
  %s = "nn.const"() {value = dense<[8, 36]> : tensor<2xi64>} : () -> tensor<2xi64>
  %0 = "nn.conv"(%x, %w) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x3x6x6xf32>, tensor<8x3x3x3xf32>) -> tensor<1x8x6x6xf32>
  %1 = "nn.reshape"(%0, %s) : (tensor<1x8x6x6xf32>, tensor<2xi64>) -> tensor<8x36xf32>
  %2 = "nn.transpose"(%0) {perm = array<i64: 0, 2, 3, 1>} : (tensor<1x8x6x6xf32>) -> tensor<1x6x6x8xf32>
  return %1, %2 : tensor<8x36xf32>, tensor<1x6x6x8xf32>
}
// -----
// Weights that are not constant, and graphs without convolutions, stay as they are.
// CHECK: func.func @main(%arg0: tensor<1x3x6x6xf32>, %arg1: tensor<8x3x3x3xf32>)
// CHECK-NEXT: "nn.conv"(%arg0, %arg1) {{.*}} -> tensor<1x8x6x6xf32>
// CHECK-NEXT: "nn.relu"(%{{.*}}) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
func.func @main(%x: tensor<1x3x6x6xf32>, %w: tensor<8x3x3x3xf32>) -> tensor<1x8x6x6xf32> {
  %0 = "nn.conv"(%x, %w) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x3x6x6xf32>, tensor<8x3x3x3xf32>) -> tensor<1x8x6x6xf32>
  %1 = "nn.relu"(%0) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  return %1 : tensor<1x8x6x6xf32>
}
// -----
// Concatenations stay blocked, whatever the numbers of channels.
// CHECK: "nn.concat"(%{{.*}}) {{.*}} -> tensor<1x12x6x6xf32, #nn.layout<"NCHW8c">>
func.func @main(%x: tensor<1x3x6x6xf32>) -> tensor<1x12x6x6xf32> {
  %w = "nn.const"() {value = dense<1.0> : tensor<8x3x3x3xf32>} : () -> tensor<8x3x3x3xf32>
  %v = "nn.const"() {value = dense<2.0> : tensor<4x3x3x3xf32>} : () -> tensor<4x3x3x3xf32>
  %0 = "nn.conv"(%x, %w) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x3x6x6xf32>, tensor<8x3x3x3xf32>) -> tensor<1x8x6x6xf32>
  %1 = "nn.conv"(%x, %v) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x3x6x6xf32>, tensor<4x3x3x3xf32>) -> tensor<1x4x6x6xf32>
  %2 = "nn.concat"(%1, %0) {axis = 1 : i64} : (tensor<1x4x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x12x6x6xf32>
  return %2 : tensor<1x12x6x6xf32>
}
// -----
// Branches read blocked what is blocked around them, and yield row-major values.
// CHECK: %[[X:.*]] = "nn.conv"(%arg1, %{{.*}}) {{.*}} -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
// CHECK-NEXT: %[[Y:.*]] = "nn.if"(%arg0) ({
// CHECK-NEXT: "nn.conv"(%[[X]], %{{.*}}) {{.*}} -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
// CHECK-NEXT: %[[T:.*]] = "nn.relayout"
// CHECK-NEXT: "nn.yield"(%[[T]]) : (tensor<1x8x6x6xf32>)
// CHECK: "nn.relu"(%[[X]]) : (tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>) -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
// CHECK-NEXT: %[[E:.*]] = "nn.relayout"
// CHECK-NEXT: "nn.yield"(%[[E]]) : (tensor<1x8x6x6xf32>)
// CHECK: }) : (tensor<i1>) -> tensor<1x8x6x6xf32>
// CHECK-NEXT: "nn.conv"(%[[Y]], %{{.*}}) {{.*}} -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
func.func @main(%c: tensor<i1>, %x: tensor<1x3x6x6xf32>) -> tensor<1x8x6x6xf32> {
  %w = "nn.const"() {value = dense<1.0> : tensor<8x3x3x3xf32>} : () -> tensor<8x3x3x3xf32>
  %v = "nn.const"() {value = dense<1.0> : tensor<8x8x3x3xf32>} : () -> tensor<8x8x3x3xf32>
  %0 = "nn.conv"(%x, %w) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x3x6x6xf32>, tensor<8x3x3x3xf32>) -> tensor<1x8x6x6xf32>
  %1 = "nn.if"(%c) ({
    %t = "nn.conv"(%0, %v) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
    "nn.yield"(%t) : (tensor<1x8x6x6xf32>) -> ()
  }, {
    %e = "nn.relu"(%0) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
    "nn.yield"(%e) : (tensor<1x8x6x6xf32>) -> ()
  }) : (tensor<i1>) -> tensor<1x8x6x6xf32>
  %2 = "nn.conv"(%1, %v) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
  return %2 : tensor<1x8x6x6xf32>
}
// -----
// What a loop carries is row-major; inside, convolutions and what lies between them are blocked.
// CHECK: ^bb0(%{{.*}}: tensor<i64>, %[[A:.*]]: tensor<1x8x6x6xf32>):
// CHECK-NEXT: %[[C:.*]] = "nn.conv"(%[[A]], %{{.*}}) {{.*}} -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
// CHECK-NEXT: %[[R:.*]] = "nn.relu"(%[[C]]) {{.*}} -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
// CHECK-NEXT: %[[D:.*]] = "nn.conv"(%[[R]], %{{.*}}) {{.*}} -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
// CHECK-NEXT: %[[B:.*]] = "nn.relayout"(%[[D]])
// CHECK-NEXT: "nn.yield"(%{{.*}}, %[[B]]) : (tensor<i1>, tensor<1x8x6x6xf32>)
func.func @main(%n: tensor<i64>, %x: tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32> {
  %v = "nn.const"() {value = dense<1.0> : tensor<8x8x3x3xf32>} : () -> tensor<8x8x3x3xf32>
  %go = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
  %y = "nn.loop"(%n, %x) ({
  ^body(%i: tensor<i64>, %a: tensor<1x8x6x6xf32>):
    %0 = "nn.conv"(%a, %v) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
    %1 = "nn.relu"(%0) : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
    %2 = "nn.conv"(%1, %v) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x8x6x6xf32>, tensor<8x8x3x3xf32>) -> tensor<1x8x6x6xf32>
    "nn.yield"(%go, %2) : (tensor<i1>, tensor<1x8x6x6xf32>) -> ()
  }) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<i64>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
  return %y : tensor<1x8x6x6xf32>
}
// -----
// Images of 8-bit integers are blocked, and what is computed between their sums and the bytes behind them.
// CHECK: "nn.conv_integer"(%arg0, %{{.*}}) {{.*}} -> tensor<1x8x6x6xi32, #nn.layout<"NCHW8c">>
// CHECK: "nn.cast"({{.*}} -> tensor<1x8x6x6xf32, #nn.layout<"NCHW8c">>
// CHECK: "nn.cast"({{.*}} -> tensor<1x8x6x6xui8, #nn.layout<"NCHW8c">>
// CHECK: "nn.max_pool"({{.*}} -> tensor<1x8x3x3xui8, #nn.layout<"NCHW8c">>
// CHECK: "nn.reduce_sum"({{.*}}#nn.layout<"NCHW8c">>) -> tensor<1x8x1x1xi32>
func.func @main(%x: tensor<1x3x6x6xui8>) -> tensor<1x8x1x1xi32> {
  %w = "nn.const"() {value = dense<1> : tensor<8x3x3x3xi8>} : () -> tensor<8x3x3x3xi8>
  %0 = "nn.conv_integer"(%x, %w) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64, auto_pad = "notset", operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<1x3x6x6xui8>, tensor<8x3x3x3xi8>) -> tensor<1x8x6x6xi32>
  %1 = "nn.cast"(%0) {to = "f32"} : (tensor<1x8x6x6xi32>) -> tensor<1x8x6x6xf32>
  %2 = "nn.cast"(%1) {to = "ui8"} : (tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xui8>
  %3 = "nn.max_pool"(%2) {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x8x6x6xui8>) -> tensor<1x8x3x3xui8>
  %4 = "nn.cast"(%3) {to = "i32"} : (tensor<1x8x3x3xui8>) -> tensor<1x8x3x3xi32>
  %5 = "nn.reduce_sum"(%4) {axes = array<i64: 2, 3>, keepdims = true} : (tensor<1x8x3x3xi32>) -> tensor<1x8x1x1xi32>
  return %5 : tensor<1x8x1x1xi32>
}
// -----
// Volumes have layouts of their own; a mean over all places of a channel reads blocks.
// CHECK: "nn.conv"(%arg0, %{{.*}}) {{.*}} -> tensor<1x8x4x6x6xf32, #nn.layout<"NCDHW8c">>
// CHECK-NEXT: "nn.max_pool"(%{{.*}}) {{.*}} -> tensor<1x8x2x3x3xf32, #nn.layout<"NCDHW8c">>
// CHECK-NEXT: "nn.reduce_mean"(%{{.*}}) {{.*}} -> tensor<1x8x1x1x1xf32>
// CHECK-NEXT: return
func.func @main(%x: tensor<1x3x4x6x6xf32>) -> tensor<1x8x1x1x1xf32> {
  %w = "nn.const"() {value = dense<1.0> : tensor<8x3x1x1x1xf32>} : () -> tensor<8x3x1x1x1xf32>
  %0 = "nn.conv"(%x, %w) {strides = array<i64: 1, 1, 1>, pads = array<i64: 0, 0, 0, 0, 0, 0>, dilations = array<i64: 1, 1, 1>} : (tensor<1x3x4x6x6xf32>, tensor<8x3x1x1x1xf32>) -> tensor<1x8x4x6x6xf32>
  %1 = "nn.max_pool"(%0) {kernel = array<i64: 2, 2, 2>, strides = array<i64: 2, 2, 2>, pads = array<i64: 0, 0, 0, 0, 0, 0>, dilations = array<i64: 1, 1, 1>} : (tensor<1x8x4x6x6xf32>) -> tensor<1x8x2x3x3xf32>
  %2 = "nn.reduce_mean"(%1) {axes = array<i64: 2, 3, 4>, keepdims = true} : (tensor<1x8x2x3x3xf32>) -> tensor<1x8x1x1x1xf32>
  return %2 : tensor<1x8x1x1x1xf32>
}
