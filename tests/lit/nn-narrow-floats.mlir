// RUN: opt --passes=nn-narrow-floats,dce --explain=nn-narrow-floats %s | filecheck %s

// One cast for both products; what follows them is narrow too; a bias stays in float32; the result is widened.
// CHECK-LABEL: module @products_and_what_follows
// CHECK: [[X:%[0-9]+]] = "nn.cast"(%arg0) {to = "bf16"}
// CHECK: [[A:%[0-9]+]] = "nn.conv"([[X]], {{.*}}) {{.*}} : (tensor<1x2x4x4xbf16>, tensor<2x2x1x1xbf16>, tensor<2xf32>) -> tensor<1x2x4x4xbf16>
// CHECK: [[B:%[0-9]+]] = "nn.conv"([[X]],
// CHECK: [[C:%[0-9]+]] = "nn.add"([[A]], [[B]]) : (tensor<1x2x4x4xbf16>
// CHECK: [[D:%[0-9]+]] = "nn.cast"([[C]]) {to = "f32"}
// CHECK: return [[D]]
// CHECK: // bf16 fired at first
module @products_and_what_follows {
  func.func @main(%x: tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32> {
    %w = "nn.const"() {value = dense<[[[[1.0]], [[2.0]]], [[[3.0]], [[-2.0]]]]> : tensor<2x2x1x1xf32>} : () -> tensor<2x2x1x1xf32>
    %b = "nn.const"() {value = dense<[0.5, 0.25]> : tensor<2xf32>} : () -> tensor<2xf32>
    %0 = "nn.conv"(%x, %w, %b) {dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>, tensor<2xf32>) -> tensor<1x2x4x4xf32> loc("first")
    %1 = "nn.conv"(%x, %w) {dilations = array<i64: 1, 1>, pads = array<i64: 0, 0, 0, 0>, strides = array<i64: 1, 1>} : (tensor<1x2x4x4xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x4x4xf32> loc("second")
    %2 = "nn.add"(%0, %1) : (tensor<1x2x4x4xf32>, tensor<1x2x4x4xf32>) -> tensor<1x2x4x4xf32>
    return %2 : tensor<1x2x4x4xf32>
  }
}

// -----

// Casts lie where tensors are narrow as long as possible: before the transposition, behind the activation.
// Exponentials stay in float32, and what lies between them.
// CHECK-LABEL: module @exponentials
// CHECK: [[X:%[0-9]+]] = "nn.cast"(%arg0) {to = "bf16"} : (tensor<4x3xf32>)
// CHECK: [[T:%[0-9]+]] = "nn.transpose"([[X]])
// CHECK: [[M:%[0-9]+]] = "nn.matmul"([[T]],
// CHECK: [[R:%[0-9]+]] = "nn.relu"([[M]])
// CHECK: [[W:%[0-9]+]] = "nn.cast"([[R]]) {to = "f32"}
// CHECK: [[E:%[0-9]+]] = "nn.exp"([[W]])
// CHECK: [[S:%[0-9]+]] = "nn.neg"([[E]]) : (tensor<3x2xf32>)
// CHECK: "nn.exp"([[S]])
// CHECK-NOT: "nn.cast"
// CHECK: return
module @exponentials {
  func.func @main(%x: tensor<4x3xf32>) -> tensor<3x2xf32> {
    %w = "nn.const"() {value = dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<4x2xf32>} : () -> tensor<4x2xf32>
    %0 = "nn.transpose"(%x) {perm = array<i64: 1, 0>} : (tensor<4x3xf32>) -> tensor<3x4xf32>
    %1 = "nn.matmul"(%0, %w) : (tensor<3x4xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
    %2 = "nn.relu"(%1) : (tensor<3x2xf32>) -> tensor<3x2xf32>
    %3 = "nn.exp"(%2) : (tensor<3x2xf32>) -> tensor<3x2xf32>
    %4 = "nn.neg"(%3) : (tensor<3x2xf32>) -> tensor<3x2xf32>
    %5 = "nn.exp"(%4) : (tensor<3x2xf32>) -> tensor<3x2xf32>
    return %5 : tensor<3x2xf32>
  }
}

// -----

// A model without products has nothing that is worth a cast, and integers stay what they are.
// CHECK-LABEL: module @no_products
// CHECK-NOT: "nn.cast"
// CHECK: return
module @no_products {
  func.func @main(%x: tensor<4xf32>, %i: tensor<2x2xi32>) -> (tensor<4xf32>, tensor<2x2xi32>) {
    %0 = "nn.sigmoid"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "nn.mul"(%0, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %2 = "nn.matmul"(%i, %i) : (tensor<2x2xi32>, tensor<2x2xi32>) -> tensor<2x2xi32>
    return %1, %2 : tensor<4xf32>, tensor<2x2xi32>
  }
}

// -----

// What a model widens itself is not cast back.
// CHECK-LABEL: module @narrow_already
// CHECK-NOT: "nn.cast"
// CHECK: "nn.matmul"(%arg0, %arg0) : (tensor<2x2xbf16>
// CHECK: "nn.cast"(%{{.*}}) {to = "f32"}
// CHECK-NOT: "nn.cast"
// CHECK: return
module @narrow_already {
  func.func @main(%x: tensor<2x2xbf16>) -> tensor<2x2xf32> {
    %0 = "nn.cast"(%x) {to = "f32"} : (tensor<2x2xbf16>) -> tensor<2x2xf32>
    %1 = "nn.matmul"(%0, %0) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    return %1 : tensor<2x2xf32>
  }
}
