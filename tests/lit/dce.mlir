// RUN: opt --passes=dce %s | filecheck %s

// CHECK-LABEL: module @chains_of_unused_ops_go
// CHECK: func.func @main
// CHECK-NEXT: return %arg0
module @chains_of_unused_ops_go {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "nn.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "nn.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
    return %x : tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @used_ops_stay
// CHECK: "nn.relu"
// CHECK-NEXT: return
module @used_ops_stay {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "nn.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
