"""Kernels for targets that this host is not run in emulators."""

import bench.native
from tests.foreign.harness import run_kernel

bench.native.foreign = run_kernel
