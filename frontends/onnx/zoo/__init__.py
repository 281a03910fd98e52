"""Networks for video, with seeded random weights: something to compile, time and take apart.

Each function builds an ONNX model of a known topology at the sizes asked for; batch, frames and image sizes stay open
in it where the network allows that.

    model = xcompile.compile(xcompile.zoo.nextvlad(features=64, clusters=8, hidden=32, classes=10))
"""

from xcompile.frontends.onnx.zoo.features import attention_cluster, lstm, nextvlad
from xcompile.frontends.onnx.zoo.frames import stnet, tsn

__all__ = ["attention_cluster", "lstm", "nextvlad", "stnet", "tsn"]
