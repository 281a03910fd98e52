"""Benchmark models: the topologies that the `onnx` package ships, filled with seeded random weights.

Batch-norm statistics are calibrated on four smooth random images, so that activations stay in range and the output
depends on the input and on every layer (with plain random statistics ResNet-50 gives one constant output).

    python -m bench.topologies OUT_FOLDER [NAME ...]      (needs onnx, onnxruntime and numpy)
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import onnxruntime
from onnx import helper, numpy_helper

from bench.inputs import smooth_images

NAMES = ["resnet50", "squeezenet", "shufflenet", "vgg19", "densenet121", "inception_v1"]
BATCH_NORM_ROLES = ["scale", "bias", "mean", "variance"]


def fill(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """Replace each ConstantOfShape weight by a random initializer with a sensible spread; convert to opset 17."""
    graph, random = model.graph, np.random.default_rng(seed)
    constants = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    role = {
        name: what
        for node in graph.node
        if node.op_type == "BatchNormalization"
        for what, name in zip(BATCH_NORM_ROLES, node.input[1:5], strict=True)
    }
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape" or node.input[0] not in constants:
            kept.append(node)
            continue
        name, shape = node.output[0], constants[node.input[0]]
        if role.get(name) in ("scale", "variance"):
            value = random.uniform(0.5, 1.5, shape)
        elif role.get(name) in ("bias", "mean"):
            value = random.normal(0, 0.1, shape)
        elif len(shape) >= 2:
            value = random.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape)
        else:
            value = random.normal(0, 0.05, shape)
        graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    del graph.node[:]
    graph.node.extend(kept)
    used = {name for node in graph.node for name in node.input}
    weights = [i for i in graph.initializer if i.name in used]
    names = {i.name for i in weights}
    inputs = [
        i for i in graph.input if i.name not in names and i.name in used
    ]  # an initializer that is also an input is not constant
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(weights)
    graph.input.extend(inputs)
    model.ir_version = 8
    return onnx.version_converter.convert_version(model, 17)


def calibrate(model: onnx.ModelProto) -> onnx.ModelProto:
    """Set every batch norm's mean and variance to those of one pass over smooth images."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    wanted = []
    for node in probe.graph.node:
        if node.op_type == "BatchNormalization":
            kept = [a for a in node.attribute if a.name == "epsilon"]
            del node.attribute[:]
            node.attribute.extend(kept)
            node.attribute.append(helper.make_attribute("training_mode", 1))
            node.attribute.append(helper.make_attribute("momentum", 0.0))
            outputs = [node.output[0] + "__mean", node.output[0] + "__variance"]
            node.output.extend(outputs)
            wanted += list(zip(node.input[3:5], outputs, strict=True))
            probe.graph.output.extend(
                helper.make_tensor_value_info(o, onnx.TensorProto.FLOAT, None) for o in outputs
            )
    if not wanted:
        return model
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        probe.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    image = session.get_inputs()[0]
    found = session.run([o for _, o in wanted], {image.name: smooth_images(tuple(image.shape), 7)})
    statistics = {name: value for (name, _), value in zip(wanted, found, strict=True)}
    for tensor in model.graph.initializer:
        if tensor.name in statistics:
            tensor.CopyFrom(
                numpy_helper.from_array(statistics[tensor.name].astype(np.float32), tensor.name)
            )
    return model


def main() -> None:
    """Write the models named on the command line."""
    out, names = Path(sys.argv[1]), sys.argv[2:] or NAMES
    out.mkdir(parents=True, exist_ok=True)
    source = Path(onnx.backend.test.__file__).parent / "data" / "light"
    for name in names:
        model = calibrate(fill(onnx.load(source / f"light_{name}.onnx")))
        onnx.save(model, out / f"{name}.onnx")


if __name__ == "__main__":
    main()
