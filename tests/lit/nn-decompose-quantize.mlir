// RUN: opt --passes=nn-decompose-quantize --explain=nn-decompose-quantize %s | filecheck %s

// CHECK-LABEL: module @one_scale
// CHECK-NOT: "nn.quantize"
// CHECK: "nn.div"(%arg0, %arg1)
// CHECK: "nn.maximum"
// CHECK: "nn.minimum"
// CHECK-NEXT: "nn.round"
// CHECK-NEXT: "nn.cast"{{.*}} {to = "i32"}
// CHECK-NEXT: "nn.add"
// CHECK-NEXT: "nn.cast"{{.*}} {to = "ui8"}
// CHECK: return
// CHECK: // QuantizeOfParts fired at node
module @one_scale {
  func.func @main(%x: tensor<?x3xf32>, %s: tensor<f32>, %z: tensor<ui8>) -> tensor<?x3xui8> {
    %0 = "nn.quantize"(%x, %s, %z) {axis = 1 : i64, block = 0 : i64, to = "ui8"} : (tensor<?x3xf32>, tensor<f32>, tensor<ui8>) -> tensor<?x3xui8> loc("node")
    return %0 : tensor<?x3xui8>
  }
}

// -----

// CHECK-LABEL: module @a_scale_for_each_channel
// CHECK: "nn.cast"(%arg0) {to = "i32"}
// CHECK: "nn.reshape"(%arg2
// CHECK: "nn.sub"
// CHECK: "nn.reshape"(%arg1
// CHECK: "nn.mul"
// CHECK-NEXT: return
module @a_scale_for_each_channel {
  func.func @main(%x: tensor<2x3x4xi8>, %s: tensor<3xf32>, %z: tensor<3xi8>) -> tensor<2x3x4xf32> {
    %0 = "nn.dequantize"(%x, %s, %z) {axis = 1 : i64, block = 0 : i64, to = "f32"} : (tensor<2x3x4xi8>, tensor<3xf32>, tensor<3xi8>) -> tensor<2x3x4xf32>
    return %0 : tensor<2x3x4xf32>
  }
}

// -----

// CHECK-LABEL: module @blocks_without_a_zero_point
// CHECK: "nn.cast"(%arg0) {to = "f32"}
// CHECK: "nn.range"
// CHECK: "nn.div"
// CHECK: "nn.gather"(%arg1
// CHECK: "nn.mul"
module @blocks_without_a_zero_point {
  func.func @main(%x: tensor<2x3xi8>, %s: tensor<2x2xf32>) -> tensor<2x3xf32> {
    %0 = "nn.dequantize"(%x, %s) {axis = 1 : i64, block = 2 : i64, to = "f32", operandSegmentSizes = array<i32: 1, 1, 0>} : (tensor<2x3xi8>, tensor<2x2xf32>) -> tensor<2x3xf32>
    return %0 : tensor<2x3xf32>
  }
}

// -----

// CHECK-LABEL: module @other_ops_stay
// CHECK: "nn.softmax"(%arg0) {axis = 1 : i64}
// CHECK-NEXT: return
module @other_ops_stay {
  func.func @main(%x: tensor<?x4x3xf32>) -> tensor<?x4x3xf32> {
    %0 = "nn.softmax"(%x) {axis = 1 : i64} : (tensor<?x4x3xf32>) -> tensor<?x4x3xf32>
    return %0 : tensor<?x4x3xf32>
  }
}

// -----

// CHECK-LABEL: module @a_constant_for_floats_is_one_of_floats
// CHECK: dense<[5.000000e-01, 1.000000e+00]>
// CHECK: "nn.mul"(%arg0,
module @a_constant_for_floats_is_one_of_floats {
  func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %c = "nn.const"() {value = dense<[1, 2]> : tensor<2xi8>} : () -> tensor<2xi8>
    %0 = "nn.dequantize"(%c, %s) {to = "f32"} : (tensor<2xi8>, tensor<f32>) -> tensor<2xf32>
    %1 = "nn.mul"(%a, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  }
}
