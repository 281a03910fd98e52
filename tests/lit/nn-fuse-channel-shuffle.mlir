// RUN: opt --passes=nn-fuse-channel-shuffle --explain=nn-fuse-channel-shuffle %s | filecheck %s

// CHECK: "nn.channel_shuffle"(%{{.*}}) {groups = 2 : i64} : (tensor<1x8x5x5xf32>) -> tensor<1x8x5x5xf32>
func.func @main(%x: tensor<1x8x5x5xf32>) -> tensor<1x8x5x5xf32> {
  %s = "nn.const"() {value = dense<[1, 2, 4, 5, 5]> : tensor<5xi64>} : () -> tensor<5xi64>
  %t = "nn.const"() {value = dense<[1, 8, 5, 5]> : tensor<4xi64>} : () -> tensor<4xi64>
  %0 = "nn.reshape"(%x, %s) : (tensor<1x8x5x5xf32>, tensor<5xi64>) -> tensor<1x2x4x5x5xf32>
  %1 = "nn.transpose"(%0) {perm = array<i64: 0, 2, 1, 3, 4>} : (tensor<1x2x4x5x5xf32>) -> tensor<1x4x2x5x5xf32>
  %2 = "nn.reshape"(%1, %t) : (tensor<1x4x2x5x5xf32>, tensor<4xi64>) -> tensor<1x8x5x5xf32>
  return %2 : tensor<1x8x5x5xf32>
}
// -----
// CHECK: "nn.transpose"
// CHECK: missed {{.*}}: it does not exchange the axes 1 and 2
func.func @main(%x: tensor<1x8x5x5xf32>) -> tensor<1x8x5x5xf32> {
  %s = "nn.const"() {value = dense<[1, 2, 4, 5, 5]> : tensor<5xi64>} : () -> tensor<5xi64>
  %t = "nn.const"() {value = dense<[1, 8, 5, 5]> : tensor<4xi64>} : () -> tensor<4xi64>
  %0 = "nn.reshape"(%x, %s) : (tensor<1x8x5x5xf32>, tensor<5xi64>) -> tensor<1x2x4x5x5xf32>
  %1 = "nn.transpose"(%0) {perm = array<i64: 0, 2, 1, 4, 3>} : (tensor<1x2x4x5x5xf32>) -> tensor<1x4x2x5x5xf32>
  %2 = "nn.reshape"(%1, %t) : (tensor<1x4x2x5x5xf32>, tensor<4xi64>) -> tensor<1x8x5x5xf32>
  return %2 : tensor<1x8x5x5xf32>
}
// -----
// CHECK: "nn.transpose"
// CHECK: missed {{.*}}: the axes 1 and 2 are not those of the channels
func.func @main(%x: tensor<1x8x6x5xf32>) -> tensor<1x8x6x5xf32> {
  %s = "nn.const"() {value = dense<[1, 6, 8, 5]> : tensor<4xi64>} : () -> tensor<4xi64>
  %t = "nn.const"() {value = dense<[1, 8, 6, 5]> : tensor<4xi64>} : () -> tensor<4xi64>
  %0 = "nn.reshape"(%x, %s) : (tensor<1x8x6x5xf32>, tensor<4xi64>) -> tensor<1x6x8x5xf32>
  %1 = "nn.transpose"(%0) {perm = array<i64: 0, 2, 1, 3>} : (tensor<1x6x8x5xf32>) -> tensor<1x8x6x5xf32>
  %2 = "nn.reshape"(%1, %t) : (tensor<1x8x6x5xf32>, tensor<4xi64>) -> tensor<1x8x6x5xf32>
  return %2 : tensor<1x8x6x5xf32>
}
// -----
// CHECK: "nn.transpose"
// CHECK: missed {{.*}}: the shape changes, or has no axis of channels
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %s = "nn.const"() {value = dense<[1, 2, 4]> : tensor<3xi64>} : () -> tensor<3xi64>
  %t = "nn.const"() {value = dense<[8]> : tensor<1xi64>} : () -> tensor<1xi64>
  %0 = "nn.reshape"(%x, %s) : (tensor<8xf32>, tensor<3xi64>) -> tensor<1x2x4xf32>
  %1 = "nn.transpose"(%0) {perm = array<i64: 0, 2, 1>} : (tensor<1x2x4xf32>) -> tensor<1x4x2xf32>
  %2 = "nn.reshape"(%1, %t) : (tensor<1x4x2xf32>, tensor<1xi64>) -> tensor<8xf32>
  return %2 : tensor<8xf32>
}
