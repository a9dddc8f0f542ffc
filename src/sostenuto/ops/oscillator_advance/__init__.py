"""A stretch of oscillator steps, for the kernels of other ops."""
