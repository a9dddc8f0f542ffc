"""Procedures become part of the kernel that calls them, with one copy for each kind of arguments."""

import numpy as np
from numba import njit

from sostenuto.ops._cpu.compiled import OPTIONS, procedure


@procedure
def add_to(total, values):
    for i in range(len(values)):
        total[i] += values[i]


@procedure
def add_twice(total, values):
    for _ in range(2):
        add_to(total, values)


@njit(**{**OPTIONS, "cache": False})
def kernel(total, values):
    add_twice(total, values)
    add_to(values, total)


def test_a_procedure_is_compiled_once_into_the_kernel_that_calls_it():
    total, values = np.ones(3), np.ones(3)
    kernel(total, values)
    assert total.tolist() == [3.0] * 3
    assert values.tolist() == [4.0] * 3
    (text,) = kernel.inspect_llvm().values()
    defined = [line for line in text.splitlines() if line.startswith("define")]
    assert sum("add_to" in line for line in defined) <= 1
