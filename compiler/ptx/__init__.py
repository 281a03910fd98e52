"""An interpreter of PTX: kernels of a GPU executed without one, and what a GPU would not forgive found."""
