// RUN: opt --passes=nn-fold-scale --explain=nn-fold-scale %s | filecheck %s

// CHECK-LABEL: module @factors_around_a_convolution
// CHECK: "nn.const"() {value = dense<{{\[\[\[}}8.000000e+00]], {{\[\[}}1.600000e+01]]]> : tensor<2x1x1xf32>}
// CHECK: "nn.conv"(%arg0,
// CHECK-NEXT: return
module @factors_around_a_convolution {
  func.func @main(%x: tensor<?x1x4xf32>) -> tensor<?x2x4xf32> {
    %w = "nn.const"() {value = dense<2.0> : tensor<2x1x1xf32>} : () -> tensor<2x1x1xf32>
    %c = "nn.const"() {value = dense<[[1.0], [2.0]]> : tensor<2x1xf32>} : () -> tensor<2x1xf32>
    %four = "nn.const"() {value = dense<4.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.mul"(%x, %four) : (tensor<?x1x4xf32>, tensor<f32>) -> tensor<?x1x4xf32>
    %1 = "nn.conv"(%0, %w) {dilations = array<i64: 1>, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<?x1x4xf32>, tensor<2x1x1xf32>) -> tensor<?x2x4xf32>
    %2 = "nn.mul"(%c, %1) : (tensor<2x1xf32>, tensor<?x2x4xf32>) -> tensor<?x2x4xf32>
    return %2 : tensor<?x2x4xf32>
  }
}

// -----

// CHECK-LABEL: module @a_shift_before_padding
// CHECK: "nn.add"
// CHECK: "nn.conv"
// CHECK: // AddBeforeConv missed conv: the convolution pads, and padding is not shifted
module @a_shift_before_padding {
  func.func @main(%x: tensor<1x1x2xf32>) -> tensor<1x1x2xf32> {
    %w = "nn.const"() {value = dense<1.0> : tensor<1x1x3xf32>} : () -> tensor<1x1x3xf32>
    %ten = "nn.const"() {value = dense<10.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.add"(%x, %ten) : (tensor<1x1x2xf32>, tensor<f32>) -> tensor<1x1x2xf32>
    %1 = "nn.conv"(%0, %w) {dilations = array<i64: 1>, pads = array<i64: 1, 1>, strides = array<i64: 1>} : (tensor<1x1x2xf32>, tensor<1x1x3xf32>) -> tensor<1x1x2xf32> loc("conv")
    return %1 : tensor<1x1x2xf32>
  }
}

// -----

// CHECK-LABEL: module @a_factor_of_rows
// CHECK: "nn.mul"
// CHECK: // MulBehindMatMul missed mul: the constant differs along other axes than the channels
module @a_factor_of_rows {
  func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %w = "nn.const"() {value = dense<[[1.0, 0.0], [0.0, 1.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %c = "nn.const"() {value = dense<[[10.0], [20.0]]> : tensor<2x1xf32>} : () -> tensor<2x1xf32>
    %0 = "nn.matmul"(%x, %w) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    %1 = "nn.mul"(%0, %c) : (tensor<2x2xf32>, tensor<2x1xf32>) -> tensor<2x2xf32> loc("mul")
    return %1 : tensor<2x2xf32>
  }
}

// -----

// CHECK-LABEL: module @a_factor_that_overflows
// CHECK: "nn.mul"
// CHECK: // MulBehindMatMul missed mul: a folded constant is not finite in float32
module @a_factor_that_overflows {
  func.func @main(%x: tensor<2x1xf32>) -> tensor<2x1xf32> {
    %w = "nn.const"() {value = dense<1.0e30> : tensor<1x1xf32>} : () -> tensor<1x1xf32>
    %c = "nn.const"() {value = dense<1.0e30> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.matmul"(%x, %w) : (tensor<2x1xf32>, tensor<1x1xf32>) -> tensor<2x1xf32>
    %1 = "nn.mul"(%0, %c) : (tensor<2x1xf32>, tensor<f32>) -> tensor<2x1xf32> loc("mul")
    return %1 : tensor<2x1xf32>
  }
}
