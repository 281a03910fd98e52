// RUN: opt --passes=nn-fuse-layer-norm --explain=nn-fuse-layer-norm %s | filecheck %s

// CHECK-LABEL: module @with_scale_and_bias
// CHECK-DAG: %[[SCALE:.*]] = "nn.const"() {value = dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]> : tensor<4xf32>}
// CHECK-DAG: %[[BIAS:.*]] = "nn.const"() {value = dense<5.000000e-01> : tensor<4xf32>}
// CHECK: %[[Y:.*]] = "nn.layer_norm"(%arg0, %[[SCALE]], %[[BIAS]]) {axis = 1 : i64, epsilon = 9.99{{.*}}E-6 : f64}
// CHECK-NEXT: return %[[Y]]
module @with_scale_and_bias {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %epsilon = "nn.const"() {value = dense<1.0e-5> : tensor<f32>} : () -> tensor<f32>
    %scale = "nn.const"() {value = dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>} : () -> tensor<4xf32>
    %bias = "nn.const"() {value = dense<0.5> : tensor<4xf32>} : () -> tensor<4xf32>
    %0 = "nn.reduce_mean"(%x) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %1 = "nn.sub"(%x, %0) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("n1")
    %2 = "nn.mul"(%1, %1) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n2")
    %3 = "nn.reduce_mean"(%2) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %4 = "nn.add"(%3, %epsilon) : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
    %5 = "nn.sqrt"(%4) : (tensor<?x1xf32>) -> tensor<?x1xf32>
    %6 = "nn.div"(%1, %5) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("n6")
    %7 = "nn.mul"(%6, %scale) : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32> loc("n7")
    %8 = "nn.add"(%7, %bias) : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32> loc("n8")
    return %8 : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @variance_of_something_else
// CHECK-NOT: nn.layer_norm
// CHECK: return
// CHECK: // LayerNormOfQuotient missed last: the variance is of something else
module @variance_of_something_else {
  func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %epsilon = "nn.const"() {value = dense<1.0e-5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.reduce_mean"(%x) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %1 = "nn.sub"(%x, %0) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("n1")
    %7 = "nn.sub"(%y, %0) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("n7")
    %2 = "nn.mul"(%7, %7) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n2")
    %3 = "nn.reduce_mean"(%2) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %4 = "nn.add"(%3, %epsilon) : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
    %5 = "nn.sqrt"(%4) : (tensor<?x1xf32>) -> tensor<?x1xf32>
    %6 = "nn.div"(%1, %5) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("last")
    return %6 : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @a_variance_with_other_users
// CHECK-NOT: nn.layer_norm
// CHECK: return
// CHECK: // LayerNormOfQuotient missed last: the variance has other users
module @a_variance_with_other_users {
  func.func @main(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x1xf32>) {
    %epsilon = "nn.const"() {value = dense<1.0e-5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.reduce_mean"(%x) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %1 = "nn.sub"(%x, %0) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("n1")
    %2 = "nn.mul"(%1, %1) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n2")
    %3 = "nn.reduce_mean"(%2) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %4 = "nn.add"(%3, %epsilon) : (tensor<?x1xf32>, tensor<f32>) -> tensor<?x1xf32>
    %5 = "nn.sqrt"(%4) : (tensor<?x1xf32>) -> tensor<?x1xf32>
    %6 = "nn.div"(%1, %5) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("last")
    return %6, %3 : tensor<?x4xf32>, tensor<?x1xf32>
  }
}

// -----

// CHECK-LABEL: module @axes_that_are_not_the_last
// CHECK-NOT: nn.layer_norm
// CHECK: return
// CHECK: // LayerNormOfQuotient missed last: the reduced axes are not the last ones
module @axes_that_are_not_the_last {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %epsilon = "nn.const"() {value = dense<1.0e-5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.reduce_mean"(%x) {axes = array<i64: 0>} : (tensor<?x4xf32>) -> tensor<1x4xf32>
    %1 = "nn.sub"(%x, %0) : (tensor<?x4xf32>, tensor<1x4xf32>) -> tensor<?x4xf32> loc("n1")
    %2 = "nn.mul"(%1, %1) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n2")
    %3 = "nn.reduce_mean"(%2) {axes = array<i64: 0>} : (tensor<?x4xf32>) -> tensor<1x4xf32>
    %4 = "nn.add"(%3, %epsilon) : (tensor<1x4xf32>, tensor<f32>) -> tensor<1x4xf32>
    %5 = "nn.sqrt"(%4) : (tensor<1x4xf32>) -> tensor<1x4xf32>
    %6 = "nn.div"(%1, %5) : (tensor<?x4xf32>, tensor<1x4xf32>) -> tensor<?x4xf32> loc("last")
    return %6 : tensor<?x4xf32>
  }
}
