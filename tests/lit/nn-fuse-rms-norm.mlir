// RUN: opt --passes=nn-fuse-rms-norm --explain=nn-fuse-rms-norm %s | filecheck %s

// CHECK-LABEL: module @with_scale
// CHECK: %[[SCALE:.*]] = "nn.const"() {value = dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]> : tensor<4xf32>}
// CHECK: %[[Y:.*]] = "nn.rms_norm"(%arg0, %[[SCALE]]) {axis = 1 : i64
// CHECK-NEXT: return %[[Y]]
module @with_scale {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %epsilon = "nn.const"() {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
    %scale = "nn.const"() {value = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>} : () -> tensor<4xf32>
    %0 = "nn.mul"(%x, %x) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n0")
    %1 = "nn.reduce_mean"(%0) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %2 = "nn.add"(%1, %epsilon) : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
    %3 = "nn.sqrt"(%2) : (tensor<?x1xf32>) -> tensor<?x1xf32>
    %4 = "nn.reciprocal"(%3) : (tensor<?x1xf32>) -> tensor<?x1xf32>
    %5 = "nn.mul"(%x, %4) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("n5")
    %6 = "nn.mul"(%scale, %5) : (tensor<4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    return %6 : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @a_root_with_other_users
// CHECK-NOT: nn.rms_norm
// CHECK: return
// CHECK: // RmsNormOfQuotient missed last: the root has other users
module @a_root_with_other_users {
  func.func @main(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x1xf32>) {
    %epsilon = "nn.const"() {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.mul"(%x, %x) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n0")
    %1 = "nn.reduce_mean"(%0) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %2 = "nn.add"(%1, %epsilon) : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
    %3 = "nn.sqrt"(%2) : (tensor<?x1xf32>) -> tensor<?x1xf32>
    %4 = "nn.div"(%x, %3) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("last")
    return %4, %3 : tensor<?x4xf32>, tensor<?x1xf32>
  }
}

// -----

// CHECK-LABEL: module @a_mean_of_another_value
// CHECK-NOT: nn.rms_norm
// CHECK: return
// CHECK: // RmsNormOfQuotient missed last: the mean is of something else
module @a_mean_of_another_value {
  func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %epsilon = "nn.const"() {value = dense<1.0e-6> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.mul"(%y, %y) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n0")
    %1 = "nn.reduce_mean"(%0) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %2 = "nn.add"(%1, %epsilon) : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
    %3 = "nn.sqrt"(%2) : (tensor<?x1xf32>) -> tensor<?x1xf32>
    %4 = "nn.div"(%x, %3) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("last")
    return %4 : tensor<?x4xf32>
  }
}
