"""Numbers as a test: which error is allowed, and whether passes keep what a model computes."""
