// RUN: opt --passes=nn-canonicalize --explain=nn-canonicalize %s | filecheck %s

// CHECK-LABEL: @add_of_minus_zero
// CHECK-NEXT: return %arg0
func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> attributes {xc.test = "@add_of_minus_zero"} {
  return %x : tensor<2x3xf32>
}
