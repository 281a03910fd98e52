"""The processes in which emitters, MLIR's lowering and LLVM run, and the pool that feeds them.

Native code can end its process and a user's emitter can do anything, so neither happens in the user's process.
`process.py` is the worker, `pool.py` the other side, `messages.py` what they say to each other.
"""
