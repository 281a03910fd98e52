// RUN: opt --passes=nn-move-quantize --explain=nn-move-quantize %s | filecheck %s

// CHECK-LABEL: module @integers_are_transposed
// CHECK: %[[T:.*]] = "nn.transpose"(%arg0) {perm = array<i64: 1, 0>} : (tensor<2x3xui8>)
// CHECK-NEXT: "nn.dequantize"(%[[T]], %arg1, %arg2)
// CHECK: // DequantizeBehind fired at move
module @integers_are_transposed {
  func.func @main(%x: tensor<2x3xui8>, %s: tensor<f32>, %z: tensor<ui8>) -> tensor<3x2xf32> {
    %0 = "nn.dequantize"(%x, %s, %z) {to = "f32"} : (tensor<2x3xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x3xf32>
    %1 = "nn.transpose"(%0) {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32> loc("move")
    return %1 : tensor<3x2xf32>
  }
}

// -----

// CHECK-LABEL: module @the_axis_of_scales_is_transposed
// CHECK: %[[T:.*]] = "nn.transpose"(%arg0)
// CHECK-NEXT: "nn.dequantize"(%[[T]], %arg1) {{.*}}to = "f32"} : (tensor<3x2xi8>, tensor<2xf32>)
module @the_axis_of_scales_is_transposed {
  func.func @main(%x: tensor<2x3xi8>, %s: tensor<2xf32>) -> tensor<3x2xf32> {
    %0 = "nn.dequantize"(%x, %s) {axis = -2 : i64, to = "f32"} : (tensor<2x3xi8>, tensor<2xf32>) -> tensor<2x3xf32>
    %1 = "nn.transpose"(%0) {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
    return %1 : tensor<3x2xf32>
  }
}

// -----

// CHECK-LABEL: module @the_axis_of_scales_behind_a_new_axis
// CHECK: "nn.dequantize"
// CHECK-SAME: axis = 3
module @the_axis_of_scales_behind_a_new_axis {
  func.func @main(%x: tensor<2xi8>, %s: tensor<2xf32>) -> tensor<1x1x1x2xf32> {
    %0 = "nn.dequantize"(%x, %s) {axis = 0 : i64, to = "f32"} : (tensor<2xi8>, tensor<2xf32>) -> tensor<2xf32>
    %1 = "nn.unsqueeze"(%0) {axes = array<i64: 0, 1, 2>} : (tensor<2xf32>) -> tensor<1x1x1x2xf32>
    return %1 : tensor<1x1x1x2xf32>
  }
}

// -----

// CHECK-LABEL: module @a_pad_adds_the_zero_point
// CHECK: "nn.pad"(%arg0, %{{.*}}, %arg2)
// CHECK: "nn.dequantize"
module @a_pad_adds_the_zero_point {
  func.func @main(%x: tensor<2xui8>, %s: tensor<f32>, %z: tensor<ui8>) -> tensor<4xf32> {
    %0 = "nn.dequantize"(%x, %s, %z) {to = "f32"} : (tensor<2xui8>, tensor<f32>, tensor<ui8>) -> tensor<2xf32>
    %p = "nn.const"() {value = dense<[1, 1]> : tensor<2xi64>} : () -> tensor<2xi64>
    %1 = "nn.pad"(%0, %p) {operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2xf32>, tensor<2xi64>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @a_pad_with_a_number_between_two_steps_stays
// CHECK: "nn.dequantize"
// CHECK: "nn.pad"
// CHECK: // DequantizeBehind missed pad: what is padded with is no multiple of the scale
module @a_pad_with_a_number_between_two_steps_stays {
  func.func @main(%x: tensor<2xui8>) -> tensor<4xf32> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.dequantize"(%x, %s) {to = "f32"} : (tensor<2xui8>, tensor<f32>) -> tensor<2xf32>
    %p = "nn.const"() {value = dense<[1, 1]> : tensor<2xi64>} : () -> tensor<2xi64>
    %v = "nn.const"() {value = dense<0.75> : tensor<f32>} : () -> tensor<f32>
    %1 = "nn.pad"(%0, %p, %v) {operandSegmentSizes = array<i32: 1, 1, 1, 0>} : (tensor<2xf32>, tensor<2xi64>, tensor<f32>) -> tensor<4xf32> loc("pad")
    return %1 : tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @integers_of_one_scale_are_concatenated
// CHECK: %[[C:.*]] = "nn.concat"(%arg0, %arg1)
// CHECK-NEXT: "nn.dequantize"(%[[C]], %arg2)
module @integers_of_one_scale_are_concatenated {
  func.func @main(%x: tensor<2xi8>, %y: tensor<3xi8>, %s: tensor<f32>) -> tensor<5xf32> {
    %0 = "nn.dequantize"(%x, %s) {to = "f32"} : (tensor<2xi8>, tensor<f32>) -> tensor<2xf32>
    %1 = "nn.dequantize"(%y, %s) {to = "f32"} : (tensor<3xi8>, tensor<f32>) -> tensor<3xf32>
    %2 = "nn.concat"(%0, %1) {axis = 0 : i64} : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32>
    return %2 : tensor<5xf32>
  }
}

// -----

// CHECK-LABEL: module @integers_of_two_scales_stay
// CHECK: "nn.concat"({{.*}}) {axis = 0 : i64} : (tensor<2xf32>, tensor<3xf32>)
// CHECK: // DequantizeBehindConcat missed join: the operands have different scales
module @integers_of_two_scales_stay {
  func.func @main(%x: tensor<2xi8>, %y: tensor<3xi8>, %s: tensor<f32>, %t: tensor<f32>) -> tensor<5xf32> {
    %0 = "nn.dequantize"(%x, %s) {to = "f32"} : (tensor<2xi8>, tensor<f32>) -> tensor<2xf32>
    %1 = "nn.dequantize"(%y, %t) {to = "f32"} : (tensor<3xi8>, tensor<f32>) -> tensor<3xf32>
    %2 = "nn.concat"(%0, %1) {axis = 0 : i64} : (tensor<2xf32>, tensor<3xf32>) -> tensor<5xf32> loc("join")
    return %2 : tensor<5xf32>
  }
}

// -----

// CHECK-LABEL: module @a_relu_is_the_maximum_with_the_zero_point
// CHECK: dense<128> : tensor<ui8>
// CHECK: %[[M:.*]] = "nn.maximum"(%arg0,
// CHECK-NEXT: "nn.dequantize"(%[[M]],
module @a_relu_is_the_maximum_with_the_zero_point {
  func.func @main(%x: tensor<2xui8>) -> tensor<2xf32> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %z = "nn.const"() {value = dense<128> : tensor<ui8>} : () -> tensor<ui8>
    %0 = "nn.dequantize"(%x, %s, %z) {to = "f32"} : (tensor<2xui8>, tensor<f32>, tensor<ui8>) -> tensor<2xf32>
    %1 = "nn.relu"(%0) : (tensor<2xf32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  }
}

// -----

// CHECK-LABEL: module @a_pool_and_a_concatenation_are_of_integers
// CHECK: %[[X:.*]] = "nn.quantize"(%arg0, %{{.*}})
// CHECK: %[[P:.*]] = "nn.max_pool"(%[[X]])
// CHECK: %[[Y:.*]] = "nn.quantize"(%arg1, %{{.*}})
// CHECK: "nn.concat"(%[[P]], %[[Y]])
// CHECK-NEXT: return
// CHECK-DAG: // QuantizeBefore fired
// CHECK-DAG: // QuantizeBeforeConcat fired
module @a_pool_and_a_concatenation_are_of_integers {
  func.func @main(%x: tensor<1x2x4x4xf32>, %y: tensor<1x2x2x2xf32>) -> tensor<1x4x2x2xui8> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.max_pool"(%x) {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads = array<i64: 0, 0, 0, 0>, dilations = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>) -> tensor<1x2x2x2xf32>
    %1 = "nn.concat"(%0, %y) {axis = 1 : i64} : (tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) -> tensor<1x4x2x2xf32>
    %2 = "nn.quantize"(%1, %s) {to = "ui8"} : (tensor<1x4x2x2xf32>, tensor<f32>) -> tensor<1x4x2x2xui8> loc("q")
    return %2 : tensor<1x4x2x2xui8>
  }
}

// -----

// CHECK-LABEL: module @alike_vanishes
// CHECK-NEXT: @main
// CHECK-NEXT: return %arg0
module @alike_vanishes {
  func.func @main(%x: tensor<2xui8>) -> tensor<2xui8> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %z = "nn.const"() {value = dense<0> : tensor<ui8>} : () -> tensor<ui8>
    %0 = "nn.dequantize"(%x, %s) {to = "f32"} : (tensor<2xui8>, tensor<f32>) -> tensor<2xf32>
    %1 = "nn.quantize"(%0, %s, %z) {to = "ui8"} : (tensor<2xf32>, tensor<f32>, tensor<ui8>) -> tensor<2xui8>
    return %1 : tensor<2xui8>
  }
}

// -----

// CHECK-LABEL: module @another_zero_point_stays
// CHECK: "nn.dequantize"
// CHECK: "nn.quantize"
// CHECK: // QuantizeOfDequantize missed q: scale, zero point or type differ
module @another_zero_point_stays {
  func.func @main(%x: tensor<2xui8>) -> tensor<2xui8> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %z = "nn.const"() {value = dense<1> : tensor<ui8>} : () -> tensor<ui8>
    %0 = "nn.dequantize"(%x, %s) {to = "f32"} : (tensor<2xui8>, tensor<f32>) -> tensor<2xf32>
    %1 = "nn.quantize"(%0, %s, %z) {to = "ui8"} : (tensor<2xf32>, tensor<f32>, tensor<ui8>) -> tensor<2xui8> loc("q")
    return %1 : tensor<2xui8>
  }
}

// -----

// CHECK-LABEL: module @a_relu_that_quantization_does_is_dropped
// CHECK-NOT: "nn.relu"
// CHECK: "nn.quantize"(%arg0
module @a_relu_that_quantization_does_is_dropped {
  func.func @main(%x: tensor<2xf32>) -> tensor<2xui8> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.relu"(%x) : (tensor<2xf32>) -> tensor<2xf32>
    %1 = "nn.quantize"(%0, %s) {to = "ui8"} : (tensor<2xf32>, tensor<f32>) -> tensor<2xui8>
    return %1 : tensor<2xui8>
  }
}

// -----

// CHECK-LABEL: module @a_relu_above_the_least_integer_stays
// CHECK: "nn.relu"
// CHECK: // ClampBeforeQuantize missed q: the quantized range goes below the lower bound
module @a_relu_above_the_least_integer_stays {
  func.func @main(%x: tensor<2xf32>) -> tensor<2xi8> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.relu"(%x) : (tensor<2xf32>) -> tensor<2xf32>
    %1 = "nn.quantize"(%0, %s) {to = "i8"} : (tensor<2xf32>, tensor<f32>) -> tensor<2xi8> loc("q")
    return %1 : tensor<2xi8>
  }
}

// -----

// CHECK-LABEL: module @a_clip_at_6_with_a_range_to_12_stays
// CHECK: "nn.clip"
// CHECK: // ClampBeforeQuantize missed q: the quantized range goes above the upper bound
module @a_clip_at_6_with_a_range_to_12_stays {
  func.func @main(%x: tensor<2xf32>) -> tensor<2xui8> {
    %s = "nn.const"() {value = dense<0.05> : tensor<f32>} : () -> tensor<f32>
    %l = "nn.const"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %h = "nn.const"() {value = dense<6.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.clip"(%x, %l, %h) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<2xf32>, tensor<f32>, tensor<f32>) -> tensor<2xf32>
    %1 = "nn.quantize"(%0, %s) {to = "ui8"} : (tensor<2xf32>, tensor<f32>) -> tensor<2xui8> loc("q")
    return %1 : tensor<2xui8>
  }
}

// -----

// CHECK-LABEL: module @rows_are_gathered_with_their_scales
// CHECK: %[[S:.*]] = "nn.gather"(%arg1, %arg2)
// CHECK-NEXT: %[[U:.*]] = "nn.unsqueeze"(%[[S]])
// CHECK-NEXT: %[[X:.*]] = "nn.gather"(%arg0, %arg2)
// CHECK-NEXT: "nn.dequantize"(%[[X]], %[[U]]) {axis = 2 : i64, block = 3 : i64, to = "f32"}
module @rows_are_gathered_with_their_scales {
  func.func @main(%x: tensor<2x3xi8>, %s: tensor<2xf32>, %i: tensor<4x5xi64>) -> tensor<4x5x3xf32> {
    %0 = "nn.dequantize"(%x, %s) {axis = 0 : i64, to = "f32"} : (tensor<2x3xi8>, tensor<2xf32>) -> tensor<2x3xf32>
    %1 = "nn.gather"(%0, %i) {axis = 0 : i64} : (tensor<2x3xf32>, tensor<4x5xi64>) -> tensor<4x5x3xf32>
    return %1 : tensor<4x5x3xf32>
  }
}

// -----

// CHECK-LABEL: module @blocks_of_rows_are_gathered_with_their_scales
// CHECK: %[[S:.*]] = "nn.gather"(%arg1, %arg2)
// CHECK-NEXT: %[[X:.*]] = "nn.gather"(%arg0, %arg2)
// CHECK-NEXT: "nn.dequantize"(%[[X]], %[[S]]) {axis = 2 : i64, block = 2 : i64, to = "f32"}
module @blocks_of_rows_are_gathered_with_their_scales {
  func.func @main(%x: tensor<2x3xi4>, %s: tensor<2x2xf32>, %i: tensor<4x5xi64>) -> tensor<4x5x3xf32> {
    %0 = "nn.dequantize"(%x, %s) {axis = 1 : i64, block = 2 : i64, to = "f32"} : (tensor<2x3xi4>, tensor<2x2xf32>) -> tensor<2x3xf32>
    %1 = "nn.gather"(%0, %i) {axis = 0 : i64} : (tensor<2x3xf32>, tensor<4x5xi64>) -> tensor<4x5x3xf32>
    return %1 : tensor<4x5x3xf32>
  }
}

// -----

// CHECK-LABEL: module @blocks_along_the_indices_stay
// CHECK-NEXT: func.func
// CHECK-NEXT: "nn.dequantize"(%arg0, %arg1)
// CHECK: missed {{.*}}the scales along the axis of the indices are not those of rows
module @blocks_along_the_indices_stay {
  func.func @main(%x: tensor<2x3xi4>, %s: tensor<1x3xf32>, %i: tensor<4xi64>) -> tensor<4x3xf32> {
    %0 = "nn.dequantize"(%x, %s) {axis = 0 : i64, block = 2 : i64, to = "f32"} : (tensor<2x3xi4>, tensor<1x3xf32>) -> tensor<2x3xf32>
    %1 = "nn.gather"(%0, %i) {axis = 0 : i64} : (tensor<2x3xf32>, tensor<4xi64>) -> tensor<4x3xf32> loc("stays")
    return %1 : tensor<4x3xf32>
  }
}
