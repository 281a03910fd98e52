// RUN: opt --passes=nn-decompose-group-norm --explain=nn-decompose-group-norm %s | filecheck %s

// CHECK-LABEL: module @group_norm_in_parts
// CHECK-NOT: "nn.group_norm"
// CHECK: "nn.reshape"
// CHECK: "nn.reduce_mean"
// CHECK: "nn.sub"
// CHECK: "nn.mul"
// CHECK: "nn.reduce_mean"
// CHECK: "nn.div"
// CHECK: "nn.shape"
// CHECK: "nn.reshape"
// CHECK: "nn.mul"
// CHECK: "nn.add"
// CHECK: return
// CHECK: // GroupNormOfParts fired at node
module @group_norm_in_parts {
  func.func @main(%x: tensor<?x4x3xf32>) -> tensor<?x4x3xf32> {
    %p = "nn.const"() {value = dense<2.0> : tensor<4xf32>} : () -> tensor<4xf32>
    %0 = "nn.group_norm"(%x, %p, %p) {groups = 2 : i64} : (tensor<?x4x3xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4x3xf32> loc("node")
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

// -----

// CHECK-LABEL: module @an_empty_axis
// CHECK: "nn.group_norm"
// CHECK: // GroupNormOfParts missed node: an axis is empty
module @an_empty_axis {
  func.func @main(%x: tensor<2x4x0xf32>) -> tensor<2x4x0xf32> {
    %p = "nn.const"() {value = dense<2.0> : tensor<4xf32>} : () -> tensor<4xf32>
    %0 = "nn.group_norm"(%x, %p, %p) {groups = 2 : i64} : (tensor<2x4x0xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x4x0xf32> loc("node")
    return %0 : tensor<2x4x0xf32>
  }
}
