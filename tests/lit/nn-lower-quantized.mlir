// RUN: opt --passes=nn-lower-quantized --explain=nn-lower-quantized %s | filecheck %s

// CHECK-LABEL: module @a_convolution_with_bias_and_relu
// CHECK: %[[S:.*]] = "nn.conv_integer"(%arg0, %arg1, %{{.*}}) {{.*}} -> tensor<1x2x4x4xi32>
// CHECK: dense<{{\[\[\[}}100]], {{\[\[}}-200]]]> : tensor<2x1x1xi32>
// CHECK: %[[B:.*]] = "nn.add"(%[[S]],
// CHECK: %[[F:.*]] = "nn.cast"(%[[B]]) {to = "f32"}
// CHECK: dense<{{\[\[\[}}2.500000e-01]], {{\[\[}}5.000000e-01]]]> : tensor<2x1x1xf32>
// CHECK: %[[M:.*]] = "nn.mul"(%[[F]],
// CHECK: %[[R:.*]] = "nn.maximum"(%[[M]],
// CHECK: dense<1.000000e+00> : tensor<f32>
// CHECK: "nn.quantize"(%[[R]], %{{.*}}, %{{.*}}) {to = "ui8"}
// CHECK-NEXT: return
// CHECK: // QuantizedExpression fired at q
module @a_convolution_with_bias_and_relu {
  func.func @main(%x: tensor<1x3x4x4xui8>, %w: tensor<2x3x1x1xi8>) -> tensor<1x2x4x4xui8> {
    %sx = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %zx = "nn.const"() {value = dense<7> : tensor<ui8>} : () -> tensor<ui8>
    %sw = "nn.const"() {value = dense<[0.25, 0.5]> : tensor<2xf32>} : () -> tensor<2xf32>
    %sb = "nn.const"() {value = dense<[0.125, 0.25]> : tensor<2xf32>} : () -> tensor<2xf32>
    %b = "nn.const"() {value = dense<[100, -200]> : tensor<2xi32>} : () -> tensor<2xi32>
    %zy = "nn.const"() {value = dense<3> : tensor<ui8>} : () -> tensor<ui8>
    %0 = "nn.dequantize"(%x, %sx, %zx) {to = "f32"} : (tensor<1x3x4x4xui8>, tensor<f32>, tensor<ui8>) -> tensor<1x3x4x4xf32>
    %1 = "nn.dequantize"(%w, %sw) {axis = 0 : i64, to = "f32"} : (tensor<2x3x1x1xi8>, tensor<2xf32>) -> tensor<2x3x1x1xf32>
    %2 = "nn.dequantize"(%b, %sb) {axis = 0 : i64, to = "f32"} : (tensor<2xi32>, tensor<2xf32>) -> tensor<2xf32>
    %3 = "nn.conv"(%0, %1, %2) {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x3x4x4xf32>, tensor<2x3x1x1xf32>, tensor<2xf32>) -> tensor<1x2x4x4xf32>
    %4 = "nn.relu"(%3) : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    %5 = "nn.quantize"(%4, %sx, %zy) {to = "ui8"} : (tensor<1x2x4x4xf32>, tensor<f32>, tensor<ui8>) -> tensor<1x2x4x4xui8> loc("q")
    return %5 : tensor<1x2x4x4xui8>
  }
}

// -----

// CHECK-LABEL: module @a_bias_of_another_scale_is_a_term_of_its_own
// CHECK: "nn.conv_integer"
// CHECK-NEXT: "nn.cast"
// CHECK: "nn.mul"
// CHECK: dense<{{.*}}3.750000e+00{{.*}}> : tensor<1x1x1xf32>
// CHECK: "nn.add"
// CHECK: "nn.quantize"
module @a_bias_of_another_scale_is_a_term_of_its_own {
  func.func @main(%x: tensor<1x3x4x4xui8>, %w: tensor<1x3x1x1xi8>) -> tensor<1x1x4x4xui8> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %sb = "nn.const"() {value = dense<0.125> : tensor<f32>} : () -> tensor<f32>
    %b = "nn.const"() {value = dense<15> : tensor<1xi32>} : () -> tensor<1xi32>
    %0 = "nn.dequantize"(%x, %s) {to = "f32"} : (tensor<1x3x4x4xui8>, tensor<f32>) -> tensor<1x3x4x4xf32>
    %1 = "nn.dequantize"(%w, %s) {to = "f32"} : (tensor<1x3x1x1xi8>, tensor<f32>) -> tensor<1x3x1x1xf32>
    %2 = "nn.dequantize"(%b, %sb) {to = "f32"} : (tensor<1xi32>, tensor<f32>) -> tensor<1xf32>
    %3 = "nn.conv"(%0, %1, %2) {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x3x4x4xf32>, tensor<1x3x1x1xf32>, tensor<1xf32>) -> tensor<1x1x4x4xf32>
    %4 = "nn.quantize"(%3, %s) {to = "ui8"} : (tensor<1x1x4x4xf32>, tensor<f32>) -> tensor<1x1x4x4xui8>
    return %4 : tensor<1x1x4x4xui8>
  }
}

// -----

// CHECK-LABEL: module @a_residual_is_scaled_and_added
// CHECK: %[[P:.*]] = "nn.matmul_integer"(%arg0, %arg1)
// CHECK: %[[A:.*]] = "nn.mul"
// CHECK: "nn.cast"(%arg2) {to = "i32"}
// CHECK: "nn.cast"{{.*}} {to = "f32"}
// CHECK: %[[B:.*]] = "nn.mul"
// CHECK-NEXT: %[[C:.*]] = "nn.add"(%[[A]], %[[B]])
// CHECK: "nn.quantize"(%[[C]],
// CHECK-SAME: to = "i8"
module @a_residual_is_scaled_and_added {
  func.func @main(%a: tensor<?x8xi8>, %b: tensor<8x8xi8>, %r: tensor<?x8xi8>) -> tensor<?x8xi8> {
    %s = "nn.const"() {value = dense<0.1> : tensor<f32>} : () -> tensor<f32>
    %t = "nn.const"() {value = dense<0.3> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.dequantize"(%a, %s) {to = "f32"} : (tensor<?x8xi8>, tensor<f32>) -> tensor<?x8xf32>
    %1 = "nn.dequantize"(%b, %s) {to = "f32"} : (tensor<8x8xi8>, tensor<f32>) -> tensor<8x8xf32>
    %2 = "nn.dequantize"(%r, %t) {to = "f32"} : (tensor<?x8xi8>, tensor<f32>) -> tensor<?x8xf32>
    %3 = "nn.matmul"(%0, %1) {transpose_a = false, transpose_b = false} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
    %4 = "nn.add"(%3, %2) : (tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
    %5 = "nn.quantize"(%4, %s) {to = "i8"} : (tensor<?x8xf32>, tensor<f32>) -> tensor<?x8xi8>
    return %5 : tensor<?x8xi8>
  }
}

// -----

// CHECK-LABEL: module @a_product_that_is_not_quantized_is_one_multiplication
// CHECK: "nn.matmul_integer"(%arg0, %arg1)
// CHECK-NEXT: "nn.cast"{{.*}} {to = "f32"}
// CHECK: dense<[5.000000e-01, 1.000000e+00, 1.500000e+00]>
// CHECK: "nn.mul"
// CHECK-NEXT: return
// CHECK: // ProductOfMatrices fired at product
module @a_product_that_is_not_quantized_is_one_multiplication {
  func.func @main(%a: tensor<4x8xui8>, %b: tensor<3x8xi8>) -> tensor<4x3xf32> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %t = "nn.const"() {value = dense<[1.0, 2.0, 3.0]> : tensor<3xf32>} : () -> tensor<3xf32>
    %0 = "nn.dequantize"(%a, %s) {to = "f32"} : (tensor<4x8xui8>, tensor<f32>) -> tensor<4x8xf32>
    %1 = "nn.dequantize"(%b, %t) {axis = 0 : i64, to = "f32"} : (tensor<3x8xi8>, tensor<3xf32>) -> tensor<3x8xf32>
    %2 = "nn.matmul"(%0, %1) {transpose_a = false, transpose_b = true} : (tensor<4x8xf32>, tensor<3x8xf32>) -> tensor<4x3xf32> loc("product")
    return %2 : tensor<4x3xf32>
  }
}

// -----

// CHECK-LABEL: module @scales_along_the_summed_axis_stay
// CHECK: "nn.matmul"
// CHECK: // ProductOfMatrices missed product: the right operand's scales are not those of columns
module @scales_along_the_summed_axis_stay {
  func.func @main(%a: tensor<4x3xui8>, %b: tensor<3x8xi8>) -> tensor<4x8xf32> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %t = "nn.const"() {value = dense<[1.0, 2.0, 3.0]> : tensor<3xf32>} : () -> tensor<3xf32>
    %0 = "nn.dequantize"(%a, %s) {to = "f32"} : (tensor<4x3xui8>, tensor<f32>) -> tensor<4x3xf32>
    %1 = "nn.dequantize"(%b, %t) {axis = 0 : i64, to = "f32"} : (tensor<3x8xi8>, tensor<3xf32>) -> tensor<3x8xf32>
    %2 = "nn.matmul"(%0, %1) {transpose_a = false, transpose_b = false} : (tensor<4x3xf32>, tensor<3x8xf32>) -> tensor<4x8xf32> loc("product")
    return %2 : tensor<4x8xf32>
  }
}

// -----

// CHECK-LABEL: module @sums_that_may_not_fit_stay
// CHECK: "nn.matmul"
// CHECK: // ProductOfMatrices missed product: sums of 70000 products may not fit 32 bits
module @sums_that_may_not_fit_stay {
  func.func @main(%a: tensor<1x70000xui8>, %b: tensor<70000x1xi8>) -> tensor<1x1xf32> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.dequantize"(%a, %s) {to = "f32"} : (tensor<1x70000xui8>, tensor<f32>) -> tensor<1x70000xf32>
    %1 = "nn.dequantize"(%b, %s) {to = "f32"} : (tensor<70000x1xi8>, tensor<f32>) -> tensor<70000x1xf32>
    %2 = "nn.matmul"(%0, %1) {transpose_a = false, transpose_b = false} : (tensor<1x70000xf32>, tensor<70000x1xf32>) -> tensor<1x1xf32> loc("product")
    return %2 : tensor<1x1xf32>
  }
}

// -----

// CHECK-LABEL: module @integers_of_16_bits_stay
// CHECK: "nn.matmul"
// CHECK: // ProductOfMatrices missed product: the left operand is of i16
module @integers_of_16_bits_stay {
  func.func @main(%a: tensor<4x3xi16>, %b: tensor<3x8xi8>) -> tensor<4x8xf32> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.dequantize"(%a, %s) {to = "f32"} : (tensor<4x3xi16>, tensor<f32>) -> tensor<4x3xf32>
    %1 = "nn.dequantize"(%b, %s) {to = "f32"} : (tensor<3x8xi8>, tensor<f32>) -> tensor<3x8xf32>
    %2 = "nn.matmul"(%0, %1) {transpose_a = false, transpose_b = false} : (tensor<4x3xf32>, tensor<3x8xf32>) -> tensor<4x8xf32> loc("product")
    return %2 : tensor<4x8xf32>
  }
}

// -----

// CHECK-LABEL: module @a_float_term_stays
// CHECK: "nn.matmul_integer"
// CHECK: "nn.add"({{.*}}, %arg2)
// CHECK: "nn.quantize"{{.*}}, %arg3)
// CHECK: // QuantizedExpression missed q: the scale is not a constant
module @a_float_term_stays {
  func.func @main(%a: tensor<4x3xui8>, %b: tensor<3x8xi8>, %r: tensor<4x8xf32>, %t: tensor<f32>) -> tensor<4x8xui8> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.dequantize"(%a, %s) {to = "f32"} : (tensor<4x3xui8>, tensor<f32>) -> tensor<4x3xf32>
    %1 = "nn.dequantize"(%b, %s) {to = "f32"} : (tensor<3x8xi8>, tensor<f32>) -> tensor<3x8xf32>
    %2 = "nn.matmul"(%0, %1) {transpose_a = false, transpose_b = false} : (tensor<4x3xf32>, tensor<3x8xf32>) -> tensor<4x8xf32>
    %3 = "nn.add"(%2, %r) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %4 = "nn.quantize"(%3, %t) {to = "ui8"} : (tensor<4x8xf32>, tensor<f32>) -> tensor<4x8xui8> loc("q")
    return %4 : tensor<4x8xui8>
  }
}
