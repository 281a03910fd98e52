// RUN: opt --passes=nn-pool-to-mean --explain=nn-pool-to-mean %s | filecheck %s

// CHECK: "nn.reduce_mean"(%{{.*}}) {axes = array<i64: 2, 3>} : (tensor<1x8x7x7xf32>) -> tensor<1x8x1x1xf32>
func.func @main(%x: tensor<1x8x7x7xf32>) -> tensor<1x8x1x1xf32> {
  %0 = "nn.average_pool"(%x) {kernel = array<i64: 7, 7>, strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x8x7x7xf32>) -> tensor<1x8x1x1xf32>
  return %0 : tensor<1x8x1x1xf32>
}
// -----
// CHECK: "nn.average_pool"
// CHECK: {{.*}} missed {{.*}}: the window is not the whole image
func.func @main(%x: tensor<1x8x8x7xf32>) -> tensor<1x8x2x1xf32> {
  %0 = "nn.average_pool"(%x) {kernel = array<i64: 7, 7>, strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x8x8x7xf32>) -> tensor<1x8x2x1xf32>
  return %0 : tensor<1x8x2x1xf32>
}
// -----
// CHECK: "nn.average_pool"
// CHECK: {{.*}} missed {{.*}}: there are several windows
func.func @main(%x: tensor<1x8x7x7xf32>) -> tensor<1x8x3x3xf32> {
  %0 = "nn.average_pool"(%x) {kernel = array<i64: 7, 7>, strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x8x7x7xf32>) -> tensor<1x8x3x3xf32>
  return %0 : tensor<1x8x3x3xf32>
}
// -----
// CHECK: %[[M:.*]] = "nn.reduce_mean"(%{{.*}}) {axes = array<i64: 2, 3>} : (tensor<?x8x?x7xf32>) -> tensor<?x8x1x1xf32>
// CHECK: "nn.squeeze"(%[[M]]) {axes = array<i64: 2, 3>} : (tensor<?x8x1x1xf32>) -> tensor<?x8xf32>
func.func @main(%x: tensor<?x8x?x7xf32>) -> tensor<?x8xf32> {
  %0 = "nn.reduce_mean"(%x) {axes = array<i64: 2, 3>, keepdims = false} : (tensor<?x8x?x7xf32>) -> tensor<?x8xf32>
  return %0 : tensor<?x8xf32>
}
// -----
// CHECK: "nn.reduce_mean"(%{{.*}}) {axes = array<i64: 1, 2>, keepdims = false}
// CHECK: MeanOfImageKeepsAxes missed {{.*}}: it is no mean over images that loses their axes
func.func @main(%x: tensor<1x8x7x7xf32>) -> tensor<1x7xf32> {
  %0 = "nn.reduce_mean"(%x) {axes = array<i64: 1, 2>, keepdims = false} : (tensor<1x8x7x7xf32>) -> tensor<1x7xf32>
  return %0 : tensor<1x7xf32>
}
