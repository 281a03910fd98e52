// RUN: opt --passes=cse --locations=true %s | filecheck %s

// CHECK-LABEL: module @equal_ops_are_one_that_names_both_nodes
// CHECK: %[[ONE:.*]] = "nn.relu"(%arg0) : {{.*}} loc([[BOTH:#loc.*]])
// CHECK-NEXT: return %[[ONE]], %[[ONE]]
// CHECK: [[BOTH]] = loc(fused[
module @equal_ops_are_one_that_names_both_nodes {
  func.func @main(%x: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
    %0 = "nn.relu"(%x) : (tensor<?xf32>) -> tensor<?xf32> loc("first")
    %1 = "nn.relu"(%x) : (tensor<?xf32>) -> tensor<?xf32> loc("second")
    return %0, %1 : tensor<?xf32>, tensor<?xf32>
  }
}

// -----

// CHECK-LABEL: module @sums_do_not_care_about_the_order_and_differences_do
// CHECK: "nn.add"
// CHECK-NEXT: "nn.sub"
// CHECK-NEXT: "nn.sub"
// CHECK-NEXT: return
module @sums_do_not_care_about_the_order_and_differences_do {
  func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
    %0 = "nn.add"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %1 = "nn.add"(%y, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %2 = "nn.sub"(%x, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %3 = "nn.sub"(%y, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %0, %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @ops_that_differ_in_an_attribute_stay
// CHECK: "nn.leaky_relu"
// CHECK: "nn.leaky_relu"
// CHECK-NEXT: return
module @ops_that_differ_in_an_attribute_stay {
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0 = "nn.leaky_relu"(%x) {alpha = 0.1 : f64} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "nn.leaky_relu"(%x) {alpha = 0.2 : f64} : (tensor<4xf32>) -> tensor<4xf32>
    return %0, %1 : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @constants_are_merged
// CHECK: %[[C:.*]] = "nn.const"
// CHECK-NEXT: return %[[C]], %[[C]]
module @constants_are_merged {
  func.func @main() -> (tensor<2xf32>, tensor<2xf32>) {
    %0 = "nn.const"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    %1 = "nn.const"() {value = dense<[1.0, 2.0]> : tensor<2xf32>} : () -> tensor<2xf32>
    return %0, %1 : tensor<2xf32>, tensor<2xf32>
  }
}
