"""Calibration: a float model runs on samples, and what its tensors hold becomes a table."""
