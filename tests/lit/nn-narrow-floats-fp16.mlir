// RUN: opt --passes='nn-narrow-floats{to=fp16}' --explain=nn-narrow-floats %s | filecheck %s

// A product with a constant that float16 does not hold stays in float32, and says so.
// CHECK-LABEL: module @large_weights
// CHECK: "nn.matmul"(%arg0, %{{.*}}) : (tensor<1x2xf32>
// CHECK: "nn.matmul"(%{{.*}}) : (tensor<1x2xf16>
// CHECK: // KeptInFloat missed large: a constant of 70000 is too large for fp16
module @large_weights {
  func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
    %w = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, 70000.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %v = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, 65504.0]]> : tensor<2x2xf32>} : () -> tensor<2x2xf32>
    %0 = "nn.matmul"(%x, %w) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32> loc("large")
    %1 = "nn.matmul"(%0, %v) : (tensor<1x2xf32>, tensor<2x2xf32>) -> tensor<1x2xf32> loc("fits")
    return %1 : tensor<1x2xf32>
  }
}
