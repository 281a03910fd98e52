// RUN: opt --passes=nn-fuse-attention,dce --explain=nn-fuse-attention %s | filecheck %s

// CHECK: %[[K:.*]] = "nn.transpose"(%arg1) {perm = array<i64: 0, 2, 1>}
// CHECK: "nn.fused_attention"(%arg0, %[[K]], %arg2, %arg3) {{.*}}scale = 5.000000e-01
func.func @main(%q: tensor<2x5x8xf32>, %kt: tensor<2x8x6xf32>, %v: tensor<2x6x4xf32>, %m: tensor<2x1x6xf32>) -> tensor<2x5x4xf32> {
  %half = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %0 = "nn.matmul"(%q, %kt) : (tensor<2x5x8xf32>, tensor<2x8x6xf32>) -> tensor<2x5x6xf32>
  %1 = "nn.mul"(%0, %half) : (tensor<2x5x6xf32>, tensor<f32>) -> tensor<2x5x6xf32>
  %2 = "nn.add"(%1, %m) : (tensor<2x5x6xf32>, tensor<2x1x6xf32>) -> tensor<2x5x6xf32>
  %3 = "nn.softmax"(%2) {axis = 2 : i64} : (tensor<2x5x6xf32>) -> tensor<2x5x6xf32>
  %4 = "nn.matmul"(%3, %v) : (tensor<2x5x6xf32>, tensor<2x6x4xf32>) -> tensor<2x5x4xf32>
  return %4 : tensor<2x5x4xf32>
}
// -----
// CHECK: "nn.softmax"
// CHECK: the softmax has other users
func.func @main(%q: tensor<2x5x8xf32>, %kt: tensor<2x8x6xf32>, %v: tensor<2x6x4xf32>) -> (tensor<2x5x4xf32>, tensor<2x5x6xf32>) {
  %0 = "nn.matmul"(%q, %kt) : (tensor<2x5x8xf32>, tensor<2x8x6xf32>) -> tensor<2x5x6xf32>
  %1 = "nn.softmax"(%0) {axis = 2 : i64} : (tensor<2x5x6xf32>) -> tensor<2x5x6xf32>
  %2 = "nn.matmul"(%1, %v) : (tensor<2x5x6xf32>, tensor<2x6x4xf32>) -> tensor<2x5x4xf32>
  return %2, %1 : tensor<2x5x4xf32>, tensor<2x5x6xf32>
}
// -----
// CHECK: "nn.softmax"
// CHECK: the softmax is not along the keys
func.func @main(%q: tensor<2x5x8xf32>, %kt: tensor<2x8x6xf32>, %v: tensor<2x6x4xf32>) -> tensor<2x5x4xf32> {
  %0 = "nn.matmul"(%q, %kt) : (tensor<2x5x8xf32>, tensor<2x8x6xf32>) -> tensor<2x5x6xf32>
  %1 = "nn.softmax"(%0) {axis = 1 : i64} : (tensor<2x5x6xf32>) -> tensor<2x5x6xf32>
  %2 = "nn.matmul"(%1, %v) : (tensor<2x5x6xf32>, tensor<2x6x4xf32>) -> tensor<2x5x4xf32>
  return %2 : tensor<2x5x4xf32>
}
// -----
// CHECK: "nn.softmax"
// CHECK: not known to have the same batch
func.func @main(%q: tensor<1x5x8xf32>, %kt: tensor<1x8x6xf32>, %v: tensor<2x6x4xf32>) -> tensor<2x5x4xf32> {
  %0 = "nn.matmul"(%q, %kt) : (tensor<1x5x8xf32>, tensor<1x8x6xf32>) -> tensor<1x5x6xf32>
  %1 = "nn.softmax"(%0) {axis = 2 : i64} : (tensor<1x5x6xf32>) -> tensor<1x5x6xf32>
  %2 = "nn.matmul"(%1, %v) : (tensor<1x5x6xf32>, tensor<2x6x4xf32>) -> tensor<2x5x4xf32>
  return %2 : tensor<2x5x4xf32>
}
// -----
// A quotient by zero stays one.
// CHECK: nn.softmax
// CHECK-NOT: nn.fused_attention
func.func @main(%q: tensor<2x3x8x4xf32>, %k: tensor<2x3x7x4xf32>, %v: tensor<2x3x7x4xf32>) -> tensor<2x3x8x4xf32> {
  %zero = "nn.const"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "nn.matmul"(%q, %k) {transpose_b = true} : (tensor<2x3x8x4xf32>, tensor<2x3x7x4xf32>) -> tensor<2x3x8x7xf32>
  %1 = "nn.div"(%0, %zero) : (tensor<2x3x8x7xf32>, tensor<f32>) -> tensor<2x3x8x7xf32>
  %2 = "nn.softmax"(%1) {axis = 3 : i64} : (tensor<2x3x8x7xf32>) -> tensor<2x3x8x7xf32>
  %3 = "nn.matmul"(%2, %v) : (tensor<2x3x8x7xf32>, tensor<2x3x7x4xf32>) -> tensor<2x3x8x4xf32>
  return %3 : tensor<2x3x8x4xf32>
}
