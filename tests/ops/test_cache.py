"""Compiled code finds a place, or none, and the scans run all the same."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("numba")

PROGRAM = """
from numba.core import caching
for kind in (caching.InTreeCacheLocator, caching.UserWideCacheLocator):
    kind.from_function = classmethod(lambda *_: None)  # no home, and packages that cannot be written to
import torch
import sostenuto as so
from sostenuto.ops._cpu.compiled import CACHE
print(CACHE, so.OscillatorFeatures(16, random_state=0).fit_transform(torch.randn(3, 20).numpy()).shape)
"""


def run(folder):
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONWARNINGS": "default"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("expected a place that can be written to for compiled code") == 1
    return done


def test_without_a_place_a_folder_of_this_user_is_made(tmp_path):
    done = run(tmp_path)
    own = tmp_path / f"sostenuto-compiled-{os.getuid()}"
    assert done.stdout == "True (3, 256)\n"
    assert f"it is kept in {own}" in done.stderr
    assert own.stat().st_mode & 0o777 == 0o700
    assert list(own.rglob("*.nbi"))


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path):
    own = tmp_path / f"sostenuto-compiled-{os.getuid()}"
    own.mkdir()
    own.chmod(0o777)
    done = run(tmp_path)
    assert done.stdout == "False (3, 256)\n"
    assert "everything is compiled at every start" in done.stderr
    assert list(own.iterdir()) == []
