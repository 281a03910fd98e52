"""The ONNX importer: the only part of the compiler that imports `onnx`."""
