// RUN: opt --passes=nn-fuse-softmax --explain=nn-fuse-softmax %s | filecheck %s

// CHECK-LABEL: module @along_one_axis
// CHECK: %[[Y:.*]] = "nn.softmax"(%arg0) {axis = 1 : i64}
// CHECK-NEXT: return %[[Y]]
module @along_one_axis {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %0 = "nn.reduce_max"(%x) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %1 = "nn.sub"(%x, %0) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("n1")
    %2 = "nn.exp"(%1) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %3 = "nn.reduce_sum"(%2) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %4 = "nn.div"(%2, %3) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("n4")
    return %4 : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @without_the_maximum
// CHECK-NOT: nn.softmax
// CHECK: return
// CHECK: // SoftmaxOfQuotient missed last: no maximum is subtracted: it may overflow
module @without_the_maximum {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %0 = "nn.exp"(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %1 = "nn.reduce_sum"(%0) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %2 = "nn.div"(%0, %1) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("last")
    return %2 : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @an_exponential_with_other_users
// CHECK-NOT: nn.softmax
// CHECK: return
// CHECK: // SoftmaxOfQuotient missed last: the exponential has other users
module @an_exponential_with_other_users {
  func.func @main(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
    %0 = "nn.reduce_max"(%x) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %1 = "nn.sub"(%x, %0) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("n1")
    %2 = "nn.exp"(%1) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %3 = "nn.reduce_sum"(%2) {axes = array<i64: 1>} : (tensor<?x4xf32>) -> tensor<?x1xf32>
    %4 = "nn.div"(%2, %3) : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32> loc("last")
    return %4, %2 : tensor<?x4xf32>, tensor<?x4xf32>
  }
}
