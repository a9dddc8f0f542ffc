"""What a test run needs before the library is imported: checks of its types, and the rule for GPU kernels."""

import doctest
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

import jaxtyping
import pytest
import torch

CHECKER = "beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))"
HAS_BEARTYPE = importlib.util.find_spec("beartype") is not None
HAS_CVXPY = importlib.util.find_spec("cvxpy") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"

# Child processes run in folders of their own and import the same library: a relative path would lead elsewhere there.
if os.environ.get("PYTHONPATH"):
    os.environ["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, os.environ["PYTHONPATH"].split(os.pathsep)))

# Read by cuBLAS at its first product: without it torch refuses products where a test asks for deterministic algorithms.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


class PlainKernels:
    """Leave GPU kernels as written: Triton compiles a function's source, and a type check around it is none."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Find kernels before the hook that would put checks into them."""
        kernels = name.startswith("sostenuto.ops.") and not {"gpu", "_gpu"}.isdisjoint(name.split("."))
        return PathFinder.find_spec(name, path, target) if kernels else None


if HAS_BEARTYPE and not any(isinstance(finder, PlainKernels) for finder in sys.meta_path):
    assert "sostenuto" not in sys.modules, "its functions can be checked only if it is imported after this file"
    jaxtyping.install_import_hook("sostenuto", CHECKER)
    sys.meta_path.insert(0, PlainKernels())


def pytest_report_header() -> list[str]:
    """Say what this run checks and where GPU kernels run."""
    kernels = "on " + torch.cuda.get_device_name() if torch.cuda.is_available() else "under Triton's interpreter"
    return [
        f"types: {'checked by beartype' if HAS_BEARTYPE else 'not checked, beartype is not installed'}",
        f"GPU kernels: {kernels if torch.cuda.is_available() or INTERPRETED else 'not run in this process'}",
    ]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test or a docstring's example that the library refuses for want of an extra, and say which."""
    try:
        return (yield)
    except (ImportError, doctest.UnexpectedException) as error:
        refusal = str(error.exc_info[1] if isinstance(error, doctest.UnexpectedException) else error)
        package = re.search(r"needs the package '(\w+)'", refusal)
        if package and importlib.util.find_spec(package[1]) is None:
            pytest.skip(refusal)
        raise


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of GPU kernels where there is no GPU, unless Triton interprets them and the test can bear it.

    A docstring's example that names cvxpy is skipped where it is absent: answers without it are weaker, no refusals.
    """
    if isinstance(item, pytest.DoctestItem) and "cvxpy" in (item.dtest.docstring or "") and not HAS_CVXPY:
        pytest.skip("needs cvxpy")
    for mark in item.iter_markers("gpu"):
        if not torch.cuda.is_available() and not (INTERPRETED and mark.kwargs.get("interpreted", True)):
            pytest.skip("needs a GPU")
