// RUN: opt --passes=nn-tabulate-bytes,dce --explain=nn-tabulate-bytes %s | filecheck %s

// CHECK-LABEL: module @hard_swish
// CHECK: %[[T:.*]] = "nn.const"{{.*}} -> tensor<256xui8>
// CHECK: %[[Y:.*]] = "nn.lookup"(%arg0, %[[T]])
// CHECK-NEXT: return %[[Y]]
// CHECK: // Tabulate fired at last
module @hard_swish {
  func.func @main(%x: tensor<?x3xui8>) -> tensor<?x3xui8> {
    %s = "nn.const"() {value = dense<0.05> : tensor<f32>} : () -> tensor<f32>
    %z = "nn.const"() {value = dense<100> : tensor<ui8>} : () -> tensor<ui8>
    %q3 = "nn.const"() {value = dense<60> : tensor<1xui8>} : () -> tensor<1xui8>
    %z0 = "nn.const"() {value = dense<0> : tensor<ui8>} : () -> tensor<ui8>
    %three = "nn.dequantize"(%q3, %s, %z0) {axis = 0 : i64, block = 0 : i64, to = "f32"} : (tensor<1xui8>, tensor<f32>, tensor<ui8>) -> tensor<1xf32>
    %0 = "nn.dequantize"(%x, %s, %z) {axis = 1 : i64, block = 0 : i64, to = "f32"} : (tensor<?x3xui8>, tensor<f32>, tensor<ui8>) -> tensor<?x3xf32>
    %1 = "nn.add"(%0, %three) : (tensor<?x3xf32>, tensor<1xf32>) -> tensor<?x3xf32>
    %2 = "nn.quantize"(%1, %s, %z) {axis = 1 : i64, block = 0 : i64, to = "ui8"} : (tensor<?x3xf32>, tensor<f32>, tensor<ui8>) -> tensor<?x3xui8>
    %3 = "nn.dequantize"(%2, %s, %z) {axis = 1 : i64, block = 0 : i64, to = "f32"} : (tensor<?x3xui8>, tensor<f32>, tensor<ui8>) -> tensor<?x3xf32>
    %4 = "nn.mul"(%0, %3) : (tensor<?x3xf32>, tensor<?x3xf32>) -> tensor<?x3xf32>
    %5 = "nn.quantize"(%4, %s, %z) {axis = 1 : i64, block = 0 : i64, to = "ui8"} : (tensor<?x3xf32>, tensor<f32>, tensor<ui8>) -> tensor<?x3xui8> loc("last")
    return %5 : tensor<?x3xui8>
  }
}

// -----

// CHECK-LABEL: module @two_tensors_of_bytes
// CHECK-NOT: "nn.lookup"
// CHECK: return
// CHECK: // Tabulate missed sum: it depends on more than the bytes of one tensor
module @two_tensors_of_bytes {
  func.func @main(%x: tensor<4xui8>, %y: tensor<4xui8>) -> tensor<4xui8> {
    %s = "nn.const"() {value = dense<0.05> : tensor<f32>} : () -> tensor<f32>
    %z = "nn.const"() {value = dense<100> : tensor<ui8>} : () -> tensor<ui8>
    %0 = "nn.dequantize"(%x, %s, %z) {axis = 0 : i64, block = 0 : i64, to = "f32"} : (tensor<4xui8>, tensor<f32>, tensor<ui8>) -> tensor<4xf32>
    %1 = "nn.dequantize"(%y, %s, %z) {axis = 0 : i64, block = 0 : i64, to = "f32"} : (tensor<4xui8>, tensor<f32>, tensor<ui8>) -> tensor<4xf32>
    %2 = "nn.add"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %3 = "nn.quantize"(%2, %s, %z) {axis = 0 : i64, block = 0 : i64, to = "ui8"} : (tensor<4xf32>, tensor<f32>, tensor<ui8>) -> tensor<4xui8> loc("sum")
    return %3 : tensor<4xui8>
  }
}

// -----

// CHECK-LABEL: module @numbers_that_differ_along_an_axis
// CHECK-NOT: "nn.lookup"
// CHECK: return
module @numbers_that_differ_along_an_axis {
  func.func @main(%x: tensor<2x2xui8>) -> tensor<2x2xui8> {
    %s = "nn.const"() {value = dense<0.05> : tensor<f32>} : () -> tensor<f32>
    %z = "nn.const"() {value = dense<100> : tensor<ui8>} : () -> tensor<ui8>
    %c = "nn.const"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %0 = "nn.dequantize"(%x, %s, %z) {axis = 1 : i64, block = 0 : i64, to = "f32"} : (tensor<2x2xui8>, tensor<f32>, tensor<ui8>) -> tensor<2x2xf32>
    %1 = "nn.add"(%0, %c) : (tensor<2x2xf32>, tensor<2xf32>) -> tensor<2x2xf32>
    %2 = "nn.sigmoid"(%1) : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %3 = "nn.quantize"(%2, %s, %z) {axis = 1 : i64, block = 0 : i64, to = "ui8"} : (tensor<2x2xf32>, tensor<f32>, tensor<ui8>) -> tensor<2x2xui8>
    return %3 : tensor<2x2xui8>
  }
}

// -----

// CHECK-LABEL: module @little_work
// CHECK-NOT: "nn.lookup"
// CHECK: return
// CHECK: // Tabulate missed relu: it is less work than a table: 9, not 10
module @little_work {
  func.func @main(%x: tensor<4xui8>) -> tensor<4xui8> {
    %s = "nn.const"() {value = dense<0.05> : tensor<f32>} : () -> tensor<f32>
    %z = "nn.const"() {value = dense<100> : tensor<ui8>} : () -> tensor<ui8>
    %0 = "nn.dequantize"(%x, %s, %z) {axis = 0 : i64, block = 0 : i64, to = "f32"} : (tensor<4xui8>, tensor<f32>, tensor<ui8>) -> tensor<4xf32>
    %1 = "nn.relu"(%0) : (tensor<4xf32>) -> tensor<4xf32>
    %2 = "nn.quantize"(%1, %s, %z) {axis = 0 : i64, block = 0 : i64, to = "ui8"} : (tensor<4xf32>, tensor<f32>, tensor<ui8>) -> tensor<4xui8> loc("relu")
    return %2 : tensor<4xui8>
  }
}
