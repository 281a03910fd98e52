// RUN: opt --passes=nn-decompose-mean-variance-norm --explain=nn-decompose-mean-variance-norm %s | filecheck %s

// CHECK-LABEL: module @mean_variance_norm_in_parts
// CHECK-NOT: "nn.mean_variance_norm"
// CHECK: "nn.reduce_mean"
// CHECK: "nn.sub"
// CHECK: "nn.mul"
// CHECK: "nn.reduce_mean"
// CHECK: "nn.sqrt"
// CHECK: "nn.add"
// CHECK: "nn.div"
// CHECK: return
// CHECK: // MeanVarianceNormOfParts fired at node
module @mean_variance_norm_in_parts {
  func.func @main(%x: tensor<?x4x3xf32>) -> tensor<?x4x3xf32> {
    %0 = "nn.mean_variance_norm"(%x) {axes = array<i64: 0, 2>} : (tensor<?x4x3xf32>) -> tensor<?x4x3xf32> loc("node")
    return %0 : tensor<?x4x3xf32>
  }
}

// -----

// CHECK-LABEL: module @other_ops_stay
// CHECK: "nn.softmax"(%arg0) {axis = 1 : i64}
// CHECK-NEXT: return
module @other_ops_stay {
  func.func @main(%x: tensor<?x4x3xf32>) -> tensor<?x4x3xf32> {
    %0 = "nn.softmax"(%x) {axis = 1 : i64} : (tensor<?x4x3xf32>) -> tensor<?x4x3xf32>
    return %0 : tensor<?x4x3xf32>
  }
}
