// RUN: opt --passes=nn-decompose-lrn --explain=nn-decompose-lrn %s | filecheck %s

// CHECK-LABEL: module @lrn_in_parts
// CHECK-NOT: "nn.lrn"
// CHECK: "nn.mul"
// CHECK: "nn.reshape"
// CHECK: "nn.average_pool"
// CHECK: "nn.reshape"
// CHECK: "nn.pow"
// CHECK: "nn.div"
// CHECK: return
// CHECK: // LrnOfParts fired at node
module @lrn_in_parts {
  func.func @main(%x: tensor<?x4x3xf32>) -> tensor<?x4x3xf32> {
    %0 = "nn.lrn"(%x) {size = 15 : i64} : (tensor<?x4x3xf32>) -> tensor<?x4x3xf32> loc("node")
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

// CHECK-LABEL: module @channels_of_unknown_number
// CHECK: "nn.lrn"
// CHECK: // LrnOfParts missed node: the number of channels is not fixed
module @channels_of_unknown_number {
  func.func @main(%x: tensor<1x?x3xf32>) -> tensor<1x?x3xf32> {
    %0 = "nn.lrn"(%x) {size = 15 : i64} : (tensor<1x?x3xf32>) -> tensor<1x?x3xf32> loc("node")
    return %0 : tensor<1x?x3xf32>
  }
}

// -----

// CHECK-LABEL: module @few_channels_are_added_up_in_place
// CHECK: "nn.lrn"
// CHECK: // LrnOfParts missed node: a window of 5 channels is added up in place
module @few_channels_are_added_up_in_place {
  func.func @main(%x: tensor<1x8x3xf32>) -> tensor<1x8x3xf32> {
    %0 = "nn.lrn"(%x) {size = 5 : i64} : (tensor<1x8x3xf32>) -> tensor<1x8x3xf32> loc("node")
    return %0 : tensor<1x8x3xf32>
  }
}
