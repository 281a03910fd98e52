"""Every op that is imported, with operands of every small rank: a module or an error with a code, nothing else."""

import contextlib
import itertools
import resource

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx import registry
from xcompile.frontends.onnx.importer import import_onnx

KIND = onnx.defs.OpSchema.AttrType
DTYPES = {
    "tensor(float)": onnx.TensorProto.FLOAT,
    "tensor(int64)": onnx.TensorProto.INT64,
    "tensor(int32)": onnx.TensorProto.INT32,
    "tensor(bool)": onnx.TensorProto.BOOL,
    "tensor(uint8)": onnx.TensorProto.UINT8,
}
REQUIRED = {KIND.INT: 1, KIND.FLOAT: 1.0, KIND.INTS: [1, 1], KIND.FLOATS: [1.0], KIND.STRING: "x"}
SHAPES = ([], [0], [3], [3, 3], [3, 3, 3], [3, 3, 3, 3])


def converted_ops():
    """Schemas of the ops that have a converter, without those that hold graphs."""
    registry.load_converters()
    for schema in onnx.defs.get_all_schemas():
        graphs = any(a.type == KIND.GRAPH for a in schema.attributes.values())
        if not graphs and registry.find_converter(schema.domain, schema.name, schema.since_version):
            yield schema


def operand_dtypes(schema, count):
    """A dtype for each of some inputs; None when one takes no tensor of numbers."""
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    found = []
    for i in range(count):
        text = schema.inputs[min(i, len(schema.inputs) - 1)].type_str
        kinds = [DTYPES[t] for t in DTYPES if t in allowed.get(text, [text])]
        if not kinds:
            return None
        found.append(kinds[0])
    return found


def one_node(schema, dtypes, shape, constant):
    """A model of the op whose operands all have this shape; all but the first are ones when `constant`."""
    needed = [a for a in schema.attributes.values() if a.required]
    attributes = {a.name: REQUIRED[a.type] for a in needed if a.type in REQUIRED}
    names = [f"i{i}" for i in range(len(dtypes))]
    made = helper.make_node(schema.name, names, ["o"], domain=schema.domain, **attributes)
    fixed = len(dtypes) - 1 if constant else 0
    split = len(dtypes) - fixed
    ones = [np.ones(shape, helper.tensor_dtype_to_np_dtype(d)) for d in dtypes[split:]]
    graph = helper.make_graph(
        [made],
        "g",
        [
            helper.make_tensor_value_info(n, d, shape)
            for n, d in zip(names[:split], dtypes[:split], strict=True)
        ],
        [helper.make_empty_tensor_value_info("o")],
        [numpy_helper.from_array(a, n) for n, a in zip(names[split:], ones, strict=True)],
    )
    versions = {"": 26, schema.domain: schema.since_version} if schema.domain else {"": 26}
    opsets = [helper.make_opsetid(d, v) for d, v in versions.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def imports(schema):
    """How many models of one op are imported; the others must be refused with a code."""
    most, imported = min(schema.max_input, len(schema.inputs)), 0
    for count in {max(schema.min_input, 1), max(most, 1)} if most else ():
        dtypes = operand_dtypes(schema, count)
        for shape, constant in itertools.product(SHAPES, (False, True)) if dtypes else ():
            with contextlib.suppress(CompileError):
                import_onnx(one_node(schema, dtypes, shape, constant).SerializeToString())
                imported += 1
    return imported


@pytest.mark.parametrize("name", ["Col2Im", "Compress", "MatMul", "Slice", "SplitToSequence"])
def test_operands_of_wrong_ranks_are_errors_with_codes(name):
    assert imports(onnx.defs.get_schema(name, 26)) < 2 * 2 * len(SHAPES)


@pytest.mark.full
def test_operands_of_any_rank_give_a_module_or_an_error_with_a_code():
    assert sum(map(imports, converted_ops())) > 1000


@pytest.mark.parametrize("shape", [[], [2, 2, 2]])
def test_a_classifier_of_features_without_rows_is_refused(shape):
    fields = {"coefficients": [1.0, 2.0], "classlabels_ints": [7, 9]}
    schema = onnx.defs.get_schema("LinearClassifier", 5, "ai.onnx.ml")
    made = one_node(schema, [onnx.TensorProto.FLOAT], shape, False)
    given = helper.make_node("LinearClassifier", ["i0"], ["o"], domain="ai.onnx.ml", **fields)
    made.graph.node[0].CopyFrom(given)
    with pytest.raises(CompileError) as caught:
        import_onnx(made.SerializeToString())
    assert caught.value.code == "XC2003"


def with_long_operands(schema, first):
    """Models of one op: its first operand has a small shape, the others declare 2⁴⁰ elements."""
    most = min(schema.max_input, len(schema.inputs))
    for count in {max(schema.min_input, 1), max(most, 1)} if most else ():
        dtypes = operand_dtypes(schema, count)
        if dtypes:
            made = one_node(schema, dtypes, [1 << 40], False)
            made.graph.input[0].CopyFrom(helper.make_tensor_value_info("i0", dtypes[0], first))
            yield made.SerializeToString()


def refused(schema):
    """How many models with long operands are refused with a code."""
    count = 0
    for model in itertools.chain(
        with_long_operands(schema, [2, 3]), with_long_operands(schema, [1 << 40])
    ):
        try:
            import_onnx(model)
        except CompileError:
            count += 1
    return count


def test_more_axes_than_a_tensor_has_are_refused():
    assert refused(onnx.defs.get_schema("Unsqueeze", 13)) == 2


@pytest.mark.full
def test_operands_that_declare_terabytes_take_no_memory():
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, before[1]))
    try:
        assert sum(map(refused, converted_ops())) > 100
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
