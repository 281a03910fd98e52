// RUN: opt --passes=nn-split-reduction --explain=nn-split-reduction %s | filecheck %s

// CHECK-LABEL: module @a_norm_over_two_groups
// CHECK: %[[LAST:.*]] = "nn.reduce_sum_square"(%arg0) {axes = array<i64: 2, 3>
// CHECK: %[[FIRST:.*]] = "nn.reduce_sum"(%[[LAST]]) {axes = array<i64: 0>
// CHECK: %[[NORM:.*]] = "nn.sqrt"(%[[FIRST]])
// CHECK: "nn.squeeze"(%[[NORM]]) {axes = array<i64: 0, 2, 3>}
module @a_norm_over_two_groups {
  func.func @main(%x: tensor<?x4x3x2xf32>) -> tensor<4xf32> {
    %0 = "nn.reduce_l2"(%x) {axes = array<i64: 0, 2, 3>, keepdims = false} : (tensor<?x4x3x2xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @what_stays
// CHECK: "nn.reduce_max"
// CHECK: "nn.reduce_mean"
// CHECK-DAG: // ReductionOfNeighbours missed neighbours: the reduced axes are neighbours
// CHECK-DAG: // ReductionOfNeighbours missed integers: parts of 16-bit floats would be rounded, means of integers truncated
module @what_stays {
  func.func @main(%x: tensor<?x4x3xf32>, %i: tensor<2x3x4xi32>) -> (tensor<?x1x1xf32>, tensor<1x3x1xi32>) {
    %0 = "nn.reduce_max"(%x) {axes = array<i64: 1, 2>} : (tensor<?x4x3xf32>) -> tensor<?x1x1xf32> loc("neighbours")
    %1 = "nn.reduce_mean"(%i) {axes = array<i64: 0, 2>} : (tensor<2x3x4xi32>) -> tensor<1x3x1xi32> loc("integers")
    return %0, %1 : tensor<?x1x1xf32>, tensor<1x3x1xi32>
  }
}
