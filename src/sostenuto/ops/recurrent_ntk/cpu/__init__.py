"""The recurrent NTK on the CPU: Numba."""
