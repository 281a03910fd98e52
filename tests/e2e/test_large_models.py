"""Models beyond what a protobuf message can hold: imported in little more memory than their weights take."""

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

GIB = 1 << 30

_IMPORT = """
import resource, sys
from xcompile.frontends.onnx.importer import import_onnx
module = import_onnx(sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def external(name: str, shape: list[int], offset: int, length: int) -> onnx.TensorProto:
    """A float32 weight that lies in the file `weights.bin`."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (
        ("location", "weights.bin"),
        ("offset", str(offset)),
        ("length", str(length)),
    ):
        tensor.external_data.add(key=key, value=value)
    return tensor


def large_model(folder: Path, layers: int, side: int) -> Path:
    """Dense layers whose weights are a sparse file of zeros."""
    size = 4 * side * side
    nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(layers)]
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["n", side])],
        [helper.make_tensor_value_info(f"v{layers}", TensorProto.FLOAT, ["n", side])],
        [external(f"w{i}", [side, side], i * size, size) for i in range(layers)],
    )
    with (folder / "weights.bin").open("wb") as file:
        os.truncate(file.fileno(), layers * size)
    path = folder / "large.onnx"
    path.write_bytes(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        ).SerializeToString()
    )
    return path


@pytest.mark.full
def test_3_gib_of_external_weights_are_imported_in_1_gib_more(tmp_path: Path) -> None:
    path = large_model(tmp_path, layers=12, side=8192)
    assert (tmp_path / "weights.bin").stat().st_size == 3 * GIB
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, str(path)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) <= 4 * GIB
