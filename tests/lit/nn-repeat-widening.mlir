// RUN: opt --passes=nn-repeat-widening %s | filecheck %s

// Each reader gets a whole chain of its own.
// CHECK-LABEL: module @a_chain_with_three_readers
// CHECK: %[[A:.*]] = "nn.cast"(%arg0) {to = "f32"}
// CHECK: %[[B:.*]] = "nn.mul"(%[[A]],
// CHECK: %[[S:.*]] = "nn.add"(%[[B]], %arg1)
// CHECK: %[[C:.*]] = "nn.cast"(%arg0) {to = "f32"}
// CHECK: %[[D:.*]] = "nn.mul"(%[[C]],
// CHECK: %[[T:.*]] = "nn.sub"(%[[D]], %arg1)
// CHECK: %[[Q:.*]] = "nn.cast"(%arg0) {to = "f32"}
// CHECK: %[[R:.*]] = "nn.mul"(%[[Q]],
// CHECK: %[[U:.*]] = "nn.mul"(%[[R]], %[[R]])
// CHECK: return %[[S]], %[[T]], %[[U]]
module @a_chain_with_three_readers {
  func.func @main(%x: tensor<1x8x6x6xui8>, %y: tensor<1x8x6x6xf32>) -> (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) {
    %s = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.cast"(%x) {to = "f32"} : (tensor<1x8x6x6xui8>) -> tensor<1x8x6x6xf32>
    %1 = "nn.mul"(%0, %s) : (tensor<1x8x6x6xf32>, tensor<f32>) -> tensor<1x8x6x6xf32>
    %2 = "nn.add"(%1, %y) : (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
    %3 = "nn.sub"(%1, %y) : (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
    %4 = "nn.mul"(%1, %1) : (tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>) -> tensor<1x8x6x6xf32>
    return %2, %3, %4 : tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>, tensor<1x8x6x6xf32>
  }
}

// -----

// What is not computed from 8-bit integers is computed once; so is what a reader cannot take in.
// CHECK-LABEL: module @floats_and_other_readers_share
// CHECK-COUNT-1: "nn.relu"
// CHECK-NOT: "nn.relu"
// CHECK: "nn.cast"
// CHECK-NOT: "nn.cast"
// CHECK: return
module @floats_and_other_readers_share {
  func.func @main(%x: tensor<4x8xf32>, %z: tensor<4x8xui8>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {
    %0 = "nn.relu"(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %1 = "nn.add"(%0, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %2 = "nn.sub"(%0, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %3 = "nn.cast"(%z) {to = "f32"} : (tensor<4x8xui8>) -> tensor<4x8xf32>
    %4 = "nn.softmax"(%3) {axis = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %5 = "nn.softmax"(%3) {axis = 0 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %1, %2, %4, %5 : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>
  }
}
