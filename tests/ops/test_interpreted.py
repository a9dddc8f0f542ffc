"""The tests of GPU kernels under Triton's interpreter, in a process of their own: it is chosen before the import.

Where there is a GPU the same tests run on it. The interpreter takes milliseconds per step, so of the laws only those of
few steps run here; all of them do with ``TRITON_INTERPRET=1 python -m pytest -m gpu tests/ops``, in half an hour.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests import triton_interpreter

ROOT = Path(__file__).resolve().parents[2]
FEW_STEPS = "gpu.py or -2]"


@pytest.mark.skipif(torch.cuda.is_available(), reason="the GPU itself runs these tests")
@pytest.mark.parametrize("op", ["damped", "dense", "diagonal", "oscillator", "recurrent_ntk"])
def test_gpu_kernels_pass_their_tests_under_the_interpreter(op):
    if why := triton_interpreter.why_not():
        pytest.skip(why)
    files = sorted(str(path) for path in Path(__file__).parent.glob(f"test_{op}_*.py"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    command = (sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-k", FEW_STEPS, "-p", "no:cacheprovider", *files)
    done = subprocess.run(
        command, cwd=ROOT, env=environment | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    count = re.search(r"(\d+) passed", done.stdout)
    assert count is not None
    assert int(count[1]) >= 15
