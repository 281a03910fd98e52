// RUN: opt --passes='nn-insert-quantization{table=%S/nn-insert-quantization.json}' --explain=nn-insert-quantization %s | filecheck %s

// A pair for the input, shared by both convolutions; weights of 8 bits by output channel; a bias of int32.
// CHECK-LABEL: module @convolutions
// CHECK: "nn.const"() {value = dense<0.0156862754> : tensor<f32>}
// CHECK: "nn.const"() {value = dense<64> : tensor<ui8>}
// CHECK: "nn.quantize"(%arg0{{.*}} {to = "ui8"}
// CHECK: [[X:%[0-9]+]] = "nn.dequantize"
// CHECK: "nn.const"() {value = dense<{{.*}}> : tensor<2xi32>}
// CHECK: [[BIAS:%[0-9]+]] = "nn.dequantize"{{.*}} {axis = 0 : i64{{.*}} : (tensor<2xi32>, tensor<2xf32>)
// CHECK: "nn.const"() {value = dense<{{.*}}127{{.*}}> : tensor<2x1x1x1xi8>}
// CHECK: [[W:%[0-9]+]] = "nn.dequantize"{{.*}} {axis = 0 : i64
// CHECK: [[Y:%[0-9]+]] = "nn.conv"([[X]], [[W]], [[BIAS]])
// CHECK: "nn.conv"([[X]],
// CHECK: // Quantized fired at first
// CHECK: // Quantized fired at second
module @convolutions {
  func.func @main(%x: tensor<1x1x4x4xf32>) -> (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>) {
    %w = "nn.const"() {value = dense<[[[[1.0]]], [[[-2.0]]]]> : tensor<2x1x1x1xf32>} : () -> tensor<2x1x1x1xf32>
    %b = "nn.const"() {value = dense<[0.5, 0.25]> : tensor<2xf32>} : () -> tensor<2xf32>
    %0 = "nn.conv"(%x, %w, %b) {dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>, tensor<2xf32>) -> tensor<1x2x4x4xf32> loc("first")
    %1 = "nn.conv"(%x, %w) {dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32> loc("second")
    return %0, %1 : tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>
  }
}

// -----

// Columns of a matrix are its channels. What is returned stays in floating point, and so does what is to be kept.
// CHECK-LABEL: module @matrices
// CHECK: [[R:%[0-9]+]] = "nn.relu"
// CHECK: "nn.quantize"([[R]],
// CHECK: [[D:%[0-9]+]] = "nn.dequantize"
// CHECK: "nn.dequantize"{{.*}} : (tensor<3x2xi8>, tensor<2xf32>)
// CHECK: "nn.matmul"([[D]],
// CHECK: "nn.matmul"([[R]],
// CHECK: return [[R]],
// CHECK: // KeptInFloat missed kept: kept in floating point by 'kept'
module @matrices {
  func.func @main(%x: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x2xf32>, tensor<4x2xf32>) {
    %w = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>} : () -> tensor<3x2xf32>
    %0 = "nn.relu"(%x) : (tensor<4x3xf32>) -> tensor<4x3xf32> loc("relu")
    %1 = "nn.matmul"(%0, %w) : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32> loc("dense")
    %2 = "nn.matmul"(%0, %w) : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32> loc("kept")
    return %0, %1, %2 : tensor<4x3xf32>, tensor<4x2xf32>, tensor<4x2xf32>
  }
}

// -----

// A model that says itself what is quantized stays as it is.
// CHECK-LABEL: module @quantized_already
// CHECK: "nn.conv"(%{{.*}}, %{{.*}})
// CHECK-NOT: "nn.quantize"
// CHECK: return
module @quantized_already {
  func.func @main(%x: tensor<1x1x4x4xui8>, %s: tensor<f32>) -> tensor<1x2x4x4xf32> {
    %w = "nn.const"() {value = dense<[[[[1.0]]], [[[-2.0]]]]> : tensor<2x1x1x1xf32>} : () -> tensor<2x1x1x1xf32>
    %0 = "nn.dequantize"(%x, %s) {to = "f32", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<1x1x4x4xui8>, tensor<f32>) -> tensor<1x1x4x4xf32>
    %1 = "nn.conv"(%0, %w) {dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
    return %1 : tensor<1x2x4x4xf32>
  }
}
