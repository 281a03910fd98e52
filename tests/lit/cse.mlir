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

// -----

// CHECK-LABEL: module @ops_in_regions_are_those_around_them_and_not_those_of_the_other_branch
// CHECK: %[[R:.*]] = "nn.relu"(%arg1)
// CHECK-NEXT: "nn.if"(%arg0) ({
// CHECK-NEXT: %[[E:.*]] = "nn.exp"(%[[R]])
// CHECK-NEXT: "nn.yield"(%[[R]], %[[E]])
// CHECK: %[[OTHER:.*]] = "nn.exp"(%[[R]])
// CHECK-NEXT: "nn.yield"(%[[OTHER]], %[[OTHER]])
module @ops_in_regions_are_those_around_them_and_not_those_of_the_other_branch {
  func.func @main(%c: tensor<i1>, %x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0 = "nn.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
    %y, %z = "nn.if"(%c) ({
      %1 = "nn.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %2 = "nn.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%1, %2) : (tensor<4xf32>, tensor<4xf32>) -> ()
    }, {
      %3 = "nn.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
      %4 = "nn.exp"(%0) : (tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%3, %4) : (tensor<4xf32>, tensor<4xf32>) -> ()
    }) : (tensor<i1>) -> (tensor<4xf32>, tensor<4xf32>)
    return %y, %z : tensor<4xf32>, tensor<4xf32>
  }
}
