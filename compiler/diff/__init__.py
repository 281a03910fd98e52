"""Finding what is wrong with a compiled model: `xcompile diff`.

Values are compared under the model's own names. Each step is also tried alone, on recorded operands, so that an error
is told from what follows from it: an op of the front end against the oracle, a pass over the region that it changed, a
kernel against the numpy meaning of its ops, and the program around the kernels against the kernels run one by one.
"""
