// RUN: opt --passes=nn-fuse-pad --explain=nn-fuse-pad %s | filecheck %s

// CHECK-LABEL: module @zeros_into_a_convolution
// CHECK: "nn.conv"(%arg0, %{{.*}}) {dilations = array<i64: 1>, pads = array<i64: 2, 1>
// CHECK-NEXT: return
module @zeros_into_a_convolution {
  func.func @main(%x: tensor<?x1x4xf32>) -> tensor<?x1x5xf32> {
    %w = "nn.const"() {value = dense<1.0> : tensor<1x1x3xf32>} : () -> tensor<1x1x3xf32>
    %pads = "nn.const"() {value = dense<[0, 0, 1, 0, 0, 0]> : tensor<6xi64>} : () -> tensor<6xi64>
    %0 = "nn.pad"(%x, %pads) {operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<?x1x4xf32>, tensor<6xi64>) -> tensor<?x1x5xf32>
    %1 = "nn.conv"(%0, %w) {dilations = array<i64: 1>, pads = array<i64: 1, 1>, strides = array<i64: 1>} : (tensor<?x1x5xf32>, tensor<1x1x3xf32>) -> tensor<?x1x5xf32>
    return %1 : tensor<?x1x5xf32>
  }
}

// -----

// CHECK-LABEL: module @fives
// CHECK: "nn.pad"
// CHECK: // PadIntoConv missed conv: the pad does not fill with 0
module @fives {
  func.func @main(%x: tensor<1x1x4xf32>) -> tensor<1x1x3xf32> {
    %w = "nn.const"() {value = dense<1.0> : tensor<1x1x3xf32>} : () -> tensor<1x1x3xf32>
    %five = "nn.const"() {value = dense<5.0> : tensor<f32>} : () -> tensor<f32>
    %pads = "nn.const"() {value = dense<[0, 0, 1, 0, 0, 0]> : tensor<6xi64>} : () -> tensor<6xi64>
    %0 = "nn.pad"(%x, %pads, %five) {operandSegmentSizes = array<i32: 1, 1, 1, 0>} : (tensor<1x1x4xf32>, tensor<6xi64>, tensor<f32>) -> tensor<1x1x5xf32>
    %1 = "nn.conv"(%0, %w) {dilations = array<i64: 1>, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<1x1x5xf32>, tensor<1x1x3xf32>) -> tensor<1x1x3xf32> loc("conv")
    return %1 : tensor<1x1x3xf32>
  }
}

// -----

// CHECK-LABEL: module @a_crop
// CHECK: "nn.pad"
// CHECK: // PadIntoConv missed conv: the pad crops
module @a_crop {
  func.func @main(%x: tensor<1x1x4xf32>) -> tensor<1x1x3xf32> {
    %w = "nn.const"() {value = dense<1.0> : tensor<1x1x3xf32>} : () -> tensor<1x1x3xf32>
    %pads = "nn.const"() {value = dense<[0, 0, -1, 0, 0, 0]> : tensor<6xi64>} : () -> tensor<6xi64>
    %0 = "nn.pad"(%x, %pads) {operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<1x1x4xf32>, tensor<6xi64>) -> tensor<1x1x3xf32>
    %1 = "nn.conv"(%0, %w) {dilations = array<i64: 1>, pads = array<i64: 1, 1>, strides = array<i64: 1>} : (tensor<1x1x3xf32>, tensor<1x1x3xf32>) -> tensor<1x1x3xf32> loc("conv")
    return %1 : tensor<1x1x3xf32>
  }
}

// -----

// CHECK-LABEL: module @reflections_and_channels
// CHECK-DAG: // PadIntoConv missed reflected: the pad is of mode 'reflect'
// CHECK-DAG: // PadIntoConv missed channels: the pad widens the batch or the channels
module @reflections_and_channels {
  func.func @main(%x: tensor<1x1x4xf32>) -> (tensor<1x1x3xf32>, tensor<1x1x2xf32>) {
    %w = "nn.const"() {value = dense<1.0> : tensor<1x1x3xf32>} : () -> tensor<1x1x3xf32>
    %w2 = "nn.const"() {value = dense<1.0> : tensor<1x2x3xf32>} : () -> tensor<1x2x3xf32>
    %pads = "nn.const"() {value = dense<[0, 0, 1, 0, 0, 0]> : tensor<6xi64>} : () -> tensor<6xi64>
    %wider = "nn.const"() {value = dense<[0, 1, 0, 0, 0, 0]> : tensor<6xi64>} : () -> tensor<6xi64>
    %0 = "nn.pad"(%x, %pads) {mode = "reflect", operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<1x1x4xf32>, tensor<6xi64>) -> tensor<1x1x5xf32>
    %1 = "nn.conv"(%0, %w) {dilations = array<i64: 1>, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<1x1x5xf32>, tensor<1x1x3xf32>) -> tensor<1x1x3xf32> loc("reflected")
    %2 = "nn.pad"(%x, %wider) {operandSegmentSizes = array<i32: 1, 1, 0, 0>} : (tensor<1x1x4xf32>, tensor<6xi64>) -> tensor<1x2x4xf32>
    %3 = "nn.conv"(%2, %w2) {dilations = array<i64: 1>, pads = array<i64: 0, 0>, strides = array<i64: 1>} : (tensor<1x2x4xf32>, tensor<1x2x3xf32>) -> tensor<1x1x2xf32> loc("channels")
    return %1, %3 : tensor<1x1x3xf32>, tensor<1x1x2xf32>
  }
}

// -----

// CHECK-LABEL: module @around_integers_it_is_what_the_padding_holds
// CHECK: "nn.conv_integer"(%arg0, %arg1, %arg2, %arg2)
// CHECK-SAME: pads = array<i64: 1, 1, 2, 2>
module @around_integers_it_is_what_the_padding_holds {
  func.func @main(%x: tensor<1x3x8x8xui8>, %w: tensor<4x3x3x3xi8>, %z: tensor<ui8>) -> tensor<1x4x9x9xi32> {
    %p = "nn.const"() {value = dense<[0, 0, 0, 0, 0, 0, 1, 1]> : tensor<8xi64>} : () -> tensor<8xi64>
    %0 = "nn.pad"(%x, %p, %z) {operandSegmentSizes = array<i32: 1, 1, 1, 0>} : (tensor<1x3x8x8xui8>, tensor<8xi64>, tensor<ui8>) -> tensor<1x3x9x9xui8>
    %1 = "nn.conv_integer"(%0, %w, %z) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x3x9x9xui8>, tensor<4x3x3x3xi8>, tensor<ui8>) -> tensor<1x4x9x9xi32>
    return %1 : tensor<1x4x9x9xi32>
  }
}

// -----

// CHECK-LABEL: module @another_number_around_integers_that_are_padded_stays
// CHECK: "nn.pad"
// CHECK: "nn.conv_integer"
module @another_number_around_integers_that_are_padded_stays {
  func.func @main(%x: tensor<1x3x8x8xui8>, %w: tensor<4x3x3x3xi8>, %z: tensor<ui8>, %v: tensor<ui8>) -> tensor<1x4x9x9xi32> {
    %p = "nn.const"() {value = dense<[0, 0, 0, 0, 0, 0, 1, 1]> : tensor<8xi64>} : () -> tensor<8xi64>
    %0 = "nn.pad"(%x, %p, %v) {operandSegmentSizes = array<i32: 1, 1, 1, 0>} : (tensor<1x3x8x8xui8>, tensor<8xi64>, tensor<ui8>) -> tensor<1x3x9x9xui8>
    %1 = "nn.conv_integer"(%0, %w, %z) {strides = array<i64: 1, 1>, pads = array<i64: 1, 1, 1, 1>, dilations = array<i64: 1, 1>, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>} : (tensor<1x3x9x9xui8>, tensor<4x3x3x3xi8>, tensor<ui8>) -> tensor<1x4x9x9xi32>
    return %1 : tensor<1x4x9x9xi32>
  }
}
