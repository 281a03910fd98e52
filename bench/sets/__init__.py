"""Labelled inputs, made by generators with fixed seeds, that tell what quantization costs."""
