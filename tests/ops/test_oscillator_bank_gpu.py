"""The Triton kernel of the bank: on a GPU where there is one, else under Triton's interpreter in another process."""

import os
import subprocess
import sys

import pytest
import torch

SCRIPT = """
import warnings
warnings.simplefilter("ignore")
import torch
from sostenuto.ops.oscillator_bank.gpu import pool
from tests.ops.test_oscillator_bank import BORDERS, between, problem
from sostenuto.ops.oscillator_bank import bank_shares

device = "cuda" if torch.cuda.is_available() else "cpu"
for channels, units, spans in ((1, 150, None), (5, 40, None), (2, 33, "integers"), (1, 20, "reals")):
    values, bank, drawn = problem(channels, units, spans)
    bank = between(bank, values, drawn)
    expected = bank_shares(values, BORDERS, bank, spans=drawn, backend="reference")
    got = pool(values.float().to(device), BORDERS, drawn, bank).cpu().double()
    torch.testing.assert_close(got, expected, rtol=0, atol=5e-6)
print("agreed")
"""


def test_the_kernel_agrees_with_the_reference():
    pytest.importorskip("triton", reason="Triton has no wheel for this system")
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    environment = {**os.environ, **interpreted, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "agreed"
