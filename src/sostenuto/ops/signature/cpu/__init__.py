"""Signatures and their inner products on the CPU: Numba."""
