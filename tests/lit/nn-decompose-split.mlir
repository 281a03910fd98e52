// RUN: opt --passes=nn-decompose-split --explain=nn-decompose-split %s | filecheck %s

// CHECK-LABEL: module @parts_as_long_as_it_is_said
// CHECK: %[[A:.*]] = "nn.slice"(%arg0
// CHECK: %[[B:.*]] = "nn.slice"(%arg0
// CHECK-NOT: "nn.split"
// CHECK: return %[[A]], %[[B]]
module @parts_as_long_as_it_is_said {
  func.func @main(%x: tensor<?x5xf32>) -> (tensor<?x3xf32>, tensor<?x2xf32>) {
    %n = "nn.const"() {value = dense<[3, 2]> : tensor<2xi64>} : () -> tensor<2xi64>
    %0, %1 = "nn.split"(%x, %n) {axis = -1 : i64, operandSegmentSizes = array<i32: 1, 1>} : (tensor<?x5xf32>, tensor<2xi64>) -> (tensor<?x3xf32>, tensor<?x2xf32>)
    return %0, %1 : tensor<?x3xf32>, tensor<?x2xf32>
  }
}

// -----

// CHECK-LABEL: module @what_stays
// CHECK: "nn.split"
// CHECK: // SplitOfParts missed open: the size of the axis or of a part is not known
module @what_stays {
  func.func @main(%x: tensor<?x5xf32>) -> (tensor<?x5xf32>, tensor<?x5xf32>) {
    %0, %1 = "nn.split"(%x) {axis = 0 : i64, operandSegmentSizes = array<i32: 1, 0>} : (tensor<?x5xf32>) -> (tensor<?x5xf32>, tensor<?x5xf32>) loc("open")
    return %0, %1 : tensor<?x5xf32>, tensor<?x5xf32>
  }
}
