// RUN: opt --passes=nn-decompose-hardmax --explain=nn-decompose-hardmax %s | filecheck %s

// CHECK-LABEL: module @hardmax_in_parts
// CHECK-NOT: "nn.hardmax"
// CHECK: "nn.argmax"
// CHECK: "nn.shape"
// CHECK: "nn.one_hot"
// CHECK: return
// CHECK: // HardmaxOfParts fired at node
module @hardmax_in_parts {
  func.func @main(%x: tensor<?x4x3xf32>) -> tensor<?x4x3xf32> {
    %0 = "nn.hardmax"(%x) {axis = 1 : i64} : (tensor<?x4x3xf32>) -> tensor<?x4x3xf32> loc("node")
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
