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

// -----

// CHECK-LABEL: module @what_only_an_unused_branch_needs_goes_with_it
// CHECK-NEXT: func.func
// CHECK-NEXT: return %arg1
module @what_only_an_unused_branch_needs_goes_with_it {
  func.func @main(%c: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "nn.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %y = "nn.if"(%c) ({
      %1 = "nn.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%1) : (tensor<4xf32>) -> ()
    }, {
      "nn.yield"(%0) : (tensor<4xf32>) -> ()
    }) : (tensor<i1>) -> tensor<4xf32>
    return %x : tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @ops_that_nobody_uses_leave_regions_and_captured_values_stay
// CHECK: %[[R:.*]] = "nn.relu"(%arg1)
// CHECK-NEXT: "nn.if"(%arg0) ({
// CHECK-NEXT: "nn.yield"(%[[R]])
module @ops_that_nobody_uses_leave_regions_and_captured_values_stay {
  func.func @main(%c: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = "nn.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %y = "nn.if"(%c) ({
      %1 = "nn.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%0) : (tensor<4xf32>) -> ()
    }, {
      "nn.yield"(%x) : (tensor<4xf32>) -> ()
    }) : (tensor<i1>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}
