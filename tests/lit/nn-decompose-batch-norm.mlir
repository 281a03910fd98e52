// RUN: opt --passes=nn-decompose-batch-norm --explain=nn-decompose-batch-norm %s | filecheck %s

// CHECK-LABEL: module @batch_norm_in_parts
// CHECK-NOT: "nn.batch_norm"
// CHECK: "nn.sqrt"
// CHECK: "nn.div"
// CHECK: "nn.sub"
// CHECK: "nn.mul"
// CHECK: "nn.add"
// CHECK: return
// CHECK: // BatchNormOfParts fired at node
module @batch_norm_in_parts {
  func.func @main(%x: tensor<?x4x3xf32>) -> tensor<?x4x3xf32> {
    %p = "nn.const"() {value = dense<2.0> : tensor<4xf32>} : () -> tensor<4xf32>
    %0 = "nn.batch_norm"(%x, %p, %p, %p, %p) : (tensor<?x4x3xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4x3xf32> loc("node")
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
