"""What exporters write in different ways: versions, names of domains, functions, weights, declarations, empty axes."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.unit.frontends.onnx_models import FLOAT, model
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

node = helper.make_node
OPSETS = range(7, onnx.defs.onnx_opset_version() + 1)


def run(proto, *inputs):
    return interpret(import_onnx(proto), [np.asarray(x) for x in inputs])


def f32(values):
    return np.array(values, np.float32)


# -- opsets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", OPSETS)
def test_elementwise_ops_are_read_at_every_opset(opset):
    nodes = [node("Add", ["x", "w"], ["t"]), node("Relu", ["t"], ["y"])]
    proto = model(nodes, {"x": [2, 2]}, ["y"], {"w": f32([-1, 1])}, opset=opset)
    (y,) = run(proto, f32([[0, 0], [3, -4]]))
    np.testing.assert_array_equal(y, [[0, 1], [2, 0]])


@pytest.mark.parametrize("opset", OPSETS)
def test_axes_are_an_attribute_before_opset_13_and_an_input_since(opset):
    x, axes = f32([[1, 2], [3, 4]]), np.array([0])
    if opset < 13:
        proto = model(
            [node("ReduceSum", ["x"], ["y"], axes=[0], keepdims=0)],
            {"x": [2, 2]},
            ["y"],
            opset=opset,
        )
    else:
        nodes = [node("ReduceSum", ["x", "a"], ["y"], keepdims=0)]
        proto = model(nodes, {"x": [2, 2]}, ["y"], {"a": axes}, opset=opset)
    np.testing.assert_array_equal(run(proto, x)[0], [4, 6])


@pytest.mark.parametrize("opset", OPSETS)
def test_slices_are_attributes_before_opset_10_and_inputs_since(opset):
    if opset < 10:
        made, constants = node("Slice", ["x"], ["y"], starts=[1], ends=[3], axes=[0]), {}
    else:
        made = node("Slice", ["x", "s", "e", "a"], ["y"])
        constants = {"s": np.array([1]), "e": np.array([3]), "a": np.array([0])}
    proto = model([made], {"x": [4]}, ["y"], constants, opset=opset)
    np.testing.assert_array_equal(run(proto, f32([0, 1, 2, 3]))[0], [1, 2])


@pytest.mark.parametrize("opset", OPSETS)
def test_softmax_flattens_to_two_axes_before_opset_13(opset):
    proto = model([node("Softmax", ["x"], ["y"])], {"x": [1, 2, 2]}, ["y"], opset=opset)
    (y,) = run(proto, np.zeros((1, 2, 2), np.float32))
    np.testing.assert_allclose(y, np.full((1, 2, 2), 0.25 if opset < 13 else 0.5), rtol=1e-6)


@pytest.mark.parametrize("opset", OPSETS)
def test_clip_has_its_bounds_as_attributes_before_opset_11_and_as_inputs_since(opset):
    if opset < 11:
        made, constants = node("Clip", ["x"], ["y"], min=0.0, max=6.0), {}
    else:
        made, constants = node("Clip", ["x", "", "six"], ["y"]), {"six": np.float32(6)}
    proto = model([made], {"x": [3]}, ["y"], constants, opset=opset)
    np.testing.assert_array_equal(run(proto, f32([-1, 5, 9]))[0], [0 if opset < 11 else -1, 5, 6])


# -- domains ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("spelled", ["", "ai.onnx"])
@pytest.mark.parametrize("imported", ["", "ai.onnx"])
def test_the_default_domain_has_two_names(spelled, imported):
    proto = model([node("Relu", ["x"], ["y"], domain=spelled)], {"x": [2]}, ["y"])
    proto.opset_import[0].domain = imported
    np.testing.assert_array_equal(run(proto, f32([-1, 2]))[0], [0, 2])


# -- functions -------------------------------------------------------------------------------------


def function(name, inputs, outputs, nodes, attributes=(), overload="", opset=17):
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("local", 1)]
    made = helper.make_function("local", name, inputs, outputs, nodes, imports, attributes)
    made.overload = overload
    return made


def refers(made, **names):
    """The node with attributes that refer to those of its function."""
    for name, (kind, outer) in names.items():
        made.attribute.append(onnx.AttributeProto(name=name, ref_attr_name=outer, type=kind))
    return made


def called(made, functions, outputs=("y",), **options):
    return model(
        [made], {"x": [2]}, list(outputs), functions=functions, domains={"local": 1}, **options
    )


def leaky(attributes=()):
    inner = refers(node("LeakyRelu", ["a"], ["r"]), alpha=(onnx.AttributeProto.FLOAT, "slope"))
    return function("Leaky", ["a"], ["r"], [inner], attributes)


def test_an_attribute_goes_through_two_functions():
    outer = refers(
        node("Leaky", ["b"], ["s"], domain="local"), slope=(onnx.AttributeProto.FLOAT, "k")
    )
    functions = [leaky(["slope"]), function("Outer", ["b"], ["s"], [outer], ["k"])]
    proto = called(node("Outer", ["x"], ["y"], domain="local", k=0.5), functions)
    np.testing.assert_array_equal(run(proto, f32([-2, 2]))[0], [-1, 2])


def test_an_attribute_that_is_not_given_is_absent_or_has_the_functions_default():
    proto = called(node("Leaky", ["x"], ["y"], domain="local"), [leaky(["slope"])])
    np.testing.assert_allclose(run(proto, f32([-2, 2]))[0], [-0.02, 2], rtol=1e-6)
    with_default = leaky()
    with_default.attribute_proto.append(helper.make_attribute("slope", 0.25))
    proto = called(node("Leaky", ["x"], ["y"], domain="local"), [with_default])
    np.testing.assert_array_equal(run(proto, f32([-2, 2]))[0], [-0.5, 2])


def test_overloads_of_a_function_are_told_apart():
    functions = [
        function("F", ["a"], ["r"], [node("Neg", ["a"], ["r"])], overload="minus"),
        function("F", ["a"], ["r"], [node("Abs", ["a"], ["r"])], overload="size"),
    ]
    for overload, wanted in (("minus", [2, -3]), ("size", [2, 3])):
        call = node("F", ["x"], ["y"], domain="local", overload=overload)
        np.testing.assert_array_equal(run(called(call, functions), f32([-2, 3]))[0], wanted)


def test_a_function_has_an_opset_of_its_own():
    old = function("Flat", ["a"], ["r"], [node("Softmax", ["a"], ["r"])], opset=11)
    proto = model(
        [node("Flat", ["x"], ["y"], domain="local")], {"x": [1, 2, 2]}, ["y"], functions=[old], domains={"local": 1}
    )  # fmt: skip
    (y,) = run(proto, np.zeros((1, 2, 2), np.float32))
    np.testing.assert_allclose(y, np.full((1, 2, 2), 0.25), rtol=1e-6)


def test_an_input_of_a_function_may_be_left_out_and_an_output_ignored():
    nodes = [node("Clip", ["a", "low", "high"], ["r"]), node("Neg", ["a"], ["s"])]
    both = function("Both", ["a", "low", "high"], ["r", "s"], nodes)
    call = node("Both", ["x", "", "top"], ["y"], domain="local")
    proto = called(call, [both], constants={"top": np.float32(1)})
    np.testing.assert_array_equal(run(proto, f32([-2, 3]))[0], [-2, 1])


def test_a_function_takes_the_place_of_an_op_of_the_same_name():
    mine = helper.make_function(
        "", "Relu", ["a"], ["r"], [node("Neg", ["a"], ["r"])], [helper.make_opsetid("", 17)]
    )
    proto = model([node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"], functions=[mine])
    np.testing.assert_array_equal(run(proto, f32([1, -2]))[0], [-1, 2])


# -- weights and declarations ----------------------------------------------------------------------


@pytest.mark.parametrize("form", ["initializer", "Constant", "both an input and an initializer"])
def test_weights_come_in_three_forms(form):
    weight = f32([[1, 2], [3, 4]])
    nodes, inputs, constants = [node("MatMul", ["x", "w"], ["y"])], {"x": [1, 2]}, {"w": weight}
    if form == "Constant":
        nodes.insert(0, node("Constant", [], ["w"], value=onnx.numpy_helper.from_array(weight)))
        constants = {}
    elif form.startswith("both"):
        inputs["w"] = [2, 2]
    np.testing.assert_array_equal(
        run(model(nodes, inputs, ["y"], constants), f32([[1, 1]]))[0], [[4, 6]]
    )


def test_a_type_that_the_graph_contradicts_is_not_believed():
    nodes = [node("Shape", ["x"], ["y"]), node("Cast", ["x"], ["z"], to=TensorProto.INT32)]
    proto = model(nodes, {"x": [2, 3]}, ["y", "z"])
    proto.graph.value_info.append(helper.make_tensor_value_info("z", FLOAT, [1]))
    y, z = run(proto, np.full((2, 3), 7, np.float32))
    assert y.dtype == np.int64 and y.tolist() == [2, 3]
    assert z.dtype == np.int32 and z.shape == (2, 3)


def test_a_declared_rank_of_an_output_that_is_wrong_is_not_believed():
    proto = model([node("Unsqueeze", ["x", "a"], ["y"])], {"x": [2]}, ["y"], {"a": np.array([0])})
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [2, 1, 1]))
    assert run(proto, f32([1, 2]))[0].shape == (1, 2)


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [(TensorProto.INT64, [2, 3]), (TensorProto.FLOAT, [6]), (TensorProto.FLOAT, [2, 4])],
    ids=["dtype", "rank", "size"],
)
@pytest.mark.parametrize("where", ["output", "between", "in a branch"])
def test_what_the_graph_computes_counts_and_not_what_is_declared_of_it(where, kind, sizes):
    wrong = helper.make_tensor_value_info("t", kind, sizes)
    negated = [node("Neg", ["x"], ["t"])]
    if where == "in a branch":
        inner = helper.make_graph(negated, "inner", [], [wrong])
        branch = node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)
        nodes = [branch, node("Neg", ["z"], ["y"])]
    else:
        nodes = [*negated, node("Neg", ["t"], ["y"])]
    proto = model(nodes, {"x": [2, 3], "c": []}, ["y"], dtypes={"c": TensorProto.BOOL})
    if where == "output":
        proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", kind, sizes))
    elif where == "between":
        proto.graph.value_info.append(wrong)
    x = f32([[1, 2, 3], [4, 5, 6]])
    (y,) = run(proto, x, np.array(True))
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, x)


# -- out of scope ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "domain", "version"),
    [
        ("StringNormalizer", "", 17),
        ("StringConcat", "", 20),
        ("RegexFullMatch", "", 20),
        ("TfIdfVectorizer", "", 17),
    ],
)
def test_ops_on_text_are_refused(op, domain, version):
    inputs = ["x", "x"] if op == "StringConcat" else ["x"]
    attributes = {"mode": "TF", "max_gram_length": 1, "min_gram_length": 1, "max_skip_count": 0,
                  "ngram_counts": [0], "ngram_indexes": [0]} if op == "TfIdfVectorizer" else {}  # fmt: skip
    proto = model(
        [node(op, inputs, ["y"], domain=domain, **attributes)], {"x": [2]}, ["y"], opset=version
    )
    with pytest.raises(CompileError, match=f"XC1006 .*{op}"):
        import_onnx(proto)


def test_an_input_of_text_is_refused():
    proto = model(
        [node("Identity", ["x"], ["y"])], {"x": [2]}, ["y"], dtypes={"x": TensorProto.STRING}
    )
    with pytest.raises(CompileError, match="XC1012 the input 'x' has the data type STRING"):
        import_onnx(proto)


# -- axes of no elements ---------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [0, "n"])
def test_a_batch_of_nothing_goes_through_dense_layers_and_pools(batch):
    nodes = [
        node("Conv", ["x", "w"], ["c"]),
        node("GlobalAveragePool", ["c"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "m"], ["g"]),
        node("Softmax", ["g"], ["y"]),
    ]
    constants = {"w": np.ones((2, 1, 2, 2), np.float32), "m": np.ones((2, 3), np.float32)}
    proto = model(nodes, {"x": [batch, 1, 4, 4]}, ["y"], constants)
    assert run(proto, np.zeros((0, 1, 4, 4), np.float32))[0].shape == (0, 3)


def test_empty_parts_join_a_concatenation_and_end_a_product():
    nodes = [node("Concat", ["x", "e"], ["c"], axis=0), node("MatMul", ["e", "x"], ["y"])]
    proto = model(nodes, {"x": [2, 2]}, ["c", "y"], {"e": np.zeros((0, 2), np.float32)})
    c, y = run(proto, np.ones((2, 2), np.float32))
    assert c.shape == (2, 2) and y.shape == (0, 2)


def test_a_product_over_an_empty_axis_is_zeros():
    proto = model(
        [node("MatMul", ["x", "w"], ["y"])],
        {"x": [2, 0]},
        ["y"],
        {"w": np.ones((0, 3), np.float32)},
    )
    np.testing.assert_array_equal(run(proto, np.zeros((2, 0), np.float32))[0], np.zeros((2, 3)))


@pytest.mark.parametrize("allowzero", [0, 1])
def test_a_zero_in_a_new_shape_is_the_old_size_or_nothing(allowzero):
    made = node("Reshape", ["x", "s"], ["y"], allowzero=allowzero)
    proto = model([made], {"x": [0, 3]}, ["y"], {"s": np.array([3, 0] if allowzero else [0, 3])})
    wanted = (3, 0) if allowzero else (0, 3)
    assert run(proto, np.zeros((0, 3), np.float32))[0].shape == wanted
