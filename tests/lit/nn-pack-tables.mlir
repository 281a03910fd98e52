// RUN: opt --passes=nn-pack-tables,dce --explain=nn-pack-tables %s | filecheck %s

// Of the row 1 -2 3 the byte 0 has 1 and 3, and the byte 1 has -2 (14) and a place that is cut off.
// CHECK-LABEL: module @two_in_a_byte
// CHECK: %[[T:.*]] = "nn.const"{{.*}}dense<{{\[\[}}49, 14], [127, 8]]>{{.*}} -> tensor<2x2xui8>
// CHECK: %[[R:.*]] = "nn.gather"(%[[T]], %arg0) : (tensor<2x2xui8>, tensor<?x5xi64>) -> tensor<?x5x2xui8>
// CHECK: "nn.unsqueeze"(%[[R]])
// CHECK: "nn.bit_shift"
// CHECK: "nn.cast"{{.*}} {{.*}}tensor<?x5x2x2xi4>
// CHECK: "nn.reshape"{{.*}} -> tensor<?x5x4xi4>
// CHECK: "nn.slice"{{.*}} -> tensor<?x5x3xi4>
module @two_in_a_byte {
  func.func @main(%i: tensor<?x5xi64>) -> tensor<?x5x3xi4> {
    %t = "nn.const"() {value = dense<[[1, -2, 3], [-1, -8, 7]]> : tensor<2x3xi4>} : () -> tensor<2x3xi4>
    %0 = "nn.gather"(%t, %i) {axis = 0 : i64} : (tensor<2x3xi4>, tensor<?x5xi64>) -> tensor<?x5x3xi4>
    return %0 : tensor<?x5x3xi4>
  }
}

// -----

// CHECK-LABEL: module @four_in_a_byte
// CHECK: "nn.const"{{.*}}228{{.*}} -> tensor<1x1xui8>
// CHECK: "nn.reshape"{{.*}} -> tensor<?x4xui2>
// CHECK-NEXT: return
module @four_in_a_byte {
  func.func @main(%i: tensor<?xi64>) -> tensor<?x4xui2> {
    %t = "nn.const"() {value = dense<[[0, 1, 2, 3]]> : tensor<1x4xui2>} : () -> tensor<1x4xui2>
    %0 = "nn.gather"(%t, %i) {axis = 0 : i64} : (tensor<1x4xui2>, tensor<?xi64>) -> tensor<?x4xui2>
    return %0 : tensor<?x4xui2>
  }
}

// -----

// CHECK-LABEL: module @what_stays
// CHECK-NOT: "nn.bit_shift"
// CHECK: return
// CHECK-DAG: missed {{.*}}the table is no constant
// CHECK-DAG: missed {{.*}}the elements fill bytes
// CHECK-DAG: missed {{.*}}single elements are gathered
module @what_stays {
  func.func @main(%x: tensor<2x3xi4>, %i: tensor<2xi64>) -> (tensor<2x3xi4>, tensor<2x2xi8>, tensor<2x2xi4>) {
    %b = "nn.const"() {value = dense<[[1, 2], [3, 4]]> : tensor<2x2xi8>} : () -> tensor<2x2xi8>
    %t = "nn.const"() {value = dense<[[1, 2], [3, 4]]> : tensor<2x2xi4>} : () -> tensor<2x2xi4>
    %0 = "nn.gather"(%x, %i) {axis = 0 : i64} : (tensor<2x3xi4>, tensor<2xi64>) -> tensor<2x3xi4>
    %1 = "nn.gather"(%b, %i) {axis = 0 : i64} : (tensor<2x2xi8>, tensor<2xi64>) -> tensor<2x2xi8>
    %2 = "nn.gather"(%t, %i) {axis = 1 : i64} : (tensor<2x2xi4>, tensor<2xi64>) -> tensor<2x2xi4>
    return %0, %1, %2 : tensor<2x3xi4>, tensor<2x2xi8>, tensor<2x2xi4>
  }
}
