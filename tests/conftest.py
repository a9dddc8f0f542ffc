"""Fixtures every test can use."""

import os
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


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
