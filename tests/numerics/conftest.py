"""Kernels for targets that this host is not run in emulators."""

import bench.native
from tests.foreign.harness import call_elsewhere

bench.native.foreign = call_elsewhere
