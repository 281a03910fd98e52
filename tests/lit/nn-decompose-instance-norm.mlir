// RUN: opt --passes=nn-decompose-instance-norm --explain=nn-decompose-instance-norm %s | filecheck %s

// CHECK-LABEL: module @instance_norm_in_parts
// CHECK-NOT: "nn.instance_norm"
// CHECK: "nn.reduce_mean"
// CHECK: "nn.sub"
// CHECK: "nn.mul"
// CHECK: "nn.reduce_mean"
// CHECK: "nn.add"
// CHECK: "nn.sqrt"
// CHECK: "nn.div"
// CHECK: "nn.mul"
// CHECK: "nn.add"
// CHECK: return
// CHECK: // InstanceNormOfParts fired at node
module @instance_norm_in_parts {
  func.func @main(%x: tensor<?x4x3xf32>) -> tensor<?x4x3xf32> {
    %p = "nn.const"() {value = dense<2.0> : tensor<4xf32>} : () -> tensor<4xf32>
    %0 = "nn.instance_norm"(%x, %p, %p) : (tensor<?x4x3xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<?x4x3xf32> loc("node")
    return %0 : tensor<?x4x3xf32>
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

// Half precision is computed in float32 and rounded once, at the end.
// CHECK-LABEL: module @half_precision
// CHECK: "nn.cast"(%arg0) {to = "f32"}
// CHECK: "nn.reduce_mean"(%{{.*}}) {axes = array<i64: 2>} : (tensor<2x4x3xf32>)
// CHECK: %[[Y:.*]] = "nn.cast"(%{{.*}}) {to = "f16"}
// CHECK-NEXT: return %[[Y]]
module @half_precision {
  func.func @main(%x: tensor<2x4x3xf16>) -> tensor<2x4x3xf16> {
    %p = "nn.const"() {value = dense<2.0> : tensor<4xf16>} : () -> tensor<4xf16>
    %0 = "nn.instance_norm"(%x, %p, %p) : (tensor<2x4x3xf16>, tensor<4xf16>, tensor<4xf16>) -> tensor<2x4x3xf16>
    return %0 : tensor<2x4x3xf16>
  }
}
