// RUN: opt --passes=nn-canonicalize %s | filecheck %s

// CHECK-LABEL: module @the_branch_that_always_runs_stands_in_place_of_the_op
// CHECK: %[[Y:.*]] = "nn.relu"(%arg0)
// CHECK-NEXT: return %[[Y]]
module @the_branch_that_always_runs_stands_in_place_of_the_op {
  func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
    %c = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %y = "nn.if"(%c) ({
      %0 = "nn.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%0) : (tensor<4xf32>) -> ()
    }, {
      "nn.yield"(%x) : (tensor<4xf32>) -> ()
    }) : (tensor<i1>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @sizes_decide_a_branch
// CHECK-NOT: nn.if
// CHECK: "nn.exp"
module @sizes_decide_a_branch attributes {xc.input_dims = ["N,4"]} {
  func.func @main(%x: tensor<?x4xf32>) -> tensor<?x4xf32> {
    %s = "nn.shape"(%x) : (tensor<?x4xf32>) -> tensor<2xi64>
    %r = "nn.size"(%s) : (tensor<2xi64>) -> tensor<i64>
    %two = "nn.const"() {value = dense<2> : tensor<i64>} : () -> tensor<i64>
    %c = "nn.equal"(%r, %two) : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %n = "nn.not"(%c) : (tensor<i1>) -> tensor<i1>
    %y = "nn.if"(%n) ({
      %0 = "nn.relu"(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
      "nn.yield"(%0) : (tensor<?x4xf32>) -> ()
    }, {
      %0 = "nn.exp"(%x) : (tensor<?x4xf32>) -> tensor<?x4xf32>
      "nn.yield"(%0) : (tensor<?x4xf32>) -> ()
    }) : (tensor<i1>) -> tensor<?x4xf32>
    return %y : tensor<?x4xf32>
  }
}

// -----

// CHECK-LABEL: module @a_branch_that_fails_is_not_inlined
// CHECK: "nn.if"
// CHECK: "nn.fail"
module @a_branch_that_fails_is_not_inlined {
  func.func @main(%c: tensor<i1>, %x: tensor<4xf32>) -> tensor<4xf32> {
    %y = "nn.if"(%c) ({
      "nn.yield"(%x) : (tensor<4xf32>) -> ()
    }, {
      "nn.fail"() {text = "no"} : () -> ()
    }) : (tensor<i1>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @results_that_nobody_uses_or_that_are_one_value_are_dropped
// CHECK: %[[Y:.*]] = "nn.if"(%arg0) ({
// CHECK-NEXT: %[[A:.*]] = "nn.relu"
// CHECK-NEXT: "nn.yield"(%[[A]])
// CHECK: "nn.yield"(%arg1)
// CHECK: }) : (tensor<i1>) -> tensor<4xf32>
// CHECK-NEXT: return %[[Y]], %arg1
module @results_that_nobody_uses_or_that_are_one_value_are_dropped {
  func.func @main(%c: tensor<i1>, %x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %y, %unused, %same = "nn.if"(%c) ({
      %0 = "nn.relu"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      %1 = "nn.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%0, %1, %x) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> ()
    }, {
      "nn.yield"(%x, %x, %x) : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> ()
    }) : (tensor<i1>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
    return %y, %same : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @a_loop_that_never_runs_gives_its_initial_values
// CHECK: %[[NONE:.*]] = "nn.const"() {{.*}} : () -> tensor<0x4xf32>
// CHECK-NEXT: return %arg0, %[[NONE]]
module @a_loop_that_never_runs_gives_its_initial_values {
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<0x4xf32>) {
    %n = "nn.const"() {value = dense<0> : tensor<i64>} : () -> tensor<i64>
    %go = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %y, %all = "nn.loop"(%n, %x) ({
    ^body(%i: tensor<i64>, %a: tensor<4xf32>):
      %0 = "nn.exp"(%a) : (tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%go, %0, %0) : (tensor<i1>, tensor<4xf32>, tensor<4xf32>) -> ()
    }) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<i64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<0x4xf32>)
    return %y, %all : tensor<4xf32>, tensor<0x4xf32>
  }
}

// -----

// CHECK-LABEL: module @a_loop_that_runs_once_is_its_body
// CHECK: %[[E:.*]] = "nn.exp"(%arg0)
// CHECK-NEXT: %[[ALL:.*]] = "nn.unsqueeze"(%[[E]])
// CHECK-NEXT: return %[[E]], %[[ALL]]
module @a_loop_that_runs_once_is_its_body {
  func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<1x4xf32>) {
    %n = "nn.const"() {value = dense<1> : tensor<i64>} : () -> tensor<i64>
    %go = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %y, %all = "nn.loop"(%n, %x) ({
    ^body(%i: tensor<i64>, %a: tensor<4xf32>):
      %0 = "nn.exp"(%a) : (tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%go, %0, %0) : (tensor<i1>, tensor<4xf32>, tensor<4xf32>) -> ()
    }) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<i64>, tensor<4xf32>) -> (tensor<4xf32>, tensor<1x4xf32>)
    return %y, %all : tensor<4xf32>, tensor<1x4xf32>
  }
}

// -----

// CHECK-LABEL: module @a_condition_that_always_holds_is_dropped
// CHECK: "nn.loop"(%arg0, %arg1) ({
// CHECK: operandSegmentSizes = array<i32: 1, 0, 1>
module @a_condition_that_always_holds_is_dropped {
  func.func @main(%n: tensor<i64>, %x: tensor<4xf32>) -> tensor<4xf32> {
    %go = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %y = "nn.loop"(%n, %go, %x) ({
    ^body(%i: tensor<i64>, %a: tensor<4xf32>):
      %0 = "nn.exp"(%a) : (tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%go, %0) : (tensor<i1>, tensor<4xf32>) -> ()
    }) {operandSegmentSizes = array<i32: 1, 1, 1>} : (tensor<i64>, tensor<i1>, tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @state_that_nothing_needs_or_that_never_changes_is_dropped
// CHECK: %[[Y:.*]] = "nn.loop"(%arg0, %arg1) ({
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<i64>, %[[A:.*]]: tensor<4xf32>):
// CHECK-NEXT: %[[NEXT:.*]] = "nn.add"(%[[A]], %arg2)
// CHECK-NEXT: "nn.yield"(%{{.*}}, %[[NEXT]])
// CHECK: return %[[Y]], %arg2
module @state_that_nothing_needs_or_that_never_changes_is_dropped {
  func.func @main(%n: tensor<i64>, %x: tensor<4xf32>, %z: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %go = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %y, %unused, %fixed, %all = "nn.loop"(%n, %x, %x, %z) ({
    ^body(%i: tensor<i64>, %a: tensor<4xf32>, %b: tensor<4xf32>, %c: tensor<4xf32>):
      %0 = "nn.add"(%a, %c) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %1 = "nn.exp"(%b) : (tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%go, %0, %1, %c, %b) : (tensor<i1>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> ()
    }) {operandSegmentSizes = array<i32: 1, 0, 3>}
      : (tensor<i64>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<?x4xf32>)
    return %y, %fixed : tensor<4xf32>, tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @what_does_not_depend_on_the_iteration_leaves_the_loop_and_its_loops
// CHECK: "nn.exp"(%arg1)
// CHECK-NEXT: "nn.loop"
// CHECK: "nn.loop"
// CHECK-NOT: "nn.exp"
module @what_does_not_depend_on_the_iteration_leaves_the_loop_and_its_loops {
  func.func @main(%n: tensor<i64>, %x: tensor<4xf32>) -> tensor<4xf32> {
    %go = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %y = "nn.loop"(%n, %x) ({
    ^body(%i: tensor<i64>, %a: tensor<4xf32>):
      %inner = "nn.loop"(%i, %a) ({
      ^body(%j: tensor<i64>, %b: tensor<4xf32>):
        %0 = "nn.exp"(%x) : (tensor<4xf32>) -> tensor<4xf32>
        %1 = "nn.add"(%b, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
        "nn.yield"(%go, %1) : (tensor<i1>, tensor<4xf32>) -> ()
      }) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<i64>, tensor<4xf32>) -> tensor<4xf32>
      "nn.yield"(%go, %inner) : (tensor<i1>, tensor<4xf32>) -> ()
    }) {operandSegmentSizes = array<i32: 1, 0, 1>} : (tensor<i64>, tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}

// -----

// CHECK-LABEL: module @what_may_fail_stays_in_a_loop_that_may_not_run
// CHECK: "nn.loop"
// CHECK: "nn.gather"
// CHECK: "nn.add"(%arg1, %arg3)
module @what_may_fail_stays_in_a_loop_that_may_not_run attributes {xc.input_dims = ["", "N", "", "M"]} {
  func.func @main(%n: tensor<i64>, %x: tensor<?xf32>, %k: tensor<i64>, %z: tensor<?xf32>) -> (tensor<f32>, tensor<?xf32>) {
    %go = "nn.const"() {value = dense<true> : tensor<i1>} : () -> tensor<i1>
    %zero = "nn.const"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
    %y, %w = "nn.loop"(%n, %zero, %x) ({
    ^body(%i: tensor<i64>, %a: tensor<f32>, %b: tensor<?xf32>):
      %0 = "nn.gather"(%x, %k) : (tensor<?xf32>, tensor<i64>) -> tensor<f32>
      %1 = "nn.add"(%a, %0) : (tensor<f32>, tensor<f32>) -> tensor<f32>
      %2 = "nn.add"(%x, %z) : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      %3 = "nn.mul"(%b, %2) : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
      "nn.yield"(%go, %1, %3) : (tensor<i1>, tensor<f32>, tensor<?xf32>) -> ()
    }) {operandSegmentSizes = array<i32: 1, 0, 2>} : (tensor<i64>, tensor<f32>, tensor<?xf32>) -> (tensor<f32>, tensor<?xf32>)
    return %y, %w : tensor<f32>, tensor<?xf32>
  }
}
