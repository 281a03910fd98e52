// RUN: opt --passes=nn-assign-layout,nn-choose-winograd{mode=f4} %s | filecheck %s
// RUN: opt --passes=nn-assign-layout,nn-choose-winograd{mode=off} %s | filecheck %s --check-prefix=OFF

// The first convolution reads a plain image, the third has stride 2: only the second is marked.
// CHECK: strides = array<i64: 1, 1>} : (tensor<1x3x32x32xf32>
// CHECK-NEXT: strides = array<i64: 1, 1>, xc.winograd = 4 : i64} : (tensor<1x64x32x32xf32
// CHECK-NEXT: strides = array<i64: 2, 2>} : (tensor<1x64x32x32xf32
// OFF-NOT: xc.winograd
// OFF: return
func.func @main(%x: tensor<1x3x32x32xf32>) -> tensor<1x64x16x16xf32> {
  %w = "nn.const"() {value = dense<1.0> : tensor<64x3x3x3xf32>} : () -> tensor<64x3x3x3xf32>
  %v = "nn.const"() {value = dense<1.0> : tensor<64x64x3x3xf32>} : () -> tensor<64x64x3x3xf32>
  %0 = "nn.conv"(%x, %w) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x3x32x32xf32>, tensor<64x3x3x3xf32>) -> tensor<1x64x32x32xf32>
  %1 = "nn.conv"(%0, %v) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x64x32x32xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x32x32xf32>
  %2 = "nn.conv"(%1, %v) {strides = array<i64: 2, 2>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>} : (tensor<1x64x32x32xf32>, tensor<64x64x3x3xf32>) -> tensor<1x64x16x16xf32>
  return %2 : tensor<1x64x16x16xf32>
}
