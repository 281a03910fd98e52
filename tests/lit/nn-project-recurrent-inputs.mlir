// RUN: opt --passes=nn-project-recurrent-inputs --explain=nn-project-recurrent-inputs %s | filecheck %s

// CHECK-LABEL: module @both_biases_are_added_to_the_products
// CHECK: %[[W:.*]] = "nn.const"() {value = dense<[{{\[}}1.000000e+00, 3.000000e+00], [2.000000e+00, 4.000000e+00]]> : tensor<2x2xf32>}
// CHECK: %[[PRODUCTS:.*]] = "nn.matmul"(%arg0, %[[W]])
// CHECK: %[[BIAS:.*]] = "nn.const"() {value = dense<[1.200000e+01, 2.300000e+01]> : tensor<2xf32>}
// CHECK: %[[SUMS:.*]] = "nn.add"(%[[PRODUCTS]], %[[BIAS]])
// CHECK: "nn.rnn"(%[[SUMS]], %[[R:[a-z0-9]+]]) {{.*}}operandSegmentSizes = array<i32: 1, 0, 1, 0, 0, 0, 0>
// CHECK: // InputsOfAllSteps fired at rnn
module @both_biases_are_added_to_the_products {
  func.func @main(%x: tensor<?x3x2xf32>) -> tensor<?x1x3x2xf32> {
    %w = "nn.const"() {value = dense<[[[1.0, 2.0], [3.0, 4.0]]]> : tensor<1x2x2xf32>} : () -> tensor<1x2x2xf32>
    %r = "nn.const"() {value = dense<0.5> : tensor<1x2x2xf32>} : () -> tensor<1x2x2xf32>
    %b = "nn.const"() {value = dense<[[10.0, 20.0, 2.0, 3.0]]> : tensor<1x4xf32>} : () -> tensor<1x4xf32>
    %0:2 = "nn.rnn"(%x, %w, %r, %b) {hidden = 2 : i64, activations = ["tanh"], alphas = array<f64: 0.0>, betas = array<f64: 0.0>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 0, 0>} : (tensor<?x3x2xf32>, tensor<1x2x2xf32>, tensor<1x2x2xf32>, tensor<1x4xf32>) -> (tensor<?x1x3x2xf32>, tensor<1x3x2xf32>) loc("rnn")
    return %0#0 : tensor<?x1x3x2xf32>
  }
}

// -----

// CHECK-LABEL: module @the_bias_that_the_reset_gate_multiplies_stays
// CHECK: %[[OURS:.*]] = "nn.const"() {value = dense<[1.000000e+00, 2.000000e+00, 3.000000e+00]> : tensor<3xf32>}
// CHECK: %[[SUMS:.*]] = "nn.add"(%{{.*}}, %[[OURS]])
// CHECK: %[[REST:.*]] = "nn.const"() {value = dense<{{\[}}[4.000000e+00, 5.000000e+00, 6.000000e+00]]> : tensor<1x3xf32>}
// CHECK: "nn.gru"(%[[SUMS]], %{{.*}}, %[[REST]])
module @the_bias_that_the_reset_gate_multiplies_stays {
  func.func @main(%x: tensor<?x3x2xf32>) -> tensor<?x1x3x1xf32> {
    %w = "nn.const"() {value = dense<1.0> : tensor<1x3x2xf32>} : () -> tensor<1x3x2xf32>
    %r = "nn.const"() {value = dense<0.5> : tensor<1x3x1xf32>} : () -> tensor<1x3x1xf32>
    %b = "nn.const"() {value = dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]> : tensor<1x6xf32>} : () -> tensor<1x6xf32>
    %0:2 = "nn.gru"(%x, %w, %r, %b) {hidden = 1 : i64, linear_before_reset = true, activations = ["sigmoid", "tanh"], alphas = array<f64: 0.0, 0.0>, betas = array<f64: 0.0, 0.0>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 0, 0>} : (tensor<?x3x2xf32>, tensor<1x3x2xf32>, tensor<1x3x1xf32>, tensor<1x6xf32>) -> (tensor<?x1x3x1xf32>, tensor<1x3x1xf32>) loc("gru")
    return %0#0 : tensor<?x1x3x1xf32>
  }
}

// -----

// CHECK-LABEL: module @weights_that_are_data_stay
// CHECK-NOT: "nn.matmul"
// CHECK: // InputsOfAllSteps missed rnn: r is not a constant
module @weights_that_are_data_stay {
  func.func @main(%x: tensor<?x3x2xf32>, %w: tensor<1x2x2xf32>, %r: tensor<1x2x2xf32>) -> tensor<?x1x3x2xf32> {
    %0:2 = "nn.rnn"(%x, %w, %r) {hidden = 2 : i64, activations = ["tanh"], alphas = array<f64: 0.0>, betas = array<f64: 0.0>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>} : (tensor<?x3x2xf32>, tensor<1x2x2xf32>, tensor<1x2x2xf32>) -> (tensor<?x1x3x2xf32>, tensor<1x3x2xf32>) loc("rnn")
    return %0#0 : tensor<?x1x3x2xf32>
  }
}

// -----

// CHECK-LABEL: module @sixteen_bit_layers_stay
// CHECK-NOT: "nn.matmul"
// CHECK: // InputsOfAllSteps missed rnn: products of 16-bit elements would be rounded
module @sixteen_bit_layers_stay {
  func.func @main(%x: tensor<?x3x1xf16>) -> tensor<?x1x3x1xf16> {
    %w = "nn.const"() {value = dense<1.0> : tensor<1x1x1xf16>} : () -> tensor<1x1x1xf16>
    %0:2 = "nn.rnn"(%x, %w, %w) {hidden = 1 : i64, activations = ["tanh"], alphas = array<f64: 0.0>, betas = array<f64: 0.0>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 0, 0>} : (tensor<?x3x1xf16>, tensor<1x1x1xf16>, tensor<1x1x1xf16>) -> (tensor<?x1x3x1xf16>, tensor<1x3x1xf16>) loc("rnn")
    return %0#0 : tensor<?x1x3x1xf16>
  }
}
