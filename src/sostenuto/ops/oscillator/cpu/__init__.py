"""The oscillator ops on the CPU: Numba."""
