// RUN: opt --passes=nn-fold-constants --explain=nn-fold-constants %s | filecheck %s
// RUN: opt --passes='nn-fold-constants{growth=0.5}' --explain=nn-fold-constants %s | filecheck %s --check-prefix=GROWTH
// RUN: not opt --passes='nn-fold-constants{grwth=2}' %s | filecheck %s --check-prefix=ERROR
// ERROR: XC3003 the pass nn-fold-constants has no option 'grwth' (help: it has growth)

// CHECK-LABEL: module @arithmetic
// CHECK: func.func @main
// CHECK-NEXT: "nn.const"() {value = dense<[4.000000e+00, 6.000000e+00]> : tensor<2xf32>}
// CHECK-NEXT: return
// CHECK: // ConstantOperands fired at sum
module @arithmetic {
  func.func @main() -> tensor<2xf32> {
    %0 = "nn.const"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %1 = "nn.const"() {value = dense<[3.0, 4.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %2 = "nn.add"(%0, %1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc("sum")
    return %2 : tensor<2xf32>
  }
}

// -----

// CHECK-LABEL: module @known_sizes
// CHECK: func.func @main
// CHECK-NEXT: %[[C:.*]] = "nn.const"() {value = dense<[3, 4]> : tensor<2xi64>}
// CHECK-NEXT: return %[[C]]
module @known_sizes {
  func.func @main(%x: tensor<?x3x4xf32>) -> tensor<2xi64> {
    %0 = "nn.shape"(%x) {start = 1 : i64} : (tensor<?x3x4xf32>) -> tensor<2xi64>
    return %0 : tensor<2xi64>
  }
}

// -----

// CHECK-LABEL: module @unknown_sizes
// CHECK: "nn.shape"
// CHECK-DAG: // KnownContent missed shape: its elements are not known
module @unknown_sizes {
  func.func @main(%x: tensor<?x3xf32>) -> tensor<2xi64> {
    %0 = "nn.shape"(%x) : (tensor<?x3xf32>) -> tensor<2xi64> loc("shape")
    return %0 : tensor<2xi64>
  }
}

// -----

// 1.1e15 bytes from eight.
// CHECK-LABEL: module @hostile_sizes
// CHECK: "nn.tile"
// CHECK: "nn.expand"
// CHECK-DAG: // ConstantOperands missed tile: the result has 281474976710656 bytes, more than the 12 of the constants it saves
module @hostile_sizes {
  func.func @main() -> (tensor<70368744177664xf32>, tensor<1800x4480x4480xf32>) {
    %0 = "nn.const"() {value = dense<1.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %1 = "nn.const"() {value = dense<70368744177664> : tensor<1xi64>} : () -> tensor<1xi64>
    %2 = "nn.const"() {value = dense<[1800, 4480, 4480]> : tensor<3xi64>} : () -> tensor<3xi64>
    %3 = "nn.const"() {value = dense<2.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %4 = "nn.tile"(%0, %1) : (tensor<1xf32>, tensor<1xi64>) -> tensor<70368744177664xf32> loc("tile")
    %5 = "nn.expand"(%3, %2) : (tensor<1xf32>, tensor<3xi64>) -> tensor<1800x4480x4480xf32> loc("expand")
    return %4, %5 : tensor<70368744177664xf32>, tensor<1800x4480x4480xf32>
  }
}

// -----

// A transpose saves its operand when nobody else needs it.
// CHECK-LABEL: module @a_weight_of_one_user
// CHECK-NOT: nn.transpose
// CHECK: return
// GROWTH-LABEL: module @a_weight_of_one_user
// GROWTH: "nn.transpose"
module @a_weight_of_one_user {
  func.func @main() -> tensor<200x100xf32> {
    %0 = "nn.const"() {value = dense<1.0> : tensor<100x200xf32>} : () -> tensor<100x200xf32>
    %1 = "nn.transpose"(%0) {perm = array<i64: 1, 0>} : (tensor<100x200xf32>) -> tensor<200x100xf32>
    return %1 : tensor<200x100xf32>
  }
}

// -----

// CHECK-LABEL: module @a_large_weight_of_two_users
// CHECK: "nn.transpose"
// CHECK: // ConstantOperands missed transpose: the result has 80000 bytes, more than the 0 of the constants it saves
module @a_large_weight_of_two_users {
  func.func @main() -> (tensor<200x100xf32>, tensor<100x200xf32>) {
    %0 = "nn.const"() {value = dense<1.0> : tensor<100x200xf32>} : () -> tensor<100x200xf32>
    %1 = "nn.transpose"(%0) {perm = array<i64: 1, 0>} : (tensor<100x200xf32>) -> tensor<200x100xf32> loc("transpose")
    return %1, %0 : tensor<200x100xf32>, tensor<100x200xf32>
  }
}

// -----

// CHECK-LABEL: module @an_index_out_of_range
// CHECK: "nn.gather"
// CHECK-DAG: // ConstantOperands missed gather: it can't be evaluated: index 7 is out of range for 2 elements
module @an_index_out_of_range {
  func.func @main() -> tensor<f32> {
    %0 = "nn.const"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %1 = "nn.const"() {value = dense<7> : tensor<i64>} : () -> tensor<i64>
    %2 = "nn.gather"(%0, %1) {axis = 0 : i64} : (tensor<2xf32>, tensor<i64>) -> tensor<f32> loc("gather")
    return %2 : tensor<f32>
  }
}

// -----

// CHECK-LABEL: module @constants_in_regions_are_folded_and_control_flow_is_not
// CHECK: "nn.if"(%arg0) ({
// CHECK: %[[FIVE:.*]] = "nn.const"() {value = dense<5.000000e+00> : tensor<f32>}
// CHECK-NEXT: "nn.yield"(%[[FIVE]])
module @constants_in_regions_are_folded_and_control_flow_is_not {
  func.func @main(%c: tensor<i1>) -> tensor<f32> {
    %0 = "nn.const"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
    %y = "nn.if"(%c) ({
      %1 = "nn.const"() {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
      %2 = "nn.add"(%0, %1) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      "nn.yield"(%2) : (tensor<f32>) -> ()
    }, {
      "nn.yield"(%0) : (tensor<f32>) -> ()
    }) : (tensor<i1>) -> tensor<f32>
    return %y : tensor<f32>
  }
}
