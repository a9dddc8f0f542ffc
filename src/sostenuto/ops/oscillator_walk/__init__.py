"""The steps of the oscillator scan and of its adjoint inside compiled kernels."""
