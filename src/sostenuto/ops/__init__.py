"""Tensors to tensors: the recurrences as plain functions, one folder an op. Nothing here knows a module.

Every folder holds ``reference.py``, which defines the meaning in plain torch, and a README that derives the adjoint
and counts bytes and flops; faster backends must agree with the reference, gradients and final states included.
"""
