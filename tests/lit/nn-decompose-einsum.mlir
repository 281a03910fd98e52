// RUN: opt --passes=nn-decompose-einsum --explain=nn-decompose-einsum %s | filecheck %s

// CHECK-LABEL: module @scores_of_attention
// CHECK: %[[KEYS:.*]] = "nn.transpose"(%arg1) {perm = array<i64: 0, 2, 1>}
// CHECK: %[[SCORES:.*]] = "nn.matmul"(%arg0, %[[KEYS]])
// CHECK-NEXT: return %[[SCORES]]
module @scores_of_attention attributes {xc.inputs = ["q", "k"], xc.input_dims = ["b, i, 8", "b, j, 8"]} {
  func.func @main(%q: tensor<?x?x8xf32>, %k: tensor<?x?x8xf32>) -> tensor<?x?x?xf32> {
    %0 = "nn.einsum"(%q, %k) {equation = "bid,bjd->bij"} : (tensor<?x?x8xf32>, tensor<?x?x8xf32>) -> tensor<?x?x?xf32>
    return %0 : tensor<?x?x?xf32>
  }
}

// -----

// What only one operand has is summed first; two inner axes are one.
// CHECK-LABEL: module @several_axes_in_one_role
// CHECK: %[[SUM:.*]] = "nn.reduce_sum"(%arg0) {axes = array<i64: 0>, keepdims = false}
// CHECK: "nn.reshape"(%[[SUM]]
// CHECK: "nn.reshape"(%arg1
// CHECK: "nn.matmul"
module @several_axes_in_one_role {
  func.func @main(%a: tensor<2x3x4x5xf32>, %b: tensor<4x5x6xf32>) -> tensor<3x6xf32> {
    %0 = "nn.einsum"(%a, %b) {equation = "zijk,jkl->il"} : (tensor<2x3x4x5xf32>, tensor<4x5x6xf32>) -> tensor<3x6xf32>
    return %0 : tensor<3x6xf32>
  }
}

// -----

// CHECK-LABEL: module @what_stays
// CHECK: "nn.einsum"
// CHECK: "nn.einsum"
// CHECK: "nn.einsum"
// CHECK-DAG: // EinsumOfMatMul missed diagonal: a term is a diagonal
// CHECK-DAG: // EinsumOfMatMul missed broadcast: the sizes of 'j' are not known to be equal
// CHECK-DAG: // EinsumOfMatMul missed integers: elements are i32
module @what_stays {
  func.func @main(%a: tensor<3x3xf32>, %b: tensor<3x1xf32>, %i: tensor<3xi32>) -> (tensor<3xf32>, tensor<3x3xf32>, tensor<i32>) {
    %0 = "nn.einsum"(%a) {equation = "ii->i"} : (tensor<3x3xf32>) -> tensor<3xf32> loc("diagonal")
    %1 = "nn.einsum"(%a, %b) {equation = "ij,kj->ik"} : (tensor<3x3xf32>, tensor<3x1xf32>) -> tensor<3x3xf32> loc("broadcast")
    %2 = "nn.einsum"(%i, %i) {equation = "i,i->"} : (tensor<3xi32>, tensor<3xi32>) -> tensor<i32> loc("integers")
    return %0, %1, %2 : tensor<3xf32>, tensor<3x3xf32>, tensor<i32>
  }
}
