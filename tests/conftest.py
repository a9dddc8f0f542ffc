"""Fixtures every test can use."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "house", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")


@pytest.fixture
def real_data() -> Path:
    """Return the folder of real data sets, or skip where there is none."""
    folder = os.environ.get("SOSTENUTO_DATA", "")
    if not folder or not Path(folder).is_dir():
        pytest.skip("needs the real data sets: point SOSTENUTO_DATA at their folder")
    return Path(folder)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    """Let what a file's tests share be made as they run: models are tiny, a second thread would only wait."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded_in_one_thread() -> Iterator[None]:
    """Begin every test alike."""
    torch.manual_seed(0)
    yield
    torch.set_num_threads(1)
