// RUN: opt --passes=nn-match-signs --target=x86-avx2 %s | filecheck %s
// RUN: opt --passes=nn-match-signs --target=arm-dotprod %s | filecheck %s --check-prefix=ARM

// Quantization makes what the product multiplies; what else reads it gets the same numbers.
// CHECK-LABEL: module @quantization_makes_the_other_sign
// CHECK: dense<138> : tensor<ui8>
// CHECK-NEXT: %[[Q:.*]] = "nn.quantize"(%arg0, %arg1, %{{.*}}) {to = "ui8"}
// CHECK-NEXT: %[[Z:.*]] = "nn.const"() {value = dense<138> : tensor<ui8>}
// CHECK-NEXT: "nn.matmul_integer"(%[[Q]], %arg2, %[[Z]])
// CHECK-NEXT: %[[Y:.*]] = "nn.const"() {value = dense<138> : tensor<ui8>}
// CHECK-NEXT: "nn.dequantize"(%[[Q]], %arg1, %[[Y]])
// ARM-LABEL: module @quantization_makes_the_other_sign
// ARM-NOT: ui8
module @quantization_makes_the_other_sign {
  func.func @main(%x: tensor<4x8xf32>, %s: tensor<f32>, %w: tensor<8x3xi8>) -> (tensor<4x3xi32>, tensor<4x8xf32>) {
    %z = "nn.const"() {value = dense<10> : tensor<i8>} : () -> tensor<i8>
    %0 = "nn.quantize"(%x, %s, %z) {to = "i8"} : (tensor<4x8xf32>, tensor<f32>, tensor<i8>) -> tensor<4x8xi8>
    %1 = "nn.matmul_integer"(%0, %w, %z) {transpose_a = false, transpose_b = false, operandSegmentSizes = array<i32: 1, 1, 1, 0>} : (tensor<4x8xi8>, tensor<8x3xi8>, tensor<i8>) -> tensor<4x3xi32>
    %2 = "nn.dequantize"(%0, %s, %z) {to = "f32"} : (tensor<4x8xi8>, tensor<f32>, tensor<i8>) -> tensor<4x8xf32>
    return %1, %2 : tensor<4x3xi32>, tensor<4x8xf32>
  }
}

// -----

// CHECK-LABEL: module @through_moves_and_pads
// CHECK: %[[Q:.*]] = "nn.quantize"(%arg0, %arg1, %{{.*}}) {to = "ui8"}
// CHECK-NEXT: %[[T:.*]] = "nn.transpose"(%[[Q]])
// CHECK: %[[Z:.*]] = "nn.const"() {value = dense<128> : tensor<ui8>}
// CHECK-NEXT: %[[P:.*]] = "nn.pad"(%[[T]], %{{.*}}, %[[Z]])
// CHECK: "nn.matmul_integer"(%[[P]], %arg2, %{{.*}}) {operandSegmentSizes = array<i32: 1, 1, 1, 0>}
// ARM-LABEL: module @through_moves_and_pads
// ARM-NOT: ui8
module @through_moves_and_pads {
  func.func @main(%x: tensor<8x4xf32>, %s: tensor<f32>, %w: tensor<9x3xi8>) -> tensor<4x3xi32> {
    %0 = "nn.quantize"(%x, %s) {to = "i8"} : (tensor<8x4xf32>, tensor<f32>) -> tensor<8x4xi8>
    %1 = "nn.transpose"(%0) {perm = array<i64: 1, 0>} : (tensor<8x4xi8>) -> tensor<4x8xi8>
    %p = "nn.const"() {value = dense<[0, 1, 0, 0]> : tensor<4xi64>} : () -> tensor<4xi64>
    %2 = "nn.pad"(%1, %p) {operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<4x8xi8>, tensor<4xi64>) -> tensor<4x9xi8>
    %3 = "nn.matmul_integer"(%2, %w) {transpose_a = false, transpose_b = false, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<4x9xi8>, tensor<9x3xi8>) -> tensor<4x3xi32>
    return %3 : tensor<4x3xi32>
  }
}

// -----

// An argument is moved by an elementwise op; constants are moved at once.
// CHECK-LABEL: module @constant_weights_and_an_argument
// CHECK: %[[C:.*]] = "nn.cast"(%arg0) {to = "ui8"}
// CHECK: %[[X:.*]] = "nn.bitwise_xor"(%[[C]], %{{.*}})
// CHECK: %[[W:.*]] = "nn.const"() {value = dense<{{.*}}-125{{.*}}2{{.*}}> : tensor<1x2x1x1xi8>}
// CHECK: %[[ZX:.*]] = "nn.const"() {value = dense<128> : tensor<ui8>}
// CHECK: %[[ZW:.*]] = "nn.const"() {value = dense<-123> : tensor<i8>}
// CHECK: "nn.conv_integer"(%[[X]], %[[W]], %[[ZX]], %[[ZW]])
// ARM-LABEL: module @constant_weights_and_an_argument
// ARM: dense<-123> : tensor<i8>
// ARM-NEXT: "nn.conv_integer"(%arg0,
module @constant_weights_and_an_argument {
  func.func @main(%x: tensor<1x2x4x4xi8>) -> tensor<1x1x4x4xi32> {
    %w = "nn.const"() {value = dense<[[[[3]], [[130]]]]> : tensor<1x2x1x1xui8>} : () -> tensor<1x2x1x1xui8>
    %z = "nn.const"() {value = dense<5> : tensor<ui8>} : () -> tensor<ui8>
    %0 = "nn.conv_integer"(%x, %w, %z) {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 1, 0>} : (tensor<1x2x4x4xi8>, tensor<1x2x1x1xui8>, tensor<ui8>) -> tensor<1x1x4x4xi32>
    return %0 : tensor<1x1x4x4xi32>
  }
}

// -----

// CHECK-LABEL: module @a_result_that_the_model_gives_keeps_its_sign
// CHECK: %[[Q:.*]] = "nn.quantize"{{.*}} {to = "ui8"}
// CHECK: %[[C:.*]] = "nn.cast"(%[[Q]]) {to = "i8"}
// CHECK: %[[Y:.*]] = "nn.bitwise_xor"(%[[C]],
// CHECK: "nn.matmul_integer"(%[[Q]],
// CHECK: return %{{.*}}, %[[Y]]
module @a_result_that_the_model_gives_keeps_its_sign {
  func.func @main(%x: tensor<4x8xf32>, %s: tensor<f32>, %w: tensor<8x3xi8>) -> (tensor<4x3xi32>, tensor<4x8xi8>) {
    %0 = "nn.quantize"(%x, %s) {to = "i8"} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
    %1 = "nn.matmul_integer"(%0, %w) {transpose_a = false, transpose_b = false, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<4x8xi8>, tensor<8x3xi8>) -> tensor<4x3xi32>
    return %1, %0 : tensor<4x3xi32>, tensor<4x8xi8>
  }
}

// -----

// CHECK-LABEL: module @no_product_stays
// CHECK: "nn.quantize"(%arg0, %arg1) {to = "i8"}
module @no_product_stays {
  func.func @main(%x: tensor<4x8xf32>, %s: tensor<f32>) -> tensor<4x8xi8> {
    %0 = "nn.quantize"(%x, %s) {to = "i8"} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xi8>
    return %0 : tensor<4x8xi8>
  }
}
