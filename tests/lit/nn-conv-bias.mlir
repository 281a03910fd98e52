// RUN: opt --passes=nn-conv-bias --explain=nn-conv-bias %s | filecheck %s

// CHECK-LABEL: module @additions_of_channels
// CHECK: %[[B:.*]] = "nn.const"() {value = dense<[9.000000e+00, 1.900000e+01]> : tensor<2xf32>}
// CHECK: "nn.conv"(%arg0, %{{.*}}, %[[B]])
// CHECK-NEXT: return
module @additions_of_channels {
  func.func @main(%x: tensor<?x1x4xf32>) -> tensor<?x2x4xf32> {
    %w = "nn.const"() {value = dense<2.0> : tensor<2x1x1xf32>} : () -> tensor<2x1x1xf32>
    %c = "nn.const"() {value = dense<[[10.0], [20.0]]> : tensor<2x1xf32>} : () -> tensor<2x1xf32>
    %one = "nn.const"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.conv"(%x, %w) {dilations = array<i64: 1>, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<?x1x4xf32>, tensor<2x1x1xf32>) -> tensor<?x2x4xf32>
    %1 = "nn.add"(%c, %0) : (tensor<2x1xf32>, tensor<?x2x4xf32>) -> tensor<?x2x4xf32>
    %2 = "nn.sub"(%1, %one) : (tensor<?x2x4xf32>, tensor<f32>) -> tensor<?x2x4xf32>
    return %2 : tensor<?x2x4xf32>
  }
}

// -----

// CHECK-LABEL: module @an_addition_along_the_width
// CHECK: "nn.add"
// CHECK: // AddToBias missed add: the constant differs along other axes than the channels
module @an_addition_along_the_width {
  func.func @main(%x: tensor<1x1x2xf32>) -> tensor<1x2x2xf32> {
    %w = "nn.const"() {value = dense<2.0> : tensor<2x1x1xf32>} : () -> tensor<2x1x1xf32>
    %c = "nn.const"() {value = dense<[10.0, 20.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %0 = "nn.conv"(%x, %w) {dilations = array<i64: 1>, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<1x1x2xf32>, tensor<2x1x1xf32>) -> tensor<1x2x2xf32>
    %1 = "nn.add"(%0, %c) : (tensor<1x2x2xf32>, tensor<2xf32>) -> tensor<1x2x2xf32> loc("add")
    return %1 : tensor<1x2x2xf32>
  }
}

// -----

// CHECK-LABEL: module @an_addition_that_enlarges_the_batch
// CHECK: "nn.add"
// CHECK: // AddToBias missed add: the constant differs along other axes than the channels
module @an_addition_that_enlarges_the_batch {
  func.func @main(%x: tensor<1x1x2xf32>) -> tensor<2x1x2xf32> {
    %w = "nn.const"() {value = dense<2.0> : tensor<1x1x1xf32>} : () -> tensor<1x1x1xf32>
    %c = "nn.const"() {value = dense<[[[1.0]], [[2.0]]]> : tensor<2x1x1xf32>} : () -> tensor<2x1x1xf32>
    %0 = "nn.conv"(%x, %w) {dilations = array<i64: 1>, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<1x1x2xf32>, tensor<1x1x1xf32>) -> tensor<1x1x2xf32>
    %1 = "nn.add"(%0, %c) : (tensor<1x1x2xf32>, tensor<2x1x1xf32>) -> tensor<2x1x2xf32> loc("add")
    return %1 : tensor<2x1x2xf32>
  }
}
