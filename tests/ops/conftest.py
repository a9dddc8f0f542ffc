import pytest
import torch

from sostenuto.ops._cpu import threads


@pytest.fixture(params=["torch's threads", "a pool"])
def two_threads(request, monkeypatch):
    """Run blocks on two threads, of either kind."""
    torch.set_num_threads(2)
    if request.param == "a pool":
        monkeypatch.setattr(threads, "_openmp", None)
    elif threads._openmp is None:
        pytest.skip("torch is not built on GNU's OpenMP here")
    return request.param
