// RUN: opt --passes=nn-expand-zero-points --explain=nn-expand-zero-points %s | filecheck %s

// 3·(1 + … + 9) is subtracted for the zero point, which pads hold; the bias meets that constant.
// CHECK-LABEL: module @a_padded_convolution_with_constant_weights
// CHECK: %[[C:.*]] = "nn.conv_integer"(%arg0, %{{.*}}, %{{.*}}) {dilations = array<i64: 1, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 1>
// CHECK: %[[K:.*]] = "nn.const"() {value = dense<-35> : tensor<1x1x1xi32>}
// CHECK-NEXT: "nn.add"(%[[C]], %[[K]])
// CHECK-NEXT: return
// CHECK-DAG: // ZeroPointsOfConv fired at conv
// CHECK-DAG: // SumOfConstants fired at
module @a_padded_convolution_with_constant_weights {
  func.func @main(%x: tensor<1x1x4x4xui8>) -> tensor<1x1x4x4xi32> {
    %w = "nn.const"() {value = dense<[[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]]> : tensor<1x1x3x3xi8>} : () -> tensor<1x1x3x3xi8>
    %z = "nn.const"() {value = dense<3> : tensor<ui8>} : () -> tensor<ui8>
    %b = "nn.const"() {value = dense<100> : tensor<1x1x1xi32>} : () -> tensor<1x1x1xi32>
    %0 = "nn.conv_integer"(%x, %w, %z) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x1x4x4xui8>, tensor<1x1x3x3xi8>, tensor<ui8>) -> tensor<1x1x4x4xi32> loc("conv")
    %1 = "nn.add"(%0, %b) : (tensor<1x1x4x4xi32>, tensor<1x1x1xi32>) -> tensor<1x1x4x4xi32>
    return %1 : tensor<1x1x4x4xi32>
  }
}

// -----

// CHECK-LABEL: module @zero_points_of_weights_that_fit_are_subtracted
// CHECK: %[[W:.*]] = "nn.const"() {value = dense<{{.*}}-2{{.*}}3{{.*}}> : tensor<2x1xi8>}
// CHECK-NEXT: "nn.matmul_integer"(%arg0, %[[W]]) {operandSegmentSizes = array<i32: 1, 1, 0, 0>}
// CHECK-NEXT: return
module @zero_points_of_weights_that_fit_are_subtracted {
  func.func @main(%x: tensor<?x2xui8>) -> tensor<?x1xi32> {
    %w = "nn.const"() {value = dense<[[3], [8]]> : tensor<2x1xi8>} : () -> tensor<2x1xi8>
    %z = "nn.const"() {value = dense<5> : tensor<i8>} : () -> tensor<i8>
    %0 = "nn.matmul_integer"(%x, %w, %z) {transpose_a = false, transpose_b = false, operandSegmentSizes = array<i32: 1, 1, 0, 1>} : (tensor<?x2xui8>, tensor<2x1xi8>, tensor<i8>) -> tensor<?x1xi32>
    return %0 : tensor<?x1xi32>
  }
}

// -----

// CHECK-LABEL: module @those_that_do_not_fit_take_the_sums_of_inputs
// CHECK: %[[C:.*]] = "nn.conv_integer"(%arg0, %{{.*}}, %arg1)
// CHECK: %[[ONES:.*]] = "nn.const"() {value = dense<1> : tensor<1x1x1x2xi8>}
// CHECK-NEXT: %[[S:.*]] = "nn.conv_integer"(%arg0, %[[ONES]], %arg1)
// CHECK: %[[P:.*]] = "nn.mul"(%{{.*}}, %[[S]])
// CHECK-NEXT: %[[D:.*]] = "nn.sub"(%[[C]], %[[P]])
// CHECK: %[[Z:.*]] = "nn.cast"(%arg1) {to = "i32"}
// CHECK: %[[Q:.*]] = "nn.mul"(%[[Z]],
// CHECK: "nn.sub"(%[[D]], %[[Q]])
module @those_that_do_not_fit_take_the_sums_of_inputs {
  func.func @main(%x: tensor<1x1x4x4xui8>, %z: tensor<ui8>) -> tensor<1x1x6x5xi32> {
    %w = "nn.const"() {value = dense<[[[[-128, 127]]]]> : tensor<1x1x1x2xi8>} : () -> tensor<1x1x1x2xi8>
    %zw = "nn.const"() {value = dense<[3]> : tensor<1xi8>} : () -> tensor<1xi8>
    %0 = "nn.conv_integer"(%x, %w, %z, %zw) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>} : (tensor<1x1x4x4xui8>, tensor<1x1x1x2xi8>, tensor<ui8>, tensor<1xi8>) -> tensor<1x1x6x5xi32>
    return %0 : tensor<1x1x6x5xi32>
  }
}

// -----

// CHECK-LABEL: module @two_matrices_that_are_computed
// CHECK: %[[P:.*]] = "nn.matmul_integer"(%arg0, %arg1)
// CHECK-DAG: "nn.cast"(%arg0) {to = "i32"}
// CHECK: "nn.reduce_sum"{{.*}}axes = array<i64: 2>
// CHECK: "nn.unsqueeze"{{.*}}axes = array<i64: -1>
// CHECK: "nn.sub"(%[[P]],
// CHECK: "nn.reduce_sum"{{.*}}axes = array<i64: 1>
// CHECK: "nn.unsqueeze"{{.*}}axes = array<i64: -2>
// CHECK: "nn.sub"
module @two_matrices_that_are_computed {
  func.func @main(%a: tensor<2x?x8xui8>, %b: tensor<2x8x?xi8>, %za: tensor<ui8>, %zb: tensor<i8>) -> tensor<2x?x?xi32> {
    %0 = "nn.matmul_integer"(%a, %b, %za, %zb) {transpose_a = false, transpose_b = false, operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (tensor<2x?x8xui8>, tensor<2x8x?xi8>, tensor<ui8>, tensor<i8>) -> tensor<2x?x?xi32>
    return %0 : tensor<2x?x?xi32>
  }
}

// -----

// CHECK-LABEL: module @without_zero_points_stays
// CHECK: // ZeroPointsOfMatMul missed product: it has no zero points
module @without_zero_points_stays {
  func.func @main(%a: tensor<2x8xui8>, %b: tensor<8x4xi8>) -> tensor<2x4xi32> {
    %0 = "nn.matmul_integer"(%a, %b) {transpose_a = false, transpose_b = false, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x8xui8>, tensor<8x4xi8>) -> tensor<2x4xi32> loc("product")
    return %0 : tensor<2x4xi32>
  }
}

// -----

// CHECK-LABEL: module @padding_of_unknown_width_stays
// CHECK: // ZeroPointsOfConv missed conv: its padding is not written down
module @padding_of_unknown_width_stays {
  func.func @main(%x: tensor<1x1x?x?xui8>, %w: tensor<1x1x3x3xi8>, %z: tensor<ui8>) -> tensor<1x1x?x?xi32> {
    %0 = "nn.conv_integer"(%x, %w, %z) {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, auto_pad = "same_upper", operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x1x?x?xui8>, tensor<1x1x3x3xi8>, tensor<ui8>) -> tensor<1x1x?x?xi32> loc("conv")
    return %0 : tensor<1x1x?x?xi32>
  }
}
