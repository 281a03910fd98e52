// RUN: opt --passes=nn-decompose-lp-norm --explain=nn-decompose-lp-norm %s | filecheck %s

// CHECK-LABEL: module @lp_norm_in_parts
// CHECK-NOT: "nn.lp_norm"
// CHECK: "nn.reduce_l1"
// CHECK: "nn.equal"
// CHECK: "nn.div"
// CHECK: "nn.where"
// CHECK: return
// CHECK: // LpNormOfParts fired at node
module @lp_norm_in_parts {
  func.func @main(%x: tensor<?x4x3xf32>) -> tensor<?x4x3xf32> {
    %0 = "nn.lp_norm"(%x) {axis = 1 : i64, p = 1 : i64} : (tensor<?x4x3xf32>) -> tensor<?x4x3xf32> loc("node")
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
