// RUN: opt --passes=nn-decompose-attention --explain=nn-decompose-attention %s | filecheck %s

// CHECK-LABEL: module @attention_in_parts
// CHECK-NOT: "nn.attention"
// CHECK: "nn.matmul"(%arg0, %arg1) {transpose_b = true}
// CHECK: "nn.mul"
// CHECK: "nn.softmax"
// CHECK: "nn.matmul"
// CHECK: return
// CHECK: // AttentionOfParts fired at node
module @attention_in_parts {
  func.func @main(%q: tensor<?x2x?x4xf32>, %k: tensor<?x2x?x4xf32>) -> tensor<?x2x?x4xf32> {
    %0 = "nn.attention"(%q, %k, %k) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 5.000000e-01 : f64} : (tensor<?x2x?x4xf32>, tensor<?x2x?x4xf32>, tensor<?x2x?x4xf32>) -> tensor<?x2x?x4xf32> loc("node")
    return %0 : tensor<?x2x?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @unknown_heads
// CHECK: "nn.attention"
// CHECK: return
// CHECK: // AttentionOfParts missed node: the number of heads is known only at run time
module @unknown_heads {
  func.func @main(%q: tensor<?x?x?x4xf32>, %k: tensor<?x?x?x4xf32>) -> tensor<?x?x?x4xf32> {
    %0 = "nn.attention"(%q, %k, %k) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0>, scale = 5.000000e-01 : f64} : (tensor<?x?x?x4xf32>, tensor<?x?x?x4xf32>, tensor<?x?x?x4xf32>) -> tensor<?x?x?x4xf32> loc("node")
    return %0 : tensor<?x?x?x4xf32>
  }
}
