// RUN: opt --passes=nn-fuse-gelu --explain=nn-fuse-gelu %s | filecheck %s

// CHECK-LABEL: module @by_erf
// CHECK: %[[Y:.*]] = "nn.gelu"(%arg0) : 
// CHECK-NEXT: return %[[Y]]
module @by_erf {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %root = "nn.const"() {value = dense<1.41421354> : tensor<f32>} : () -> tensor<f32>
    %one = "nn.const"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
    %half = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.div"(%x, %root) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n0")
    %1 = "nn.erf"(%0) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %2 = "nn.add"(%1, %one) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n2")
    %3 = "nn.mul"(%x, %2) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n3")
    %4 = "nn.mul"(%3, %half) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n4")
    return %4 : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @by_tanh
// CHECK: "nn.gelu"(%arg0) {approximate = "tanh"}
module @by_tanh {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %c = "nn.const"() {value = dense<0.044715> : tensor<f32>} : () -> tensor<f32>
    %root = "nn.const"() {value = dense<0.797884583> : tensor<f32>} : () -> tensor<f32>
    %three = "nn.const"() {value = dense<3.0> : tensor<f32>} : () -> tensor<f32>
    %one = "nn.const"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
    %half = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.pow"(%x, %three) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n0")
    %1 = "nn.mul"(%0, %c) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n1")
    %2 = "nn.add"(%x, %1) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n2")
    %3 = "nn.mul"(%2, %root) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n3")
    %4 = "nn.tanh"(%3) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %5 = "nn.add"(%4, %one) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n5")
    %6 = "nn.mul"(%x, %half) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n6")
    %7 = "nn.mul"(%6, %5) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n7")
    return %7 : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @another_argument
// CHECK-NOT: nn.gelu
// CHECK: return
// CHECK: // GeluOfProduct missed last: the argument of nn.erf is not that of a GELU of the other factor
module @another_argument {
  func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %root = "nn.const"() {value = dense<1.41421354> : tensor<f32>} : () -> tensor<f32>
    %one = "nn.const"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
    %half = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.div"(%y, %root) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n0")
    %1 = "nn.erf"(%0) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %2 = "nn.add"(%1, %one) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n2")
    %3 = "nn.mul"(%x, %2) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n3")
    %4 = "nn.mul"(%3, %half) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("last")
    return %4 : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @another_user_of_the_sum
// CHECK-NOT: nn.gelu
// CHECK: return
// CHECK: // GeluOfProduct missed last: no factor is a sum
module @another_user_of_the_sum {
  func.func @main(%x: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>) {
    %root = "nn.const"() {value = dense<1.41421354> : tensor<f32>} : () -> tensor<f32>
    %one = "nn.const"() {value = dense<1.0> : tensor<f32>} : () -> tensor<f32>
    %half = "nn.const"() {value = dense<0.5> : tensor<f32>} : () -> tensor<f32>
    %0 = "nn.div"(%x, %root) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n0")
    %1 = "nn.erf"(%0) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %2 = "nn.add"(%1, %one) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("n2")
    %3 = "nn.mul"(%x, %2) : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32> loc("n3")
    %4 = "nn.mul"(%3, %half) : (tensor<?x4xf32>, tensor<f32>) -> tensor<?x4xf32> loc("last")
    return %4, %2 : tensor<?x4xf32>, tensor<?x4xf32>
  }
}

// -----

// Each part rounds to half precision; one op would round once.
// CHECK-LABEL: module @half_precision
// CHECK-NOT: nn.gelu
// CHECK: return
// CHECK: // GeluOfProduct missed last: the parts are rounded to f16 one by one
module @half_precision {
  func.func @main(%x: tensor<?x4xf16>) -> tensor<?x4xf16> {
    %root = "nn.const"() {value = dense<1.41421354> : tensor<f16>} : () -> tensor<f16>
    %one = "nn.const"() {value = dense<1.0> : tensor<f16>} : () -> tensor<f16>
    %half = "nn.const"() {value = dense<0.5> : tensor<f16>} : () -> tensor<f16>
    %0 = "nn.div"(%x, %root) : (tensor<?x4xf16>, tensor<f16>) -> tensor<?x4xf16> loc("n0")
    %1 = "nn.erf"(%0) : (tensor<?x4xf16>) -> tensor<?x4xf16>
    %2 = "nn.add"(%1, %one) : (tensor<?x4xf16>, tensor<f16>) -> tensor<?x4xf16> loc("n2")
    %3 = "nn.mul"(%x, %2) : (tensor<?x4xf16>, tensor<?x4xf16>) -> tensor<?x4xf16> loc("n3")
    %4 = "nn.mul"(%3, %half) : (tensor<?x4xf16>, tensor<f16>) -> tensor<?x4xf16> loc("last")
    return %4 : tensor<?x4xf16>
  }
}
