"""Kernels of NVIDIA GPUs."""
