// RUN: opt --passes='nn-smooth-activations{table=%S/nn-smooth-activations.json}' --explain=nn-smooth-activations %s | filecheck %s

// A layer norm that only matrix products read gives its channels divided: the second one by 1/2.
// CHECK-LABEL: module @behind_a_layer_norm
// CHECK-DAG: value = dense<[1.000000e+00, 4.000000e+00]> : tensor<2xf32>
// CHECK-DAG: value = dense<[3.000000e+00, 8.000000e+00]> : tensor<2xf32>
// CHECK: [[NORM:%[0-9]+]] = "nn.layer_norm"
// CHECK: value = dense<{{\[\[}}1.000000e+00, 2.000000e+00], [1.500000e+00, 2.000000e+00]]> : tensor<2x2xf32>
// CHECK: "nn.matmul"([[NORM]],
// CHECK: // Folded fired at norm
module @behind_a_layer_norm {
  func.func @main(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
    %scale = "nn.const"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %bias = "nn.const"() {value = dense<[3.0, 4.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %w = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %0 = "nn.layer_norm"(%x, %scale, %bias) {axis = 1 : i64, epsilon = 1.000000e-05 : f64, operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<4x2xf32> loc("norm")
    %1 = "nn.matmul"(%0, %w) : (tensor<4x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32> loc("dense")
    return %1 : tensor<4x2xf32>
  }
}

// -----

// Through a ReLU and an addition into the columns of a matrix: the first one is divided by 1/4.
// CHECK-LABEL: module @behind_a_product
// CHECK: value = dense<{{\[\[}}4.000000e+00, 2.000000e+00], [1.200000e+01, 4.000000e+00]]> : tensor<2x2xf32>
// CHECK: value = dense<[2.000000e+01, 6.000000e+00]> : tensor<2xf32>
// CHECK: [[RELU:%[0-9]+]] = "nn.relu"
// CHECK: value = dense<{{\[\[}}2.500000e-01, 5.000000e-01], [3.000000e+00, 4.000000e+00]]> : tensor<2x2xf32>
// CHECK: "nn.matmul"([[RELU]],
// CHECK: // Folded fired at relu
module @behind_a_product {
  func.func @main(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
    %w = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %b = "nn.const"() {value = dense<[5.0, 6.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %0 = "nn.matmul"(%x, %w) : (tensor<4x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
    %1 = "nn.add"(%0, %b) : (tensor<4x2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
    %2 = "nn.relu"(%1) : (tensor<4x2xf32>) -> tensor<4x2xf32> loc("relu")
    %3 = "nn.matmul"(%2, %w) : (tensor<4x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
    return %3 : tensor<4x2xf32>
  }
}

// -----

// Something else reads the input: a multiplication stands in front of the product, whose weights are read transposed.
// CHECK-LABEL: module @read_by_others
// CHECK: value = dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>
// CHECK: [[X:%[0-9]+]] = "nn.mul"(%arg1,
// CHECK: value = dense<{{\[\[}}1.000000e+00, 1.000000e+00], [3.000000e+00, 2.000000e+00]]> : tensor<2x2xf32>
// CHECK: [[Y:%[0-9]+]] = "nn.matmul"([[X]],
// CHECK: "nn.add"([[Y]], %arg1)
// CHECK: // Multiplied fired at arg1
module @read_by_others {
  func.func @main(%x: tensor<4x2xf32>, %y: tensor<4x2xf32>) -> tensor<4x2xf32> {
    %w = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %0 = "nn.matmul"(%y, %w) {transpose_b = true} : (tensor<4x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
    %1 = "nn.add"(%0, %y) : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
    return %1 : tensor<4x2xf32>
  }
}

// -----

// Channels that are alike, and products of two activations, stay as they are.
// CHECK-LABEL: module @left_alone
// CHECK-NOT: "nn.mul"
// CHECK-NOT: fired
module @left_alone {
  func.func @main(%x: tensor<4x2xf32>, %y: tensor<2x2xf32>) -> tensor<4x2xf32> {
    %w = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %0 = "nn.relu"(%x) : (tensor<4x2xf32>) -> tensor<4x2xf32> loc("alone")
    %1 = "nn.matmul"(%0, %w) : (tensor<4x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
    %2 = "nn.matmul"(%1, %y) : (tensor<4x2xf32>, tensor<2x2xf32>) -> tensor<4x2xf32>
    return %2 : tensor<4x2xf32>
  }
}
