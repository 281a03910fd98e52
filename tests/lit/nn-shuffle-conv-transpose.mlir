// RUN: opt --passes=nn-shuffle-conv-transpose{lanes=8} --explain=nn-shuffle-conv-transpose %s | filecheck %s

// CHECK: %[[Y:.*]] = "nn.conv"(%{{.*}}, %{{.*}}, %{{.*}}) {dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x8x5x5xf32>, tensor<4x8x1x1xf32>, tensor<4xf32>) -> tensor<1x4x5x5xf32>
// CHECK: "nn.depth_to_space"(%[[Y]]) {block = 2 : i64, mode = "CRD"} : (tensor<1x4x5x5xf32>) -> tensor<1x1x10x10xf32>
func.func @main(%x: tensor<1x8x5x5xf32>) -> tensor<1x1x10x10xf32> {
  %w = "nn.const"() {value = dense<0.5> : tensor<8x1x2x2xf32>} : () -> tensor<8x1x2x2xf32>
  %b = "nn.const"() {value = dense<0.25> : tensor<1xf32>} : () -> tensor<1xf32>
  %0 = "nn.conv_transpose"(%x, %w, %b) {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, output_pads = array<i64: 0, 0>} : (tensor<1x8x5x5xf32>, tensor<8x1x2x2xf32>, tensor<1xf32>) -> tensor<1x1x10x10xf32>
  return %0 : tensor<1x1x10x10xf32>
}
// -----
// CHECK: %[[P:.*]] = "nn.depth_to_space"
// CHECK: "nn.slice"(%[[P]], %{{.*}}, %{{.*}}, %{{.*}}) {{.*}} : (tensor<1x2x10x10xf32>, tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<1x2x9x9xf32>
func.func @main(%x: tensor<1x8x5x5xf32>) -> tensor<1x2x9x9xf32> {
  %w = "nn.const"() {value = dense<0.5> : tensor<8x1x3x3xf32>} : () -> tensor<8x1x3x3xf32>
  %0 = "nn.conv_transpose"(%x, %w) {groups = 2 : i64, strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, output_pads = array<i64: 0, 0>} : (tensor<1x8x5x5xf32>, tensor<8x1x3x3xf32>) -> tensor<1x2x9x9xf32>
  return %0 : tensor<1x2x9x9xf32>
}
// -----
// CHECK: "nn.conv_transpose"
// CHECK: missed {{.*}}: phases of their own compute no more than twice as much
func.func @main(%x: tensor<1x8x5x5xf32>) -> tensor<1x8x10x10xf32> {
  %w = "nn.const"() {value = dense<0.5> : tensor<8x8x2x2xf32>} : () -> tensor<8x8x2x2xf32>
  %0 = "nn.conv_transpose"(%x, %w) {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, output_pads = array<i64: 0, 0>} : (tensor<1x8x5x5xf32>, tensor<8x8x2x2xf32>) -> tensor<1x8x10x10xf32>
  return %0 : tensor<1x8x10x10xf32>
}
// -----
// CHECK: "nn.conv_transpose"
// CHECK: missed {{.*}}: the weight is not a constant
func.func @main(%x: tensor<1x8x5x5xf32>, %w: tensor<8x1x2x2xf32>) -> tensor<1x1x10x10xf32> {
  %0 = "nn.conv_transpose"(%x, %w) {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, output_pads = array<i64: 0, 0>} : (tensor<1x8x5x5xf32>, tensor<8x1x2x2xf32>) -> tensor<1x1x10x10xf32>
  return %0 : tensor<1x1x10x10xf32>
}
