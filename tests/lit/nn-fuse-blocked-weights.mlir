// RUN: opt --passes=nn-fuse-blocked-weights --explain=nn-fuse-blocked-weights %s | filecheck %s

// CHECK-LABEL: module @blocks_along_k
// CHECK: "nn.matmul_blocked"(%arg0, {{.*}}) {block = 4 : i64}
// CHECK: // MatMulOfDequantized fired at node
module @blocks_along_k {
  func.func @main(%x: tensor<?x5xf32>) -> tensor<?x2xf32> {
    %w = "nn.const"() {value = dense<[[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]> : tensor<5x2xi8>} : () -> tensor<5x2xi8>
    %s = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %0 = "nn.dequantize"(%w, %s) {axis = 0 : i64, block = 4 : i64, to = "f32"} : (tensor<5x2xi8>, tensor<2x2xf32>) -> tensor<5x2xf32>
    %1 = "nn.matmul"(%x, %0) : (tensor<?x5xf32>, tensor<5x2xf32>) -> tensor<?x2xf32> loc("node")
    return %1 : tensor<?x2xf32>
  }
}

// -----

// CHECK-LABEL: module @a_scale_for_each_column_of_a_transposed_matrix
// CHECK: value = dense<{{\[\[}}1.000000e+00], [2.000000e+00]]> : tensor<2x1xf32>
// CHECK: "nn.matmul_blocked"(%arg0, {{.*}}) {block = 3 : i64, transpose_b = true}
module @a_scale_for_each_column_of_a_transposed_matrix {
  func.func @main(%x: tensor<?x3xf32>) -> tensor<?x2xf32> {
    %w = "nn.const"() {value = dense<[[1, 2, 3], [4, 5, 6]]> : tensor<2x3xi8>} : () -> tensor<2x3xi8>
    %s = "nn.const"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %0 = "nn.dequantize"(%w, %s) {axis = 0 : i64, block = 0 : i64, to = "f32"} : (tensor<2x3xi8>, tensor<2xf32>) -> tensor<2x3xf32>
    %1 = "nn.transpose"(%0) {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %2 = "nn.matmul"(%x, %1) : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32>
    return %2 : tensor<?x2xf32>
  }
}

// -----

// CHECK-LABEL: module @scales_of_rows_stay
// CHECK-NOT: "nn.matmul_blocked"
// CHECK: // MatMulOfDequantized missed node: the scales are those of rows
module @scales_of_rows_stay {
  func.func @main(%x: tensor<?x3xf32>) -> tensor<?x2xf32> {
    %w = "nn.const"() {value = dense<[[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi8>} : () -> tensor<3x2xi8>
    %s = "nn.const"() {value = dense<[1.0, 2.0, 3.0]> : tensor<3xf32>} : () -> tensor<3xf32>
    %0 = "nn.dequantize"(%w, %s) {axis = 0 : i64, block = 0 : i64, to = "f32"} : (tensor<3x2xi8>, tensor<3xf32>) -> tensor<3x2xf32>
    %1 = "nn.matmul"(%x, %0) : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32> loc("node")
    return %1 : tensor<?x2xf32>
  }
}

// -----

// CHECK-LABEL: module @blocks_that_are_no_whole_words_stay
// CHECK-NOT: "nn.matmul_blocked"
// CHECK: // MatMulOfDequantized missed node: blocks of 2 are not whole words
module @blocks_that_are_no_whole_words_stay {
  func.func @main(%x: tensor<?x3xf32>) -> tensor<?x2xf32> {
    %w = "nn.const"() {value = dense<[[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi4>} : () -> tensor<3x2xi4>
    %s = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %0 = "nn.dequantize"(%w, %s) {axis = 0 : i64, block = 2 : i64, to = "f32"} : (tensor<3x2xi4>, tensor<2x2xf32>) -> tensor<3x2xf32>
    %1 = "nn.matmul"(%x, %0) : (tensor<?x3xf32>, tensor<3x2xf32>) -> tensor<?x2xf32> loc("node")
    return %1 : tensor<?x2xf32>
  }
}
