"""A model that gives all its tensors as outputs, for engines that are compared tensor by tensor."""

import os
from dataclasses import dataclass
from pathlib import Path

import onnx

from xcompile.compiler.support.errors import CompileError
from xcompile.frontends.onnx.reader import read_model


@dataclass(frozen=True)
class Exposed:
    """A model with more outputs.

    Attributes:
        model: the bytes of its file.
        names: of the outputs: the model's own, then every other tensor that a node of the main graph gives, in order.
        folder: where its external data lies; None for a model without a path.
    """

    model: bytes
    names: tuple[str, ...]
    folder: Path | None


def expose_tensors(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> Exposed:
    """Make every tensor of the main graph an output; the model that is given stays as it is.

    Raises:
        CompileError: XC1xxx the model cannot be read, or has 2 GiB without external data.
    """
    read = read_model(source)
    model = onnx.ModelProto()
    model.CopyFrom(read.model)
    names = dict.fromkeys(info.name for info in model.graph.output)
    for node in model.graph.node:
        for name in node.output:
            if name and name not in names:
                names[name] = None
                model.graph.output.append(onnx.ValueInfoProto(name=name))
    try:
        data = model.SerializeToString()
    except ValueError as error:
        raise CompileError(
            "XC1013", f"the model cannot be given to another engine: {error}"
        ) from error
    return Exposed(data, tuple(names), read.folder)
