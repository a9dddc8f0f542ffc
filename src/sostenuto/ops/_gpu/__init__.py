"""Pieces of Triton kernels that several ops share."""
