// RUN: opt --passes=nn-sink-transposes --explain=nn-sink-transposes %s | filecheck %s

// CHECK: %[[B:.*]] = "nn.const"() {{.*}} : () -> tensor<1x8x1x1xf32>
// CHECK: %[[A:.*]] = "nn.add"(%arg0, %[[B]]) : (tensor<?x8x?x?xf32>, tensor<1x8x1x1xf32>) -> tensor<?x8x?x?xf32>
// CHECK: %[[R:.*]] = "nn.relu"(%[[A]])
// CHECK: return %[[R]] : tensor<?x8x?x?xf32>
// CHECK: ElementwiseOfTransposed fired
// CHECK: TransposeOfTranspose fired
func.func @main(%x: tensor<?x8x?x?xf32>) -> tensor<?x8x?x?xf32> {
  %b = "nn.const"() {value = dense<[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]> : tensor<8xf32>} : () -> tensor<8xf32>
  %0 = "nn.transpose"(%x) {perm = array<i64: 0, 2, 3, 1>} : (tensor<?x8x?x?xf32>) -> tensor<?x?x?x8xf32>
  %1 = "nn.add"(%0, %b) : (tensor<?x?x?x8xf32>, tensor<8xf32>) -> tensor<?x?x?x8xf32>
  %2 = "nn.relu"(%1) : (tensor<?x?x?x8xf32>) -> tensor<?x?x?x8xf32>
  %3 = "nn.transpose"(%2) {perm = array<i64: 0, 3, 1, 2>} : (tensor<?x?x?x8xf32>) -> tensor<?x8x?x?xf32>
  return %3 : tensor<?x8x?x?xf32>
}
// -----
// CHECK: %[[P:.*]] = "nn.pad"(%arg0, %{{.*}}, %{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 0, 1>} : (tensor<1x8x4x6xf32>, tensor<8xi64>, tensor<4xi64>) -> tensor<1x8x5x6xf32>
// CHECK: %[[H:.*]]:2 = "nn.split"(%[[P]]) {axis = 1 : i64
// CHECK: %[[C:.*]] = "nn.concat"(%[[H]]#1, %[[P]]) {axis = 1 : i64}
// CHECK: %[[M:.*]] = "nn.reduce_mean"(%[[C]]) {axes = array<i64: 2, 3>, keepdims = false} : (tensor<1x12x5x6xf32>) -> tensor<1x12xf32>
// CHECK-NOT: "nn.transpose"
// CHECK: return %[[M]]
func.func @main(%x: tensor<1x8x4x6xf32>) -> tensor<1x12xf32> {
  %pads = "nn.const"() {value = dense<[0, 1, 0, 0, 0, 0, 0, 0]> : tensor<8xi64>} : () -> tensor<8xi64>
  %0 = "nn.transpose"(%x) {perm = array<i64: 0, 2, 3, 1>} : (tensor<1x8x4x6xf32>) -> tensor<1x4x6x8xf32>
  %1 = "nn.pad"(%0, %pads) {operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<1x4x6x8xf32>, tensor<8xi64>) -> tensor<1x5x6x8xf32>
  %2, %3 = "nn.split"(%1) {axis = -1 : i64} : (tensor<1x5x6x8xf32>) -> (tensor<1x5x6x4xf32>, tensor<1x5x6x4xf32>)
  %4 = "nn.concat"(%3, %1) {axis = 3 : i64} : (tensor<1x5x6x4xf32>, tensor<1x5x6x8xf32>) -> tensor<1x5x6x12xf32>
  %5 = "nn.reduce_mean"(%4) {axes = array<i64: 1, 2>, keepdims = false} : (tensor<1x5x6x12xf32>) -> tensor<1x12xf32>
  return %5 : tensor<1x12xf32>
}
// -----
// CHECK: %[[S:.*]] = "nn.slice"(%arg0, %{{.*}}, %{{.*}}, %{{.*}}) {{.*}} -> tensor<1x8x3x6xf32>
// CHECK: %[[D:.*]] = "nn.cast"(%[[S]]) {to = "f16"}
// CHECK: "nn.transpose"(%[[D]]) {perm = array<i64: 0, 2, 3, 1>}
// CHECK: SliceOfTransposed fired
// CHECK: CastOfTransposed fired
func.func @main(%x: tensor<1x8x4x6xf32>) -> tensor<1x3x6x8xf16> {
  %starts = "nn.const"() {value = dense<[0, 1]> : tensor<2xi64>} : () -> tensor<2xi64>
  %ends = "nn.const"() {value = dense<[1, 4]> : tensor<2xi64>} : () -> tensor<2xi64>
  %0 = "nn.transpose"(%x) {perm = array<i64: 0, 2, 3, 1>} : (tensor<1x8x4x6xf32>) -> tensor<1x4x6x8xf32>
  %1 = "nn.slice"(%0, %starts, %ends) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x4x6x8xf32>, tensor<2xi64>, tensor<2xi64>) -> tensor<1x3x6x8xf32>
  %2 = "nn.cast"(%1) {to = "f16"} : (tensor<1x3x6x8xf32>) -> tensor<1x3x6x8xf16>
  return %2 : tensor<1x3x6x8xf16>
}
// -----
// CHECK: %[[V:.*]] = "nn.squeeze"(%arg0) {axes = array<i64: 2, 3>} : (tensor<?x8x1x1xf32>) -> tensor<?x8xf32>
// CHECK: "nn.unsqueeze"(%[[V]]) {axes = array<i64: 1, 2>} : (tensor<?x8xf32>) -> tensor<?x1x1x8xf32>
// CHECK: TransposeOfPixels fired
func.func @main(%x: tensor<?x8x1x1xf32>) -> tensor<?x1x1x8xf32> {
  %0 = "nn.transpose"(%x) {perm = array<i64: 0, 2, 3, 1>} : (tensor<?x8x1x1xf32>) -> tensor<?x1x1x8xf32>
  return %0 : tensor<?x1x1x8xf32>
}
// -----
// CHECK: %[[T:.*]] = "nn.transpose"(%arg0)
// CHECK: "nn.relu"(%[[T]])
// CHECK: "nn.softmax"(%[[T]])
// CHECK: ElementwiseOfTransposed missed {{.*}}: another op reads the image with its channels at the end
func.func @main(%x: tensor<1x8x4x6xf32>) -> (tensor<1x4x6x8xf32>, tensor<1x4x6x8xf32>) {
  %0 = "nn.transpose"(%x) {perm = array<i64: 0, 2, 3, 1>} : (tensor<1x8x4x6xf32>) -> tensor<1x4x6x8xf32>
  %1 = "nn.relu"(%0) : (tensor<1x4x6x8xf32>) -> tensor<1x4x6x8xf32>
  %2 = "nn.softmax"(%0) {axis = 3 : i64} : (tensor<1x4x6x8xf32>) -> tensor<1x4x6x8xf32>
  return %1, %2 : tensor<1x4x6x8xf32>, tensor<1x4x6x8xf32>
}
// -----
// CHECK: %[[T:.*]] = "nn.transpose"(%arg0)
// CHECK: "nn.add"(%[[T]], %arg1)
// CHECK: ElementwiseOfTransposed missed {{.*}}: another operand has its channels at the end
func.func @main(%x: tensor<1x8x4x6xf32>, %y: tensor<1x4x6x8xf32>) -> tensor<1x4x6x8xf32> {
  %0 = "nn.transpose"(%x) {perm = array<i64: 0, 2, 3, 1>} : (tensor<1x8x4x6xf32>) -> tensor<1x4x6x8xf32>
  %1 = "nn.add"(%0, %y) : (tensor<1x4x6x8xf32>, tensor<1x4x6x8xf32>) -> tensor<1x4x6x8xf32>
  return %1 : tensor<1x4x6x8xf32>
}
// -----
// CHECK: %[[T:.*]] = "nn.transpose"(%arg0) {perm = array<i64: 0, 2, 1, 3>}
// CHECK: "nn.relu"(%[[T]])
// CHECK: ElementwiseOfTransposed missed {{.*}}: no operand is an image whose channels were moved to the end
func.func @main(%x: tensor<1x8x4x6xf32>) -> tensor<1x4x8x6xf32> {
  %0 = "nn.transpose"(%x) {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x8x4x6xf32>) -> tensor<1x4x8x6xf32>
  %1 = "nn.relu"(%0) : (tensor<1x4x8x6xf32>) -> tensor<1x4x8x6xf32>
  return %1 : tensor<1x4x8x6xf32>
}
