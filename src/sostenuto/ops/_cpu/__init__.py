"""Compiled pieces that several ops share on the CPU: Numba, and the memory and threads it runs on."""
