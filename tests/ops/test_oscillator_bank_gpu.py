"""The Triton kernel of the bank, called as it is: on a GPU, or under Triton's interpreter."""

import pytest
import torch

from sostenuto.ops.oscillator_bank import bank_shares
from tests.laws.op_laws import GPU
from tests.ops.test_oscillator_bank import BORDERS, between, problem

pytest.importorskip("triton", reason="Triton has no wheel for this system")
from sostenuto.ops.oscillator_bank import gpu

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("channels", "units", "spans"), [(1, 150, None), (5, 40, None), (2, 33, "integers"), (1, 20, "reals")]
)
def test_shares_are_those_of_the_reference(channels, units, spans):
    values, bank, drawn = problem(channels, units, spans)
    bank = between(bank, values, drawn)
    expected = bank_shares(values, BORDERS, bank, spans=drawn, backend="reference")
    got = gpu.pool(values.float().to(GPU), BORDERS, drawn, bank)
    assert got.device.type == GPU
    torch.testing.assert_close(got.cpu().double(), expected, rtol=0, atol=5e-6)


def test_the_op_takes_values_from_where_they_are():
    values, bank, _ = problem(2, 33)
    bank = between(bank, values, None)
    expected = bank_shares(values, BORDERS, bank, backend="reference")
    torch.testing.assert_close(bank_shares(values.to(GPU), BORDERS, bank).cpu().double(), expected, rtol=0, atol=5e-6)
