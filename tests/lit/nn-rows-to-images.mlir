// RUN: opt --passes=nn-rows-to-images --explain=nn-rows-to-images %s | filecheck %s

// CHECK: %[[X:.*]] = "nn.unsqueeze"(%{{.*}}) {axes = array<i64: 2>} : (tensor<1x8x?xf32>) -> tensor<1x8x1x?xf32>
// CHECK: %[[W:.*]] = "nn.unsqueeze"(%{{.*}}) {axes = array<i64: 2>} : (tensor<4x8x3xf32>) -> tensor<4x8x1x3xf32>
// CHECK: %[[Y:.*]] = "nn.conv"(%[[X]], %[[W]]) {dilations = array<i64: 1, 2>, pads = array<i64: 0, 1, 0, 2>, strides = array<i64: 1, 3>}
// CHECK: %[[Z:.*]] = "nn.relu"(%[[Y]])
// CHECK: "nn.squeeze"(%[[Z]]) {axes = array<i64: 2>}
// CHECK: ConvOfRow fired
// CHECK: ElementwiseOfRow fired
func.func @main(%x: tensor<1x8x?xf32>, %w: tensor<4x8x3xf32>) -> tensor<1x4x?xf32> {
  %0 = "nn.conv"(%x, %w) {strides = array<i64: 3>, pads = array<i64: 1, 2>, dilations = array<i64: 2>} : (tensor<1x8x?xf32>, tensor<4x8x3xf32>) -> tensor<1x4x?xf32>
  %1 = "nn.relu"(%0) : (tensor<1x4x?xf32>) -> tensor<1x4x?xf32>
  return %1 : tensor<1x4x?xf32>
}
// -----
// CHECK: %[[P:.*]] = "nn.max_pool"(%{{.*}}) {ceil_mode = true, dilations = array<i64: 1, 1>, kernel = array<i64: 1, 2>, pads = array<i64: 0, 0, 0, 1>, strides = array<i64: 1, 2>}
// CHECK: %[[T:.*]] = "nn.conv_transpose"(%[[P]], %{{.*}}) {dilations = array<i64: 1, 1>, output_pads = array<i64: 0, 1>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 2>}
// CHECK: %[[C:.*]] = "nn.concat"(%[[T]], %{{.*}}) {axis = 1 : i64} : (tensor<1x8x1x12xf32>, tensor<1x8x1x12xf32>) -> tensor<1x16x1x12xf32>
// CHECK: %[[R:.*]] = "nn.resize"(%[[C]]) {axes = array<i64: 3>
// CHECK: %[[M:.*]] = "nn.reduce_mean"(%[[R]]) {axes = array<i64: 2, 3>} : (tensor<1x16x1x24xf32>) -> tensor<1x16x1x1xf32>
// CHECK: "nn.squeeze"(%[[M]]) {axes = array<i64: 2>} : (tensor<1x16x1x1xf32>) -> tensor<1x16x1xf32>
func.func @main(%x: tensor<1x8x10xf32>, %w: tensor<8x8x3xf32>, %y: tensor<1x8x12xf32>) -> tensor<1x16x1xf32> {
  %0 = "nn.max_pool"(%x) {kernel = array<i64: 2>, strides = array<i64: 2>, pads = array<i64: 0, 1>, dilations = array<i64: 1>, ceil_mode = true} : (tensor<1x8x10xf32>) -> tensor<1x8x5xf32>
  %1 = "nn.conv_transpose"(%0, %w) {strides = array<i64: 2>, pads = array<i64: 0, 0>, dilations = array<i64: 1>, output_pads = array<i64: 1>} : (tensor<1x8x5xf32>, tensor<8x8x3xf32>) -> tensor<1x8x12xf32>
  %2 = "nn.concat"(%1, %y) {axis = -2 : i64} : (tensor<1x8x12xf32>, tensor<1x8x12xf32>) -> tensor<1x16x12xf32>
  %3 = "nn.resize"(%2) {operandSegmentSizes = array<i32: 1, 0, 0, 0>, axes = array<i64: 2>, factors = array<f64: 2.0>} : (tensor<1x16x12xf32>) -> tensor<1x16x24xf32>
  %4 = "nn.reduce_mean"(%3) {axes = array<i64: 2>} : (tensor<1x16x24xf32>) -> tensor<1x16x1xf32>
  return %4 : tensor<1x16x1xf32>
}
// -----
// CHECK: "nn.conv"(%{{.*}}, %{{.*}}) {{.*}} : (tensor<1x8x9x9xf32>
// CHECK: ConvOfRow missed {{.*}}: it is not over one axis
func.func @main(%x: tensor<1x8x9x9xf32>, %w: tensor<4x8x3x3xf32>) -> tensor<1x4x7x7xf32> {
  %0 = "nn.conv"(%x, %w) {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x8x9x9xf32>, tensor<4x8x3x3xf32>) -> tensor<1x4x7x7xf32>
  return %0 : tensor<1x4x7x7xf32>
}
