"""Parts for another engine: exactly the nodes that are not supported, in as few parts as the order allows."""

import numpy as np
import onnx
import pytest
from onnx import helper

from bench import corpus
from tests.e2e.networks import residual_network
from xcompile.frontends.onnx.partition import Partition


def unsupported(source: str, result: str, name: str) -> onnx.NodeProto:
    return helper.make_node("Mystery", [source], [result], name, domain="of.nobody")


def planted(model: onnx.ModelProto, position: int) -> tuple[onnx.ModelProto, str]:
    """The model with an op that nobody supports behind the first floating-point product from a position on."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.opset_import.append(helper.make_opsetid("of.nobody", 1))
    nodes = list(made.graph.node)
    at = next(
        i
        for i, node in enumerate(nodes)
        if i >= position and node.op_type in ("Conv", "Gemm", "MatMul")
    )
    name = nodes[at].output[0]
    nodes[at].output[0] = f"{name}_before"
    del made.graph.node[:]
    made.graph.node.extend(
        [*nodes[: at + 1], unsupported(f"{name}_before", name, "odd"), *nodes[at + 1 :]]
    )
    return made, "odd"


def check_whole_and_cut(model: onnx.ModelProto, positions: list[int]) -> None:
    whole = Partition(model).parts()
    assert [part.native for part in whole] == [True]
    named = {name for part in whole for name in part.nodes}
    assert len(named) == len(model.graph.node)
    for position in positions:
        made, odd = planted(model, position)
        parts = Partition(made).parts()
        assert [part.native for part in parts] == [True, False, True]
        assert parts[1].nodes == (odd,)
        native = {name for part in parts if part.native for name in part.nodes}
        assert len(native) == len(model.graph.node)


def test_all_supported_ops_are_in_one_part_and_an_odd_one_is_alone() -> None:
    check_whole_and_cut(residual_network(), [0, 2])


@pytest.mark.full
@pytest.mark.parametrize("name", ["resnet50", "minilm"])
def test_all_supported_ops_of_real_models_are_in_one_part(name: str) -> None:
    model = onnx.load(corpus.model(name))
    check_whole_and_cut(model, [0, len(model.graph.node) // 2])


def random_graph(seed: int) -> onnx.ModelProto:
    """Up to 30 nodes of one or two operands, a third of them unsupported; the last values are outputs."""
    random = np.random.default_rng(seed)
    values, nodes = ["x"], []
    for index in range(int(random.integers(2, 30))):
        reads = [values[int(i)] for i in random.integers(0, len(values), 2)]
        name, made = f"n{index}", f"v{index}"
        if random.integers(3):
            op = ["Relu", "Add"][int(random.integers(2))]
            nodes.append(helper.make_node(op, reads[: 1 + (op == "Add")], [made], name))
        else:
            nodes.append(unsupported(reads[0], made, name))
        values.append(made)
    read = {name for node in nodes for name in node.input}
    outputs = [helper.make_tensor_value_info(v, 1, None) for v in values[1:] if v not in read]
    graph = helper.make_graph(
        nodes, "random", [helper.make_tensor_value_info("x", 1, ["N"])], outputs
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("of.nobody", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def switches(model: onnx.ModelProto) -> int:
    """The most parts that the nodes of one path are in, which no partition can have fewer of."""
    depth: dict[str, tuple[int, bool]] = {}
    most = 1
    for node in model.graph.node:
        native = node.domain == ""
        found = 1
        for name in node.input:
            if name in depth:
                length, kind = depth[name]
                found = max(found, length + (kind != native))
        depth[node.output[0]] = found, native
        most = max(most, found)
    return most


@pytest.mark.parametrize("block", range(10))
def test_parts_of_1000_random_graphs_run_in_order_and_are_as_few_as_can_be(block: int) -> None:
    for seed in range(100 * block, 100 * block + 100):
        model = random_graph(seed)
        parts = Partition(model).parts()
        kinds = {node.name: node.domain == "" for node in model.graph.node}
        assert sorted(n for part in parts for n in part.nodes) == sorted(kinds)
        known = {"x"}
        for part in parts:
            assert all(kinds[name] == part.native for name in part.nodes)
            assert known.issuperset(part.inputs)
            known.update(part.outputs)
        assert known.issuperset(info.name for info in model.graph.output)
        assert len(parts) <= switches(model) + 1
