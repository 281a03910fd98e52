// RUN: opt --passes=nn-fold-batch-norm --explain=nn-fold-batch-norm %s | filecheck %s

// scale 3, bias 1, mean 0.5, variance 1, epsilon 0: w' = 2·3, b' = 1 - 0.5·3.
// CHECK-LABEL: module @into_a_convolution
// CHECK-DAG: %[[W:.*]] = "nn.const"() {value = dense<6.000000e+00> : tensor<1x1x1xf32>}
// CHECK-DAG: %[[B:.*]] = "nn.const"() {value = dense<-5.000000e-01> : tensor<1xf32>}
// CHECK: %[[Y:.*]] = "nn.conv"(%arg0, %[[W]], %[[B]])
// CHECK-NEXT: return %[[Y]]
// CHECK: // FoldIntoConv fired at norm
module @into_a_convolution {
  func.func @main(%x: tensor<?x1x2xf32>) -> tensor<?x1x2xf32> {
    %w = "nn.const"() {value = dense<2.0> : tensor<1x1x1xf32>} : () -> tensor<1x1x1xf32>
    %scale = "nn.const"() {value = dense<3.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %one = "nn.const"() {value = dense<1.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %mean = "nn.const"() {value = dense<0.5> : tensor<1xf32>} : () -> tensor<1xf32>
    %0 = "nn.conv"(%x, %w) {dilations = array<i64: 1>, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<?x1x2xf32>, tensor<1x1x1xf32>) -> tensor<?x1x2xf32> loc("conv")
    %1 = "nn.batch_norm"(%0, %scale, %one, %mean, %one) {epsilon = 0.0 : f64} : (tensor<?x1x2xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1x2xf32> loc("norm")
    return %1 : tensor<?x1x2xf32>
  }
}

// -----

// CHECK-LABEL: module @a_convolution_with_other_users
// CHECK: %[[CONV:.*]] = "nn.conv"
// CHECK: "nn.mul"(%[[CONV]]
// CHECK: "nn.add"
// CHECK-DAG: // FoldIntoConv missed norm: the convolution has other users
// CHECK-DAG: // ToMulAdd fired at norm
module @a_convolution_with_other_users {
  func.func @main(%x: tensor<?x1x2xf32>) -> (tensor<?x1x2xf32>, tensor<?x1x2xf32>) {
    %w = "nn.const"() {value = dense<2.0> : tensor<1x1x1xf32>} : () -> tensor<1x1x1xf32>
    %one = "nn.const"() {value = dense<1.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %0 = "nn.conv"(%x, %w) {dilations = array<i64: 1>, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<?x1x2xf32>, tensor<1x1x1xf32>) -> tensor<?x1x2xf32> loc("conv")
    %1 = "nn.batch_norm"(%0, %one, %one, %one, %one) : (tensor<?x1x2xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1x2xf32> loc("norm")
    return %0, %1 : tensor<?x1x2xf32>, tensor<?x1x2xf32>
  }
}

// -----

// CHECK-LABEL: module @parameters_that_are_computed
// CHECK: "nn.batch_norm"
// CHECK: // ToMulAdd missed norm: the scale is not a constant
module @parameters_that_are_computed {
  func.func @main(%x: tensor<?x1x2xf32>, %scale: tensor<1xf32>) -> tensor<?x1x2xf32> {
    %one = "nn.const"() {value = dense<1.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %0 = "nn.batch_norm"(%x, %scale, %one, %one, %one) : (tensor<?x1x2xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1x2xf32> loc("norm")
    return %0 : tensor<?x1x2xf32>
  }
}

// -----

// CHECK-LABEL: module @a_variance_of_zero
// CHECK: "nn.batch_norm"
// CHECK: // ToMulAdd missed norm: variance plus epsilon is not positive
module @a_variance_of_zero {
  func.func @main(%x: tensor<?x1x2xf32>) -> tensor<?x1x2xf32> {
    %one = "nn.const"() {value = dense<1.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %zero = "nn.const"() {value = dense<0.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %0 = "nn.batch_norm"(%x, %one, %one, %one, %zero) {epsilon = 0.0 : f64} : (tensor<?x1x2xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<?x1x2xf32> loc("norm")
    return %0 : tensor<?x1x2xf32>
  }
}
