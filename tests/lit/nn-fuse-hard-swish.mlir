// RUN: opt --passes=nn-fuse-hard-swish --explain=nn-fuse-hard-swish %s | filecheck %s

// CHECK-LABEL: module @by_clip
// CHECK: %[[Y:.*]] = "nn.hard_swish"(%arg0)
// CHECK-NEXT: return %[[Y]]
module @by_clip {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %three = "nn.const"() {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
    %zero = "nn.const"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %six = "nn.const"() {value = dense<6.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.add"(%x, %three) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n0")
    %1 = "nn.clip"(%0, %zero, %six) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<?x4xf32>, tensor<f32>, tensor<f32>) -> tensor<?x4xf32>
    %2 = "nn.mul"(%x, %1) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n2")
    %3 = "nn.div"(%2, %six) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n3")
    return %3 : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @by_hard_sigmoid
// CHECK: "nn.hard_swish"(%arg0)
module @by_hard_sigmoid {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %0 = "nn.hard_sigmoid"(%x) {alpha = 0.16666667 : f64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %1 = "nn.mul"(%x, %0) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n1")
    return %1 : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @another_bound_and_another_slope
// CHECK-NOT: nn.hard_swish
// CHECK: return
// CHECK-DAG: // HardSwishOfQuotient missed bound: the clip is not to [0, 6]
// CHECK-DAG: // HardSwishOfHardSigmoid missed slope: the hard sigmoid has another slope or offset
module @another_bound_and_another_slope {
  func.func @main(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
    %three = "nn.const"() {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
    %zero = "nn.const"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %five = "nn.const"() {value = dense<5.0> : tensor<f32>} : () -> tensor<f32>
    %six = "nn.const"() {value = dense<6.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.add"(%x, %three) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n0")
    %1 = "nn.clip"(%0, %zero, %five) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<?x4xf32>, tensor<f32>, tensor<f32>) -> tensor<?x4xf32>
    %2 = "nn.mul"(%x, %1) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n2")
    %3 = "nn.div"(%2, %six) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("bound")
    %4 = "nn.hard_sigmoid"(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %5 = "nn.mul"(%x, %4) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("slope")
    return %3, %5 : tensor<?x4xf32>, tensor<?x4xf32>
  }
}
