"""Quantization of float models after training: ranges of tensors, and what becomes of weights."""
