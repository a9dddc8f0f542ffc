"""Tensors to tensors: the recurrences as plain functions, one folder per concept. Nothing here knows a module.

In every folder ``reference.py`` defines the meaning in plain torch, ``cpu`` (Numba) and ``gpu`` (Triton) are the faster
backends, which must agree with it, gradients and final states included, and a README derives the adjoint and counts
bytes and flops. What several ops share lies in ``_cpu`` and ``_gpu``.
"""
