// RUN: opt --passes=nn-quantize-dynamically --explain=nn-quantize-dynamically %s | filecheck %s

// CHECK-LABEL: module @two_products_of_one_input
// CHECK: "nn.reduce_min"(%arg0)
// CHECK: "nn.reduce_max"(%arg0)
// CHECK: %[[Z:.*]] = "nn.quantize"({{.*}}) {to = "ui8"} : (tensor<f32>, tensor<f32>) -> tensor<ui8>
// CHECK-NEXT: %[[X:.*]] = "nn.quantize"(%arg0, {{.*}}, %[[Z]]) {to = "ui8"}
// CHECK: value = dense<{{.*}}127{{.*}}> : tensor<2x2xi8>
// CHECK-NEXT: "nn.matmul_integer"(%[[X]], {{.*}}, %[[Z]])
// CHECK-NOT: "nn.reduce_min"
// CHECK: "nn.matmul_integer"(%[[X]],
// CHECK: // QuantizedDynamically fired at first
// CHECK: // QuantizedDynamically fired at second
module @two_products_of_one_input {
  func.func @main(%x: tensor<?x2xf32>) -> (tensor<?x2xf32>, tensor<?x2xf32>) {
    %w = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, -4.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %0 = "nn.matmul"(%x, %w) : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32> loc("first")
    %1 = "nn.matmul"(%x, %w) {transpose_b = true} : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32> loc("second")
    return %0, %1 : tensor<?x2xf32>, tensor<?x2xf32>
  }
}

// -----

// CHECK-LABEL: module @a_convolution_with_bias
// CHECK: %[[Y:.*]] = "nn.conv_integer"
// CHECK: "nn.cast"(%[[Y]]) {to = "f32"}
// CHECK: "nn.mul"
// CHECK: "nn.add"
module @a_convolution_with_bias {
  func.func @main(%x: tensor<?x2x3x3xf32>) -> tensor<?x2x2x2xf32> {
    %w = "nn.const"() {value = dense<1.0> : tensor<2x2x2x2xf32>} : () -> tensor<2x2x2x2xf32>
    %b = "nn.const"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %0 = "nn.conv"(%x, %w, %b) {dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<?x2x3x3xf32>, tensor<2x2x2x2xf32>, tensor<2xf32>) -> tensor<?x2x2x2xf32>
    return %0 : tensor<?x2x2x2xf32>
  }
}

// -----

// CHECK-LABEL: module @weights_that_are_data_stay
// CHECK-NOT: "nn.matmul_integer"
// CHECK: // KeptInFloat missed node: its weights are no constant
module @weights_that_are_data_stay {
  func.func @main(%x: tensor<?x4xf32>, %w: tensor<4x2xf32>) -> tensor<?x2xf32> {
    %0 = "nn.matmul"(%x, %w) : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32> loc("node")
    return %0 : tensor<?x2xf32>
  }
}

// -----

// CHECK-LABEL: module @states_are_quantized_where_the_weights_are_known
// CHECK: %[[R:.*]] = "nn.const"() {value = dense<{{.*}}> : tensor<1x2x2xi8>}
// CHECK: "nn.rnn"(%arg0, %[[R]], %{{.*}}) {{.*}}quantize_state = true
// CHECK: "nn.rnn"(%arg0, %arg1) {{.*}} : (tensor<?x3x2xf32>, tensor<1x2x2xf32>)
// CHECK: // QuantizedDynamically fired at known
// CHECK: // KeptInFloat missed given: its weights are not float32 numbers that are known
module @states_are_quantized_where_the_weights_are_known {
  func.func @main(%x: tensor<?x3x2xf32>, %given: tensor<1x2x2xf32>) -> (tensor<?x1x3x2xf32>, tensor<?x1x3x2xf32>) {
    %r = "nn.const"() {value = dense<[[[0.5, 1.0], [2.0, -1.0]]]> : tensor<1x2x2xf32>} : () -> tensor<1x2x2xf32>
    %0:2 = "nn.rnn"(%x, %r) {hidden = 2 : i64, activations = ["tanh"], alphas = array<f64: 0.0>, betas = array<f64: 0.0>, operandSegmentSizes = array<i32: 1, 0, 1, 0, 0, 0, 0>} : (tensor<?x3x2xf32>, tensor<1x2x2xf32>) -> (tensor<?x1x3x2xf32>, tensor<1x3x2xf32>) loc("known")
    %1:2 = "nn.rnn"(%x, %given) {hidden = 2 : i64, activations = ["tanh"], alphas = array<f64: 0.0>, betas = array<f64: 0.0>, operandSegmentSizes = array<i32: 1, 0, 1, 0, 0, 0, 0>} : (tensor<?x3x2xf32>, tensor<1x2x2xf32>) -> (tensor<?x1x3x2xf32>, tensor<1x3x2xf32>) loc("given")
    return %0#0, %1#0 : tensor<?x1x3x2xf32>, tensor<?x1x3x2xf32>
  }
}
