// RUN: opt --passes=nn-quantize-weights{bits=4} --explain=nn-quantize-weights %s | filecheck %s
// RUN: opt --passes='nn-quantize-weights{bits=4 zero-points=true scale=f16}' %s | filecheck %s --check-prefix=ZERO
// RUN: opt --passes=nn-quantize-weights{bits=8} --explain=nn-quantize-weights %s | filecheck %s --check-prefix=EIGHT

// CHECK-LABEL: module @a_matrix
// CHECK: value = dense<{{.*}}> : tensor<4x2xi4>
// CHECK: "nn.dequantize"({{.*}}) {axis = 0 : i64, block = 32 : i64, to = "f32"} : (tensor<4x2xi4>, tensor<1x2xf32>)
// CHECK-NEXT: "nn.matmul"(%arg0,
// CHECK: // QuantizedWeights fired at node
// ZERO-LABEL: module @a_matrix
// ZERO: "nn.dequantize"({{.*}}) {axis = 0 : i64, block = 32 : i64, to = "f32"} : (tensor<4x2xui4>, tensor<1x2xf16>, tensor<1x2xui4>)
// EIGHT-LABEL: module @a_matrix
// EIGHT: "nn.dequantize"({{.*}}) {{.*}}to = "f32"} : (tensor<4x2xi8>, tensor<2xf32>)
module @a_matrix {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x2xf32> {
    %w = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, -4.0], [5.0, 6.0], [7.0, -8.0]]> : tensor<4x2xf32>} : () -> tensor<4x2xf32>
    %0 = "nn.matmul"(%x, %w) : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32> loc("node")
    return %0 : tensor<?x2xf32>
  }
}

// -----

// CHECK-LABEL: module @a_table_has_rows_of_8_bits
// CHECK: %[[T:.*]] = "nn.dequantize"({{.*}}) {axis = 0 : i64, {{.*}}to = "f32"} : (tensor<2x16xi8>, tensor<2xf32>)
// CHECK-NEXT: "nn.gather"(%[[T]], %arg0)
module @a_table_has_rows_of_8_bits {
  func.func @main(%i: tensor<?xi64>) -> tensor<?x16xf32> {
    %w = "nn.const"() {value = dense<1.0> : tensor<2x16xf32>} : () -> tensor<2x16xf32>
    %0 = "nn.gather"(%w, %i) {axis = 0 : i64} : (tensor<2x16xf32>, tensor<?xi64>) -> tensor<?x16xf32>
    return %0 : tensor<?x16xf32>
  }
}

// -----

// CHECK-LABEL: module @weights_that_are_data_stay
// CHECK-NOT: "nn.dequantize"
// CHECK: // KeptInFloat missed node: its weights are no finite float32 matrix that is known
module @weights_that_are_data_stay {
  func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) -> tensor<?x2xf32> {
    %0 = "nn.matmul"(%x, %w) : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32> loc("node")
    return %0 : tensor<?x2xf32>
  }
}

// -----

// CHECK-LABEL: module @filters_have_codes_of_8_bits_and_scales_behind_the_sums
// CHECK: %[[W:.*]] = "nn.const"() {value = dense<{{.*}}> : tensor<2x2x1xi8>}
// CHECK: %[[S:.*]] = "nn.const"() {value = dense<{{.*}}> : tensor<2x1xf32>}
// CHECK: %[[Y:.*]] = "nn.conv"(%arg0, %[[W]])
// CHECK-SAME: (tensor<1x2x?xf32>, tensor<2x2x1xi8>) -> tensor<1x2x?xf32>
// CHECK-NEXT: %[[Z:.*]] = "nn.mul"(%[[Y]], %[[S]])
// CHECK: %[[B:.*]] = "nn.reshape"(%arg1,
// CHECK-NEXT: "nn.add"(%[[Z]], %[[B]])
module @filters_have_codes_of_8_bits_and_scales_behind_the_sums {
  func.func @main(%x: tensor<1x2x?xf32>, %b: tensor<2xf32>) -> tensor<1x2x?xf32> {
    %w = "nn.const"() {value = dense<[[[1.0], [2.0]], [[3.0], [-4.0]]]> : tensor<2x2x1xf32>} : () -> tensor<2x2x1xf32>
    %0 = "nn.conv"(%x, %w, %b) {dilations = array<i64: 1>, groups = 1 : i64, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<1x2x?xf32>, tensor<2x2x1xf32>, tensor<2xf32>) -> tensor<1x2x?xf32> loc("node")
    return %0 : tensor<1x2x?xf32>
  }
}

// -----

// CHECK-LABEL: module @filters_of_a_depthwise_convolution_stay
// CHECK: "nn.conv"({{.*}} : (tensor<1x2x?xf32>, tensor<2x1x1xf32>) -> tensor<1x2x?xf32>
// CHECK: // KeptInFloat missed node: the weights of a depthwise convolution are few
module @filters_of_a_depthwise_convolution_stay {
  func.func @main(%x: tensor<1x2x?xf32>) -> tensor<1x2x?xf32> {
    %w = "nn.const"() {value = dense<[[[1.0]], [[2.0]]]> : tensor<2x1x1xf32>} : () -> tensor<2x1x1xf32>
    %0 = "nn.conv"(%x, %w) {dilations = array<i64: 1>, groups = 2 : i64, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<1x2x?xf32>, tensor<2x1x1xf32>) -> tensor<1x2x?xf32> loc("node")
    return %0 : tensor<1x2x?xf32>
  }
}

// -----

// CHECK-LABEL: module @the_weights_of_states_have_8_bits_and_a_scale_a_row
// CHECK: %[[R:.*]] = "nn.const"() {value = dense<{{.*}}> : tensor<1x2x2xi8>}
// CHECK: %[[S:.*]] = "nn.const"() {value = dense<{{.*}}> : tensor<1x2xf32>}
// CHECK: "nn.rnn"(%arg0, %[[R]], %[[S]]) {{.*}}operandSegmentSizes = array<i32: 1, 0, 1, 1, 0, 0, 0>
// CHECK-NOT: quantize_state = true
// CHECK: // QuantizedWeights fired at node
module @the_weights_of_states_have_8_bits_and_a_scale_a_row {
  func.func @main(%x: tensor<?x3x2xf32>) -> tensor<?x1x3x2xf32> {
    %r = "nn.const"() {value = dense<[[[0.5, 1.0], [2.0, -1.0]]]> : tensor<1x2x2xf32>} : () -> tensor<1x2x2xf32>
    %0:2 = "nn.rnn"(%x, %r) {hidden = 2 : i64, activations = ["tanh"], alphas = array<f64: 0.0>, betas = array<f64: 0.0>, operandSegmentSizes = array<i32: 1, 0, 1, 0, 0, 0, 0>} : (tensor<?x3x2xf32>, tensor<1x2x2xf32>) -> (tensor<?x1x3x2xf32>, tensor<1x3x2xf32>) loc("node")
    return %0#0 : tensor<?x1x3x2xf32>
  }
}
