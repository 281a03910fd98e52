// RUN: opt --passes=nn-shuffle-quantized-transpose --explain=nn-shuffle-quantized-transpose %s | filecheck %s

// Weights around their zero point 3: places that a phase does not read hold 3. The ReLU is computed on channels.
// CHECK: %[[Y:.*]] = "nn.conv"(%{{.*}}, %{{.*}}) {dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x2x3x3xf32>, tensor<4x2x1x1xf32>) -> tensor<1x4x3x3xf32>
// CHECK-NEXT: %[[Z:.*]] = "nn.relu"(%[[Y]]) : (tensor<1x4x3x3xf32>) -> tensor<1x4x3x3xf32>
// CHECK-NEXT: "nn.depth_to_space"(%[[Z]]) {block = 2 : i64, mode = "CRD"} : (tensor<1x4x3x3xf32>) -> tensor<1x1x6x6xf32>
func.func @main(%x: tensor<1x2x3x3xui8>) -> tensor<1x1x6x6xf32> {
  %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %z = "nn.const"() {value = dense<3> : tensor<i8>} : () -> tensor<i8>
  %w = "nn.const"() {value = dense<7> : tensor<2x1x2x2xi8>} : () -> tensor<2x1x2x2xi8>
  %dx = "nn.dequantize"(%x, %s) {to = "f32"} : (tensor<1x2x3x3xui8>, tensor<f32>) -> tensor<1x2x3x3xf32>
  %dw = "nn.dequantize"(%w, %s, %z) {to = "f32"} : (tensor<2x1x2x2xi8>, tensor<f32>, tensor<i8>) -> tensor<2x1x2x2xf32>
  %0 = "nn.conv_transpose"(%dx, %dw) {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, output_pads = array<i64: 0, 0>} : (tensor<1x2x3x3xf32>, tensor<2x1x2x2xf32>) -> tensor<1x1x6x6xf32>
  %1 = "nn.relu"(%0) : (tensor<1x1x6x6xf32>) -> tensor<1x1x6x6xf32>
  return %1 : tensor<1x1x6x6xf32>
}
// -----
// CHECK: "nn.conv_transpose"
// CHECK: missed {{.*}}: the input is not dequantized
func.func @main(%x: tensor<1x2x3x3xf32>) -> tensor<1x1x6x6xf32> {
  %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %w = "nn.const"() {value = dense<7> : tensor<2x1x2x2xi8>} : () -> tensor<2x1x2x2xi8>
  %dw = "nn.dequantize"(%w, %s) {to = "f32"} : (tensor<2x1x2x2xi8>, tensor<f32>) -> tensor<2x1x2x2xf32>
  %0 = "nn.conv_transpose"(%x, %dw) {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, output_pads = array<i64: 0, 0>} : (tensor<1x2x3x3xf32>, tensor<2x1x2x2xf32>) -> tensor<1x1x6x6xf32>
  return %0 : tensor<1x1x6x6xf32>
}
// -----
// A scale for each input channel does not leave the sum.
// CHECK: "nn.conv_transpose"
// CHECK: missed {{.*}}: the weight's scales are not those of output channels
func.func @main(%x: tensor<1x2x3x3xui8>) -> tensor<1x1x6x6xf32> {
  %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %t = "nn.const"() {value = dense<[0.5, 0.25]> : tensor<2xf32>} : () -> tensor<2xf32>
  %w = "nn.const"() {value = dense<7> : tensor<2x1x2x2xi8>} : () -> tensor<2x1x2x2xi8>
  %dx = "nn.dequantize"(%x, %s) {to = "f32"} : (tensor<1x2x3x3xui8>, tensor<f32>) -> tensor<1x2x3x3xf32>
  %dw = "nn.dequantize"(%w, %t) {axis = 0 : i64, to = "f32"} : (tensor<2x1x2x2xi8>, tensor<2xf32>) -> tensor<2x1x2x2xf32>
  %0 = "nn.conv_transpose"(%dx, %dw) {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, output_pads = array<i64: 0, 0>} : (tensor<1x2x3x3xf32>, tensor<2x1x2x2xf32>) -> tensor<1x1x6x6xf32>
  return %0 : tensor<1x1x6x6xf32>
}
// -----
// CHECK: "nn.conv_transpose"
// CHECK: missed {{.*}}: the weight's codes are i32, no integers of at most 16 bits
func.func @main(%x: tensor<1x2x3x3xui8>) -> tensor<1x1x6x6xf32> {
  %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %w = "nn.const"() {value = dense<70000> : tensor<2x1x2x2xi32>} : () -> tensor<2x1x2x2xi32>
  %dx = "nn.dequantize"(%x, %s) {to = "f32"} : (tensor<1x2x3x3xui8>, tensor<f32>) -> tensor<1x2x3x3xf32>
  %dw = "nn.dequantize"(%w, %s) {to = "f32"} : (tensor<2x1x2x2xi32>, tensor<f32>) -> tensor<2x1x2x2xf32>
  %0 = "nn.conv_transpose"(%dx, %dw) {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, output_pads = array<i64: 0, 0>} : (tensor<1x2x3x3xf32>, tensor<2x1x2x2xf32>) -> tensor<1x1x6x6xf32>
  return %0 : tensor<1x1x6x6xf32>
}
// -----
// CHECK: "nn.conv_transpose"
// CHECK: missed {{.*}}: the weight's codes are f8E4M3FN, no integers of at most 16 bits
func.func @main(%x: tensor<1x2x3x3xui8>) -> tensor<1x1x6x6xf32> {
  %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
  %w = "nn.const"() {value = dense<0.5> : tensor<2x1x2x2xf8E4M3FN>} : () -> tensor<2x1x2x2xf8E4M3FN>
  %dx = "nn.dequantize"(%x, %s) {to = "f32"} : (tensor<1x2x3x3xui8>, tensor<f32>) -> tensor<1x2x3x3xf32>
  %dw = "nn.dequantize"(%w, %s) {to = "f32"} : (tensor<2x1x2x2xf8E4M3FN>, tensor<f32>) -> tensor<2x1x2x2xf32>
  %0 = "nn.conv_transpose"(%dx, %dw) {strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, output_pads = array<i64: 0, 0>} : (tensor<1x2x3x3xf32>, tensor<2x1x2x2xf32>) -> tensor<1x1x6x6xf32>
  return %0 : tensor<1x1x6x6xf32>
}
