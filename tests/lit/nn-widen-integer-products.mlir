// RUN: opt --passes=nn-widen-integer-products --explain=nn-widen-integer-products %s | filecheck %s

// CHECK-LABEL: module @a_convolution
// CHECK: %[[X:.*]] = "nn.cast"(%arg0) {to = "i32"}
// CHECK: %[[ZX:.*]] = "nn.cast"(%arg2) {to = "i32"}
// CHECK: %[[A:.*]] = "nn.sub"(%[[X]], %[[ZX]])
// CHECK: %[[W:.*]] = "nn.cast"(%arg1) {to = "i32"}
// CHECK: %[[ZW:.*]] = "nn.cast"(%arg3) {to = "i32"}
// CHECK: %[[V:.*]] = "nn.reshape"(%[[ZW]]
// CHECK: %[[B:.*]] = "nn.sub"(%[[W]], %[[V]])
// CHECK: "nn.conv"(%[[A]], %[[B]])
// CHECK-SAME: pads = array<i64: 1, 1, 1, 1>
// CHECK: // WidenConv fired at node
module @a_convolution {
  func.func @main(%x: tensor<1x3x8x8xui8>, %w: tensor<4x3x3x3xi8>, %zx: tensor<ui8>, %zw: tensor<4xi8>) -> tensor<1x4x8x8xi32> {
    %0 = "nn.conv_integer"(%x, %w, %zx, %zw) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64, auto_pad = "notset", operandSegmentSizes = array<i32: 1, 1, 1, 1, 0>} : (tensor<1x3x8x8xui8>, tensor<4x3x3x3xi8>, tensor<ui8>, tensor<4xi8>) -> tensor<1x4x8x8xi32> loc("node")
    return %0 : tensor<1x4x8x8xi32>
  }
}

// -----

// CHECK-LABEL: module @rows_and_columns_with_zero_points_of_their_own
// CHECK: "nn.sub"
// CHECK: "nn.sub"
// CHECK: "nn.matmul"
module @rows_and_columns_with_zero_points_of_their_own {
  func.func @main(%a: tensor<2x3xui8>, %b: tensor<3x4xi8>, %za: tensor<2xui8>, %zb: tensor<4xi8>) -> tensor<2x4xi32> {
    %0 = "nn.matmul_integer"(%a, %b, %za, %zb) {transpose_a = false, transpose_b = false, operandSegmentSizes = array<i32: 1, 1, 1, 1>} : (tensor<2x3xui8>, tensor<3x4xi8>, tensor<2xui8>, tensor<4xi8>) -> tensor<2x4xi32>
    return %0 : tensor<2x4xi32>
  }
}

// -----

// CHECK-LABEL: module @padding_that_is_not_the_zero_point_is_written_down
// CHECK: %[[P:.*]] = "nn.pad"(%arg0, %{{.*}}, %arg2)
// CHECK: %[[X:.*]] = "nn.cast"(%[[P]]) {to = "i32"} : (tensor<1x3x10x10xui8>)
// CHECK: %[[D:.*]] = "nn.sub"(%[[X]],
// CHECK: "nn.conv"(%[[D]],
// CHECK-SAME: pads = array<i64: 0, 0, 0, 0>
module @padding_that_is_not_the_zero_point_is_written_down {
  func.func @main(%x: tensor<1x3x8x8xui8>, %w: tensor<4x3x3x3xi8>, %f: tensor<ui8>, %z: tensor<ui8>) -> tensor<1x4x8x8xi32> {
    %0 = "nn.conv_integer"(%x, %w, %z, %f) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64, auto_pad = "notset", operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>} : (tensor<1x3x8x8xui8>, tensor<4x3x3x3xi8>, tensor<ui8>, tensor<ui8>) -> tensor<1x4x8x8xi32>
    return %0 : tensor<1x4x8x8xi32>
  }
}

// -----

// CHECK-LABEL: module @padding_of_unknown_width_stays
// CHECK: "nn.conv_integer"
// CHECK: // WidenConv missed other: its padding is neither its zero point nor written down
module @padding_of_unknown_width_stays {
  func.func @main(%x: tensor<1x3x?x?xui8>, %w: tensor<4x3x3x3xi8>, %f: tensor<ui8>, %z: tensor<ui8>) -> tensor<1x4x?x?xi32> {
    %0 = "nn.conv_integer"(%x, %w, %z, %f) {strides = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64, auto_pad = "same_upper", operandSegmentSizes = array<i32: 1, 1, 1, 0, 1>} : (tensor<1x3x?x?xui8>, tensor<4x3x3x3xi8>, tensor<ui8>, tensor<ui8>) -> tensor<1x4x?x?xi32> loc("other")
    return %0 : tensor<1x4x?x?xi32>
  }
}

// -----

// CHECK-LABEL: module @convolutions_without_zero_points_are_kernels
// CHECK: "nn.conv_integer"
// CHECK: // WidenConv missed plain: kernels convolve 8-bit integers
module @convolutions_without_zero_points_are_kernels {
  func.func @main(%x: tensor<1x3x8x8xui8>, %w: tensor<4x3x3x3xi8>, %f: tensor<ui8>) -> tensor<1x4x8x8xi32> {
    %0 = "nn.conv_integer"(%x, %w, %f) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64, auto_pad = "notset", operandSegmentSizes = array<i32: 1, 1, 0, 0, 1>} : (tensor<1x3x8x8xui8>, tensor<4x3x3x3xi8>, tensor<ui8>) -> tensor<1x4x8x8xi32> loc("plain")
    return %0 : tensor<1x4x8x8xi32>
  }
}

// -----

// CHECK-LABEL: module @products_without_zero_points_are_kernels
// CHECK: "nn.matmul_integer"
// CHECK: // WidenMatMul missed plain: kernels multiply 8-bit integers
module @products_without_zero_points_are_kernels {
  func.func @main(%a: tensor<2x3xui8>, %b: tensor<3x4xi8>) -> tensor<2x4xi32> {
    %0 = "nn.matmul_integer"(%a, %b) {transpose_a = false, transpose_b = false, operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x3xui8>, tensor<3x4xi8>) -> tensor<2x4xi32> loc("plain")
    return %0 : tensor<2x4xi32>
  }
}
