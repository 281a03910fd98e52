// RUN: opt --passes='nn-canonicalize' --explain=nn-canonicalize %s | filecheck %s

// CHECK-LABEL: module @zeros_that_do_nothing
// CHECK: func.func @main(%arg0: tensor<4xi32>
// CHECK-NEXT: return %arg0, %arg1, %arg1
module @zeros_that_do_nothing {
  func.func @main(%i: tensor<4xi32>, %x: tensor<4xf32>) -> (tensor<4xi32>, tensor<4xf32>, tensor<4xf32>) {
    %izero = "nn.const"() {value = dense<0> : tensor<i32>} : () -> tensor<i32>
    %zero = "nn.const"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %minus = "nn.const"() {value = dense<-0.0> : tensor<1xf32>} : () -> tensor<1xf32>
    %0 = "nn.add"(%izero, %i) : (tensor<i32>, tensor<4xi32>) -> tensor<4xi32>
    %1 = "nn.add"(%x, %minus) : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>
    %2 = "nn.sub"(%x, %zero) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    return %0, %1, %2 : tensor<4xi32>, tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @zeros_that_do_something
// CHECK: "nn.add"
// CHECK: "nn.sub"
// CHECK-DAG: // AddZero missed plus: adding +0 makes +0 of -0
// CHECK-DAG: // SubtractZero missed minus: subtracting -0 makes +0 of -0
module @zeros_that_do_something {
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %zero = "nn.const"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %minus = "nn.const"() {value = dense<-0.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.add"(%x, %zero) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32> loc("plus")
    %1 = "nn.sub"(%x, %minus) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32> loc("minus")
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @what_is_never_minus_zero
// CHECK: %[[EXP:.*]] = "nn.exp"
// CHECK-NEXT: return %[[EXP]]
module @what_is_never_minus_zero {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %zero = "nn.const"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "nn.add"(%0, %zero) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}

// -----

// A zero or one that enlarges the result must stay.
// CHECK-LABEL: module @broadcasting_constants
// CHECK: "nn.mul"
// CHECK-DAG: // MultiplyByOne missed grow: the shape changes
module @broadcasting_constants {
  func.func @main(%x: tensor<1x3xf32>) -> tensor<2x3xf32> {
    %ones = "nn.const"() {value = dense<1.0> : tensor<2x3xf32>} : () -> tensor<2x3xf32>
    %0 = "nn.mul"(%x, %ones) : (tensor<1x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32> loc("grow")
    return %0 : tensor<2x3xf32>
  }
}

// -----

// CHECK-LABEL: module @powers
// CHECK: %[[SQUARE:.*]] = "nn.mul"(%arg0, %arg0)
// CHECK: %[[CUBE:.*]] = "nn.pow"
// CHECK: return %arg0, %[[SQUARE]], %[[CUBE]]
// CHECK: // PowerOfConstant missed cube: the exponent is neither 1 nor 2
module @powers {
  func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>, tensor<?xf32>) {
    %one = "nn.const"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
    %two = "nn.const"() {value = dense<2.0> : tensor<f32>} : () -> tensor<f32>
    %three = "nn.const"() {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.pow"(%x, %one) : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
    %1 = "nn.pow"(%x, %two) : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
    %2 = "nn.pow"(%x, %three) : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32> loc("cube")
    return %0, %1, %2 : tensor<?xf32>, tensor<?xf32>, tensor<?xf32>
  }
}

// -----

// CHECK-LABEL: module @twice
// CHECK: %[[RELU:.*]] = "nn.relu"(%arg0)
// CHECK: return %arg0, %[[RELU]]
module @twice {
  func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
    %0 = "nn.neg"(%x) : (tensor<?xf32>) -> tensor<?xf32>
    %1 = "nn.neg"(%0) : (tensor<?xf32>) -> tensor<?xf32>
    %2 = "nn.relu"(%x) : (tensor<?xf32>) -> tensor<?xf32>
    %3 = "nn.relu"(%2) : (tensor<?xf32>) -> tensor<?xf32>
    return %1, %3 : tensor<?xf32>, tensor<?xf32>
  }
}

// -----

// CHECK-LABEL: module @clips
// CHECK-DAG: %[[LOW:.*]] = "nn.const"() {value = dense<0.000000e+00> : tensor<f32>}
// CHECK-DAG: %[[HIGH:.*]] = "nn.const"() {value = dense<4.000000e+00> : tensor<f32>}
// CHECK: "nn.clip"(%arg0, %[[LOW]], %[[HIGH]])
// CHECK-NEXT: return
module @clips {
  func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
    %four = "nn.const"() {value = dense<4.0> : tensor<f32>} : () -> tensor<f32>
    %six = "nn.const"() {value = dense<6.0> : tensor<f32>} : () -> tensor<f32>
    %low = "nn.const"() {value = dense<-1.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.relu"(%x) : (tensor<?xf32>) -> tensor<?xf32>
    %1 = "nn.clip"(%0, %low, %six) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<?xf32>, tensor<f32>, tensor<f32>) -> tensor<?xf32>
    %2 = "nn.clip"(%1, %four) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
    return %2 : tensor<?xf32>
  }
}

// -----

// CHECK-LABEL: module @a_clip_with_other_users
// CHECK: "nn.clip"
// CHECK: "nn.relu"
// CHECK: // ReluOfClip missed after: the clip has other users
module @a_clip_with_other_users {
  func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
    %six = "nn.const"() {value = dense<6.0> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.clip"(%x, %six) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<?xf32>, tensor<f32>) -> tensor<?xf32>
    %1 = "nn.relu"(%0) : (tensor<?xf32>) -> tensor<?xf32> loc("after")
    return %0, %1 : tensor<?xf32>, tensor<?xf32>
  }
}

// -----

// CHECK-LABEL: module @transposes
// CHECK: %[[ONE:.*]] = "nn.transpose"(%arg0) {perm = array<i64: 2, 0, 1>}
// CHECK-NEXT: return %arg0, %[[ONE]]
module @transposes {
  func.func @main(%x: tensor<2x?x4xf32>) -> (tensor<2x?x4xf32>, tensor<4x2x?xf32>) {
    %0 = "nn.transpose"(%x) {perm = array<i64: 0, 1, 2>} : (tensor<2x?x4xf32>) -> tensor<2x?x4xf32>
    %1 = "nn.transpose"(%x) {perm = array<i64: 1, 2, 0>} : (tensor<2x?x4xf32>) -> tensor<?x4x2xf32>
    %2 = "nn.transpose"(%1) {perm = array<i64: 1, 2, 0>} : (tensor<?x4x2xf32>) -> tensor<4x2x?xf32>
    return %0, %2 : tensor<2x?x4xf32>, tensor<4x2x?xf32>
  }
}

// -----

// CHECK-LABEL: module @views
// CHECK-NOT: nn.flatten
// CHECK: %[[FLAT:.*]] = "nn.reshape"(%arg0, %{{.*}}) : (tensor<2x3x4xf32>, tensor<1xi64>) -> tensor<24xf32>
// CHECK: return %arg0, %[[FLAT]]
module @views {
  func.func @main(%x: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<24xf32>) {
    %shape = "nn.const"() {value = dense<[2, 3, 4]> : tensor<3xi64>} : () -> tensor<3xi64>
    %all = "nn.const"() {value = dense<-1> : tensor<1xi64>} : () -> tensor<1xi64>
    %0 = "nn.flatten"(%x) {axis = 1 : i64} : (tensor<2x3x4xf32>) -> tensor<2x12xf32>
    %1 = "nn.reshape"(%0, %shape) : (tensor<2x12xf32>, tensor<3xi64>) -> tensor<2x3x4xf32>
    %2 = "nn.reshape"(%0, %all) : (tensor<2x12xf32>, tensor<1xi64>) -> tensor<24xf32>
    return %1, %2 : tensor<2x3x4xf32>, tensor<24xf32>
  }
}

// -----

// A size of 0 copies that of the operand, which another operand may not have.
// CHECK-LABEL: module @a_reshape_that_copies_a_size
// CHECK: "nn.flatten"
// CHECK: "nn.reshape"
// CHECK: // ReshapeOfView missed copies: the shape is not known, or copies a size of the operand
module @a_reshape_that_copies_a_size {
  func.func @main(%x: tensor<2x3x4xf32>) -> tensor<6x2x2xf32> {
    %shape = "nn.const"() {value = dense<[0, 2, 2]> : tensor<3xi64>} : () -> tensor<3xi64>
    %0 = "nn.flatten"(%x) {axis = 2 : i64} : (tensor<2x3x4xf32>) -> tensor<6x4xf32>
    %1 = "nn.reshape"(%0, %shape) : (tensor<6x4xf32>, tensor<3xi64>) -> tensor<6x2x2xf32> loc("copies")
    return %1 : tensor<6x2x2xf32>
  }
}

// -----

// CHECK-LABEL: module @nothing_moved
// CHECK: func.func @main
// CHECK-NEXT: return %arg0, %arg0, %arg0, %arg0, %arg0
module @nothing_moved {
  func.func @main(%x: tensor<2x?xf32>) -> (tensor<2x?xf32>, tensor<2x?xf32>, tensor<2x?xf32>, tensor<2x?xf32>, tensor<2x?xf32>) {
    %zeros = "nn.const"() {value = dense<0> : tensor<4xi64>} : () -> tensor<4xi64>
    %ones = "nn.const"() {value = dense<1> : tensor<2xi64>} : () -> tensor<2xi64>
    %start = "nn.const"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %end = "nn.const"() {value = dense<9223372036854775807> : tensor<1xi64>} : () -> tensor<1xi64>
    %0 = "nn.pad"(%x, %zeros) {operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<2x?xf32>, tensor<4xi64>) -> tensor<2x?xf32>
    %1 = "nn.tile"(%x, %ones) : (tensor<2x?xf32>, tensor<2xi64>) -> tensor<2x?xf32>
    %2 = "nn.slice"(%x, %start, %end) {operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<2x?xf32>, tensor<1xi64>, tensor<1xi64>) -> tensor<2x?xf32>
    %3 = "nn.concat"(%x) {axis = 0 : i64} : (tensor<2x?xf32>) -> tensor<2x?xf32>
    %4 = "nn.expand"(%x, %ones) : (tensor<2x?xf32>, tensor<2xi64>) -> tensor<2x?xf32>
    return %0, %1, %2, %3, %4 : tensor<2x?xf32>, tensor<2x?xf32>, tensor<2x?xf32>, tensor<2x?xf32>, tensor<2x?xf32>
  }
}

// -----

// The same shape, but not the same elements.
// CHECK-LABEL: module @something_moved
// CHECK: "nn.pad"
// CHECK: "nn.slice"
// CHECK-DAG: // PadOfNothing missed shift: an axis is padded, or may be
// CHECK-DAG: // SliceOfAll missed reverse: a step is negative, or may be
module @something_moved {
  func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
    %pads = "nn.const"() {value = dense<[1, -1]> : tensor<2xi64>} : () -> tensor<2xi64>
    %start = "nn.const"() {value = dense<-1> : tensor<1xi64>} : () -> tensor<1xi64>
    %end = "nn.const"() {value = dense<-9> : tensor<1xi64>} : () -> tensor<1xi64>
    %axis = "nn.const"() {value = dense<0> : tensor<1xi64>} : () -> tensor<1xi64>
    %0 = "nn.pad"(%x, %pads) {operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<3xf32>, tensor<2xi64>) -> tensor<3xf32> loc("shift")
    %1 = "nn.slice"(%x, %start, %end, %axis, %start) {operandSegmentSizes = array<i32: 1, 1, 1, 1, 1>} : (tensor<3xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<3xf32> loc("reverse")
    return %0, %1 : tensor<3xf32>, tensor<3xf32>
  }
}

// -----

// CHECK-LABEL: module @concatenations
// CHECK: "nn.concat"(%arg0, %arg0, %arg1) {axis = -1 : i64}
// CHECK-NEXT: return
module @concatenations {
  func.func @main(%a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<7xf32> {
    %0 = "nn.concat"(%a, %a) {axis = 0 : i64} : (tensor<2xf32>, tensor<2xf32>) -> tensor<4xf32>
    %1 = "nn.concat"(%0, %b) {axis = -1 : i64} : (tensor<4xf32>, tensor<3xf32>) -> tensor<7xf32>
    %2 = "nn.cast"(%1) {to = "f32"} : (tensor<7xf32>) -> tensor<7xf32>
    return %2 : tensor<7xf32>
  }
}

// -----

// CHECK-LABEL: module @casts
// CHECK: "nn.cast"(%arg0) {to = "f16"}
// CHECK: "nn.cast"(%arg0) {to = "i8"}
// CHECK: "nn.cast"(%{{.*}}) {to = "f32"}
// CHECK: // CastOfCast missed lossy: i8 does not hold every value of f32
module @casts {
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf16>, tensor<4xf32>) {
    %0 = "nn.cast"(%x) {to = "f64"} : (tensor<4xf32>) -> tensor<4xf64>
    %1 = "nn.cast"(%0) {to = "f16"} : (tensor<4xf64>) -> tensor<4xf16>
    %2 = "nn.cast"(%x) {to = "i8"} : (tensor<4xf32>) -> tensor<4xi8>
    %3 = "nn.cast"(%2) {to = "f32"} : (tensor<4xi8>) -> tensor<4xf32> loc("lossy")
    return %1, %3 : tensor<4xf16>, tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @indices_of_rows
// CHECK: %[[ROWS:.*]] = "nn.squeeze"(%arg1) {axes = array<i64: 1>}
// CHECK: "nn.gather"(%arg0, %[[ROWS]])
// CHECK: %[[OTHERS:.*]] = "nn.squeeze"(%arg1) {axes = array<i64: 1>}
// CHECK: "nn.gather"(%arg0, %[[OTHERS]])
// CHECK: "nn.scatter_nd"(%arg0, %arg1, %arg2) {reduction = "add"}
module @indices_of_rows {
  func.func @main(%x: tensor<?x4xf32>, %rows: tensor<3x1xi64>, %u: tensor<3x4xf32>) -> (tensor<3x4xf32>, tensor<3x4xf32>, tensor<?x4xf32>) {
    %shape = "nn.const"() {value = dense<[3, 4]> : tensor<2xi64>} : () -> tensor<2xi64>
    %0 = "nn.expand"(%rows, %shape) : (tensor<3x1xi64>, tensor<2xi64>) -> tensor<3x4xi64>
    %1 = "nn.gather_elements"(%x, %0) {axis = 0 : i64} : (tensor<?x4xf32>, tensor<3x4xi64>) -> tensor<3x4xf32>
    %2 = "nn.gather_nd"(%x, %rows) {batch_dims = 0 : i64} : (tensor<?x4xf32>, tensor<3x1xi64>) -> tensor<3x4xf32>
    %3 = "nn.scatter_elements"(%x, %0, %u) {axis = 0 : i64, reduction = "add"} : (tensor<?x4xf32>, tensor<3x4xi64>, tensor<3x4xf32>) -> tensor<?x4xf32>
    return %1, %2, %3 : tensor<3x4xf32>, tensor<3x4xf32>, tensor<?x4xf32>
  }
}

// -----

// Rows that are longer than their indices keep the elements behind.
// CHECK-LABEL: module @indices_of_parts_of_rows
// CHECK: "nn.scatter_elements"
// CHECK: "nn.gather_elements"
// CHECK-DAG: // ScatterElementsOfRows missed short: rows of the indices and of the operand are not known to be equally long
// CHECK-DAG: // GatherElementsOfRows missed other: the axis is not the first of several
module @indices_of_parts_of_rows {
  func.func @main(%x: tensor<5x6xf32>, %rows: tensor<3x1xi64>, %u: tensor<3x4xf32>) -> (tensor<5x6xf32>, tensor<3x4xf32>) {
    %shape = "nn.const"() {value = dense<[3, 4]> : tensor<2xi64>} : () -> tensor<2xi64>
    %0 = "nn.expand"(%rows, %shape) : (tensor<3x1xi64>, tensor<2xi64>) -> tensor<3x4xi64>
    %1 = "nn.scatter_elements"(%x, %0, %u) {axis = 0 : i64} : (tensor<5x6xf32>, tensor<3x4xi64>, tensor<3x4xf32>) -> tensor<5x6xf32> loc("short")
    %2 = "nn.gather_elements"(%x, %0) {axis = 1 : i64} : (tensor<5x6xf32>, tensor<3x4xi64>) -> tensor<3x4xf32> loc("other")
    return %1, %2 : tensor<5x6xf32>, tensor<3x4xf32>
  }
}
