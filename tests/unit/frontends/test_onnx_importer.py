import itertools
import time

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.unit.frontends.onnx_models import FLOAT, identity_model, model
from xcompile.compiler.ir.location import node_names
from xcompile.compiler.support.errors import CompileError
from xcompile.dialects.nn.interpreter import interpret
from xcompile.frontends.onnx.importer import import_onnx

node = helper.make_node


def texts(module, name):
    return [a.value for a in module.module.operation.attributes[name]]


def op_names(module):
    return [op.operation.name for op in module.main.regions[0].blocks[0].operations]


def refused(proto, code):
    with pytest.raises(CompileError) as caught:
        import_onnx(proto if isinstance(proto, bytes) else proto.SerializeToString())
    assert caught.value.code == code, str(caught.value)
    return str(caught.value)


class TestNames:
    def test_inputs_outputs_and_symbols_are_module_attributes(self):
        module = import_onnx(identity_model(["N", 3, None, "N"]))
        assert texts(module, "xc.inputs") == ["x"]
        assert texts(module, "xc.input_dims") == ["N,3,x_dim2,N"]
        assert texts(module, "xc.outputs") == ["y"]
        assert str(module.main.type) == "(tensor<?x3x?x?xf32>) -> tensor<?x3x?x?xf32>"

    def test_symbols_that_are_no_identifiers_get_one_and_stay_apart(self):
        module = import_onnx(identity_model(["a b", "a+b", "a b", "lambda", "a_b"]))
        assert texts(module, "xc.input_dims") == ["a_b_2,a_b_3,a_b_2,s_lambda,a_b"]

    def test_minus_one_is_a_size_without_a_name(self):
        assert texts(import_onnx(identity_model([-1, 2])), "xc.input_dims") == ["x_dim0,2"]

    def test_scalars_have_no_dims(self):
        assert texts(import_onnx(identity_model([])), "xc.input_dims") == [""]

    def test_ops_are_located_at_their_nodes(self):
        nodes = [
            node("MaxPool", ["x"], ["p"], kernel_shape=[1], name="pool"),
            node("MaxPool", ["p"], ["y"], kernel_shape=[1]),
        ]
        module = import_onnx(model(nodes, {"x": [1, 1, 4]}, ["y"]))
        found = [node_names(op.location) for op in module.main.regions[0].blocks[0].operations]
        assert found == [["pool"], ["MaxPool_1"], []]

    def test_name_of_the_file_is_the_name_of_the_module(self, tmp_path):
        onnx.save(identity_model(), tmp_path / "small.onnx")
        assert import_onnx(tmp_path / "small.onnx").name == "small"
        assert import_onnx(tmp_path / "small.onnx", name="mine").name == "mine"
        assert import_onnx(identity_model()).name == "g"


class TestGraph:
    def test_initializer_that_is_also_an_input_is_a_constant(self):
        nodes = [node("MatMul", ["x", "w"], ["y"])]
        weights = np.eye(2, dtype=np.float32)
        module = import_onnx(model(nodes, {"x": [1, 2], "w": [2, 2]}, ["y"], {"w": weights}))
        assert texts(module, "xc.inputs") == ["x"]
        assert op_names(module) == ["nn.const", "nn.matmul", "func.return"]

    def test_wrong_declared_shapes_of_intermediates_and_outputs_are_ignored(self):
        nodes = [node("Identity", ["x"], ["t"]), node("MaxPool", ["t"], ["y"], kernel_shape=[2])]
        proto = model(nodes, {"x": [1, 1, 4]}, ["y"])
        proto.graph.value_info.append(helper.make_tensor_value_info("t", FLOAT, [7, 7]))
        proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", FLOAT, [9]))
        assert str(import_onnx(proto).main.type) == "(tensor<1x1x4xf32>) -> tensor<1x1x3xf32>"

    def test_nodes_in_any_order_are_put_into_one_that_can_run(self):
        nodes = [
            node("MaxPool", ["t"], ["y"], kernel_shape=[2]),
            node("ReduceSum", ["x"], ["t"], noop_with_empty_axes=1),
        ]
        module = import_onnx(model(nodes, {"x": [1, 1, 4]}, ["y"]))
        assert op_names(module) == ["nn.reduce_sum", "nn.max_pool", "func.return"]

    def test_cycle_is_refused_with_a_node_of_it(self):
        nodes = [node("Identity", ["b"], ["a"], name="p"), node("Identity", ["a"], ["b"], name="q")]
        assert "'p'" in refused(model(nodes, {}, ["a"]), "XC1009")

    def test_undefined_input_names_node_and_value(self):
        text = refused(
            model([node("Relu", ["nothing"], ["y"], name="n1")], {"x": [1]}, ["y"]), "XC1008"
        )
        assert "'nothing'" in text and "'n1'" in text

    def test_undefined_output_is_refused(self):
        refused(model([], {"x": [1]}, ["y"]), "XC1008")

    @pytest.mark.parametrize(
        "nodes",
        [
            [node("Identity", ["x"], ["y"]), node("Identity", ["x"], ["y"])],
            [node("Identity", ["x"], ["x"])],
            [node("Identity", ["x"], ["w"])],
        ],
    )
    def test_value_defined_twice_is_refused(self, nodes):
        proto = model(nodes, {"x": [1]}, ["x"], {"w": np.zeros(1, np.float32)})
        refused(proto, "XC1008")

    def test_two_inputs_outputs_or_initializers_of_one_name_are_refused(self):
        for field in ("input", "output"):
            proto = identity_model()
            getattr(proto.graph, field).append(getattr(proto.graph, field)[0])
            refused(proto, "XC1008")
        proto = identity_model()
        for _ in range(2):
            proto.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(1), "w"))
        refused(proto, "XC1008")

    def test_chain_of_20000_nodes_is_imported(self):
        names = ["x", *(f"t{i}" for i in range(20_000))]
        nodes = [node("Identity", [a], [b]) for a, b in itertools.pairwise(names)]
        module = import_onnx(model(nodes, {"x": [1]}, [names[-1]]))
        assert op_names(module) == ["func.return"]

    @pytest.mark.full
    def test_chain_of_100000_nodes_is_imported_in_a_minute_of_processor_time(self):
        names = ["x", *(f"t{i}" for i in range(100_000))]
        nodes = [
            node("ReduceSum", [a], [b], noop_with_empty_axes=1)
            for a, b in itertools.pairwise(names)
        ]
        proto = model(nodes, {"x": [1]}, [names[-1]])
        start = time.process_time()
        module = import_onnx(proto)
        assert time.process_time() - start < 60
        assert len(op_names(module)) == 100_001

    def test_output_may_be_an_input_or_a_constant(self):
        module = import_onnx(model([], {"x": [1]}, ["x", "w"], {"w": np.full(1, 5, np.float32)}))
        assert [float(a[0]) for a in interpret(module, [np.ones(1, np.float32)])] == [1, 5]


class TestUnsupported:
    def test_all_unsupported_ops_are_listed_at_once_with_hints(self):
        nodes = [
            node("MaxPol", ["x"], ["a"], name="first"),
            node("Sigmoid", ["a"], ["b"], domain="my.ops", name="second"),
            node("LayerNormalization", ["b", "b"], ["c"], name="third"),
            node("MaxPol", ["c"], ["y"], name="fourth"),
        ]
        text = refused(model(nodes, {"x": [1]}, ["y"], opset=16, domains={"my.ops": 2}), "XC1006")
        assert "3 ops are not supported" in text
        assert "MaxPol (domain 'ai.onnx', opset 16) at 'first', 'fourth'; known: MaxPool" in text
        assert "Sigmoid (domain 'my.ops', opset 2) at 'second'" in text
        assert (
            "LayerNormalization (domain 'ai.onnx', opset 16) at 'third'; known: LayerNormalization since opset 17"
            in text
        )

    def test_many_nodes_of_one_op_are_counted(self):
        nodes = [node("Nope", ["x"], [f"y{i}"]) for i in range(1000)]
        assert "and 995 more" in refused(model(nodes, {"x": [1]}, ["y0"]), "XC1006")

    def test_unsupported_ops_in_subgraphs_are_reported_with_the_others(self):
        body = helper.make_graph(
            [node("Nope", ["x"], ["z"], name="inside")],
            "b",
            [],
            [helper.make_tensor_value_info("z", FLOAT, [1])],
        )
        nodes = [
            node("If", ["c"], ["y"], then_branch=body, else_branch=body, name="branch"),
            node("Neither", ["x"], ["w"], name="outside"),
        ]
        proto = model(nodes, {"x": [1], "c": []}, ["y"], dtypes={"c": onnx.TensorProto.BOOL})
        text = refused(proto, "XC1006")
        assert "Nope (domain 'ai.onnx', opset 17) at 'inside'" in text
        assert "Neither (domain 'ai.onnx', opset 17) at 'outside'" in text

    def test_ops_with_graphs_that_are_not_known_are_reported(self):
        body = helper.make_graph([], "b", [], [])
        nodes = [node("Conv", ["x"], ["y"], body=body, domain="my.ops")]
        proto = model(nodes, {"x": [1]}, ["y"], domains={"my.ops": 1})
        assert "Conv (domain 'my.ops'" in refused(proto, "XC1006")

    @pytest.mark.parametrize("opset", [5, 999])
    def test_opsets_out_of_range_are_refused(self, opset):
        proto = identity_model()
        proto.opset_import[0].version = opset
        refused(proto, "XC1007")

    def test_ir_version_of_the_future_is_refused(self):
        proto = identity_model()
        proto.ir_version = onnx.IR_VERSION + 1
        refused(proto, "XC1007")

    def test_strings_and_sequences_are_refused_by_name(self):
        proto = model(
            [node("Identity", ["x"], ["y"])],
            {"x": [1]},
            ["y"],
            dtypes={"x": onnx.TensorProto.STRING},
        )
        assert "'x'" in refused(proto, "XC1012")
        proto.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = FLOAT
        assert "'x'" in refused(proto, "XC1012")


class TestNodesAgainstTheDefinitionOfTheirOp:
    def conv(self, inputs=("x", "w"), **attributes):
        return model(
            [node("Conv", list(inputs), ["y"], name="c", **attributes)],
            {"x": [1, 2, 5]},
            ["y"],
            {"w": np.ones((2, 2, 3), np.float32)},
        )

    @pytest.mark.parametrize(
        ("attributes", "code"),
        [
            ({"stride": [1]}, "XC1010"),
            ({"strides": 1}, "XC1010"),
            ({"group": 1.0}, "XC1010"),
            ({"strides": [0]}, "XC2007"),
            ({"strides": [1, 1]}, "XC2007"),
            ({"strides": [-(2**62)]}, "XC2007"),
            ({"dilations": [0]}, "XC2007"),
            ({"dilations": [2**62]}, "XC2007"),
            ({"pads": [1]}, "XC2007"),
            ({"pads": [2**62, 0]}, "XC2007"),
            ({"pads": [-4, 0]}, "XC2008"),
            ({"group": 0}, "XC2007"),
            ({"group": -1}, "XC2007"),
            ({"group": 2}, "XC2004"),
            ({"kernel_shape": [4]}, "XC2007"),
            ({"kernel_shape": [3, 3]}, "XC2007"),
            ({"auto_pad": "SAME"}, "XC2007"),
        ],
    )
    def test_bad_attributes_are_errors_at_the_node(self, attributes, code):
        assert "'c'" in refused(self.conv(**attributes), code)

    def test_too_few_and_too_many_inputs(self):
        assert "'c'" in refused(self.conv(("x",)), "XC1011")
        assert "'c'" in refused(self.conv(("x", "")), "XC1011")
        refused(self.conv(("x", "w", "", "")), "XC1011")

    def test_missing_required_attribute(self):
        refused(model([node("MaxPool", ["x"], ["y"])], {"x": [1, 1, 4]}, ["y"]), "XC1010")

    def test_element_types_that_the_op_is_not_defined_for(self):
        proto = model(
            [node("MaxPool", ["x"], ["y"], kernel_shape=[1])],
            {"x": [1, 1, 4]},
            ["y"],
            dtypes={"x": 7},
        )
        refused(proto, "XC2002")
        proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": [2]}, ["y"], {"w": np.ones(2)})
        refused(proto, "XC2002")

    def test_repeated_attribute(self):
        proto = self.conv(strides=[1])
        proto.graph.node[0].attribute.append(proto.graph.node[0].attribute[0])
        refused(proto, "XC1010")


class TestConstantNodes:
    @pytest.mark.parametrize(
        ("attributes", "expected"),
        [
            (
                {"value": onnx.numpy_helper.from_array(np.array([[1, 2]], np.int8))},
                np.array([[1, 2]], np.int8),
            ),
            ({"value_float": 1.5}, np.float32(1.5)),
            ({"value_floats": [1.5, 2]}, np.array([1.5, 2], np.float32)),
            ({"value_int": -3}, np.int64(-3)),
            ({"value_ints": [1, 2**40]}, np.array([1, 2**40])),
        ],
    )
    def test_every_form_of_value(self, attributes, expected):
        module = import_onnx(model([node("Constant", [], ["y"], **attributes)], {}, ["y"]))
        (result,) = interpret(module, [])
        assert result.dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(result, expected)

    def test_strings_and_no_value_are_refused(self):
        refused(model([node("Constant", [], ["y"], value_string="a")], {}, ["y"]), "XC1012")
        refused(model([node("Constant", [], ["y"])], {}, ["y"]), "XC1010")


class TestFunctions:
    def pool(self):
        """A local function: Pool<k>(a) = MaxPool<kernel_shape=k>(Identity(a))."""
        inner = node("MaxPool", ["t"], ["r"])
        reference = onnx.AttributeProto(
            name="kernel_shape", ref_attr_name="k", type=onnx.AttributeProto.INTS
        )
        inner.attribute.append(reference)
        nodes = [node("Identity", ["a"], ["t"]), inner]
        return helper.make_function(
            "local", "Pool", ["a"], ["r"], nodes, [helper.make_opsetid("", 17)], ["k"]
        )

    def test_functions_are_inlined_with_their_attributes_and_names_apart(self):
        nodes = [
            node("Pool", ["x"], ["t"], domain="local", k=[2], name="one"),
            node("Pool", ["t"], ["y"], domain="local", k=[3], name="two"),
        ]
        module = import_onnx(
            model(nodes, {"x": [1, 1, 6]}, ["y"], functions=[self.pool()], domains={"local": 1})
        )
        assert str(module.main.type) == "(tensor<1x1x6xf32>) -> tensor<1x1x3xf32>"
        locations = [node_names(op.location) for op in module.main.regions[0].blocks[0].operations]
        assert locations == [["one/MaxPool_1"], ["two/MaxPool_1"], []]

    def call(self, name, callees):
        nodes = [node(c, ["a"], [f"r{i}"], domain="local") for i, c in enumerate(callees)]
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
        return helper.make_function("local", name, ["a"], ["r0"], nodes, imports)

    def test_function_that_calls_itself_over_another_is_refused(self):
        functions = [self.call("A", ["B"]), self.call("B", ["A"])]
        proto = model(
            [node("A", ["x"], ["y"], domain="local")],
            {"x": [1]},
            ["y"],
            functions=functions,
            domains={"local": 1},
        )
        assert "calls itself" in refused(proto, "XC1013")

    def test_functions_that_double_forty_times_are_refused(self):
        functions = [self.call(f"F{i}", [f"F{i + 1}"] * 2) for i in range(40)]
        functions.append(self.call("F40", ["Nope"]))
        proto = model(
            [node("F0", ["x"], ["y"], domain="local")],
            {"x": [1]},
            ["y"],
            functions=functions,
            domains={"local": 1},
        )
        refused(proto, "XC1013")

    def test_function_that_returns_its_input_is_an_identity(self):
        function = helper.make_function(
            "local", "Same", ["a"], ["a"], [], [helper.make_opsetid("", 17)]
        )
        proto = model(
            [node("Same", ["x"], ["y"], domain="local")],
            {"x": [1]},
            ["y"],
            functions=[function],
            domains={"local": 1},
        )
        assert op_names(import_onnx(proto)) == ["func.return"]
